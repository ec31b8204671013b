"""Try a wheel on a bare Debian 12: a root with Python and torch, and nothing else. Needs root.

    packaging/try_wheel.py dist/pccl_torch-0.1.0-cp311-*.whl --torch 2.15.0

It measures the time from `pip install` to the first all-reduce of two peers, and checks that
neither a compiler nor a library of the system is used. Then it does the same with the libstdc++ of
Debian 11 in front. The root stays in build/release/root for the next time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

WORK = Path(__file__).resolve().parents[1] / "build" / "release"
BARE = WORK / "root"
PACKAGES = "python3,python3-venv,ca-certificates"
LIMIT_S = 60.0
STEP_S = 1800.0
OLD_LIBRARIES = "/floor"

PEER = """
import sys, torch, torch.distributed as dist
dist.init_process_group("pccl", init_method="pccl://127.0.0.1:48148/bare?min_peers=2")
tensor = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(tensor)
assert tensor.tolist() == [3.0] * 3, tensor
used = {line.split()[-1] for line in open("/proc/self/maps") if "/lib" in line}
assert not [path for path in used if "libuv" in path], used  # libssl is there for Python itself
print("reduced")
dist.destroy_process_group()
"""


class TryError(Exception):
    """A step failed."""


def settings() -> dict[str, str]:
    """Return the variables for the root: those of pip name its certificates."""
    pips = {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
    return {"PATH": os.environ["PATH"], "HOME": "/root", **pips}


def run(command: Sequence[str | Path], *, seconds: float = STEP_S, **more: str) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        env={**settings(), "LANG": "C.UTF-8", **more},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        raise TryError(f"{' '.join(words)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def bare_root(torch: str) -> None:
    """Make the root, with torch in /venv; nothing if it is there."""
    ready = BARE / f"ready-{torch}"
    if ready.exists():
        return
    shutil.rmtree(BARE, ignore_errors=True)
    BARE.parent.mkdir(parents=True, exist_ok=True)
    run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", BARE])
    with mounted():
        run(["chroot", BARE, "python3", "-m", "venv", "/venv"])
        run(["chroot", BARE, "/venv/bin/pip", "install", "-q", f"torch=={torch}", "numpy"])
    for name in ("gcc", "cc", "g++"):
        if (BARE / "usr" / "bin" / name).exists():
            raise TryError(f"the root has {name}")
    ready.touch()


@contextlib.contextmanager
def mounted() -> Iterator[None]:
    """Mount /proc and /dev into the root."""
    for name in ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if Path(name).exists():
            shutil.copy(name, f"{BARE}{name}")
    with contextlib.ExitStack() as stack:
        for name in ("proc", "dev"):
            run(["mount", "--rbind", f"/{name}", BARE / name])
            # Otherwise the end of these mounts would also end those of the machine.
            run(["mount", "--make-rslave", BARE / name])
            stack.callback(run, ["umount", "--recursive", "--lazy", BARE / name])
        yield


def attempt(wheel: Path, **environment: str) -> float:
    """Install the wheel, start a master and two peers; return the seconds."""
    inside = ["chroot", BARE]
    with contextlib.suppress(TryError):  # it may not be there
        run([*inside, "/venv/bin/pip", "uninstall", "-y", "-q", "pccl-torch"])
    shutil.copy(wheel, BARE / wheel.name)
    (BARE / "peer.py").write_text(PEER)
    start = time.monotonic()
    run([*inside, "/venv/bin/pip", "install", "-q", "--no-index", f"/{wheel.name}"])
    words = [*map(str, inside), "/venv/bin/pccl", "master", "--no-journal"]
    variables = {**settings(), **environment}
    master = subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL)
    try:
        command = [*map(str, inside), "/venv/bin/python", "/peer.py"]
        peers = [
            subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for peer in peers:
            shown, _ = peer.communicate(timeout=STEP_S)
            if shown.strip() != "reduced":
                raise TryError(f"a peer ended with {peer.returncode}: {shown}")
        seconds = time.monotonic() - start
    finally:
        master.terminate()
        master.wait(timeout=STEP_S)
    return seconds


def missing_libraries() -> list[str]:
    """Return the lines of ldd about libraries that are not found, without those of torch."""
    script = (
        "for file in /venv/lib/python3*/site-packages/pccl_backend/*.so "
        "/venv/lib/python3*/site-packages/pccl_backend/bin/*; do ldd $file; done"
    )
    lines = run(["chroot", BARE, "sh", "-c", script]).splitlines()
    missing = [line.split()[0] for line in lines if "not found" in line]
    return [name for name in missing if not name.startswith(("libtorch", "libc10"))]


def main() -> int:
    parser = argparse.ArgumentParser(description="Try a wheel on a bare Debian 12.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--torch", required=True, metavar="VERSION")
    options = parser.parse_args()
    try:
        bare_root(options.torch)
        shutil.copytree(WORK / "floor", f"{BARE}{OLD_LIBRARIES}", dirs_exist_ok=True)
        with mounted():
            plain = attempt(options.wheel)
            old = attempt(options.wheel, LD_LIBRARY_PATH=OLD_LIBRARIES)
            missing = missing_libraries()
            extra = f"/{options.wheel.name}[demo]"
            run(["chroot", BARE, "/venv/bin/pip", "install", "-q", extra])
            demo = run(["chroot", BARE, "/venv/bin/pccl", "demo", "--short"], seconds=300.0)
    except (TryError, subprocess.TimeoutExpired) as error:
        print(f"try_wheel: {error}", file=sys.stderr)
        return 1
    print(f"from pip install to the first all-reduce: {plain:.1f} s; with the libstdc++ of")
    print(f"Debian 11: {old:.1f} s; libraries that are missing: {missing or 'none'}")
    print("\n".join(demo.strip().splitlines()[-3:]))
    return int(bool(missing) or max(plain, old) > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
