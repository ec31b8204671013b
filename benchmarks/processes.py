"""The processes of a benchmark: pccl's master, and ranks that answer line by line."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

PREPARED = "prepared"
START_SECONDS = 0.05  # enough for all ranks to receive the start time


Handler = Callable[[int, FrameType | None], object]


def on_end(handler: Handler) -> None:
    """Handle a signal that ends this process; signals ignored so far (nohup) remain ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Run a script to its end. An interrupt, which all its ranks receive too, leaves no tracebacks.
    Another signal that ends it also runs its cleanup."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    on_end(end)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def missing(needs: Sequence[str]) -> list[str]:
    """Return the needs that this machine lacks: programs, files, "root" for root rights."""

    def there(need: str) -> bool:
        if need == "root":
            return os.geteuid() == 0
        return Path(need).exists() if need.startswith("/") else shutil.which(need) is not None

    return [need for need in needs if not there(need)]


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next output line of a process; exit this program if the process has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process ended with {process.wait()}: see its error above")
    return line


def ask(processes: Sequence[subprocess.Popen[str]], request: str) -> list[str]:
    """Send a line to all processes at once; return the next output line of each."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(request + "\n")
        process.stdin.flush()
    return [read_line(process) for process in processes]


def ask_together(
    processes: Sequence[subprocess.Popen[str]], request: str, rounds: int = 1
) -> list[str]:
    """Send a line to all processes. When all have prepared a round for it, let them begin at the
    same time (wait_for_start), and so each further round; return the last output line of each."""
    said = ask(processes, request)
    for _ in range(rounds):
        assert all(line.strip() == PREPARED for line in said), said
        said = ask(processes, repr(time.monotonic() + START_SECONDS))
    return said


def wait_for_start() -> float:
    """Report that this rank is prepared, wait for the common start, and return seconds of delay.

    A time of the monotonic clock that all ranks know beforehand is the only barrier without cost to
    the round. Ranks leave a barrier of messages one after another, and its messages would be in the
    network together with the measured ones. A rank that received the time too late starts at once
    and returns its delay.
    """
    print(PREPARED, flush=True)
    early = float(sys.stdin.readline()) - time.monotonic()
    # The rank waits for the announced time, not for other ranks: no result depends on the delay.
    time.sleep(max(0.0, early))
    return max(0.0, -early)


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds of all its threads so far, user and system (man 5 proc_pid_stat)."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def end(processes: Sequence[subprocess.Popen[str]], master: Master | None) -> None:
    """Let the ranks finish, then end the master; no process remains after an error either."""
    try:
        for process in processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # the rank has already ended
                process.stdin.close()
        for process in processes:
            process.wait(timeout=30)
    finally:
        for process in processes:
            process.kill()
        if master is not None:
            master.close()


def environment_of(build: Path | None) -> dict[str, str]:
    """Return the environment for processes that run the package pccl_backend of this folder instead
    of the installed one; None: they run the installed one."""
    environment = dict(os.environ)
    if build is not None:
        others = environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join([str(build), *filter(None, others)])
    return environment


class Master:
    """`pccl master` at a free port of `host`. `place` is the prefix of its command, and `build` the
    folder of its package (environment_of). `secured`: it asks for a token, and all traffic is
    encrypted. `shares`: for the direct pattern; none: equal ones. `page`: it serves its page, at
    the address `page`. `environment` is what its peers need."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        place: Sequence[str] = (),
        build: Path | None = None,
        *,
        secured: bool = False,
        shares: Sequence[int] = (),
        page: bool = False,
    ) -> None:
        program = [sys.executable, "-m", "pccl_backend.cli"]
        # `-m` looks in the working directory first, which has the package of this tree.
        self._folder = tempfile.TemporaryDirectory(prefix="pccl-bench-")
        self.environment: dict[str, str] = {}
        options: list[str] = []
        if secured:
            keyring, token = Path(self._folder.name) / "keyring", Path(self._folder.name) / "token"
            words = ["token", "new", "bench", "--keyring", str(keyring), "--out", str(token)]
            environment = environment_of(build)  # an older build may not read a newer keyring
            subprocess.run(
                [*program, *words],
                check=True,
                capture_output=True,
                env=environment,
                cwd=self._folder.name,
            )
            options = ["--keyring", str(keyring)]
            self.environment = {"PCCL_SECRET_FILE": str(token)}
        elif host != "127.0.0.1":
            options = ["--insecure"]
            self.environment = {"PCCL_INSECURE": "1"}
        if shares:
            options += ["--shares", ",".join(map(str, shares))]
        if page:
            options += ["--http", "0"]
        self._process = subprocess.Popen(
            [*place, *program, "master", "--host", host, "--port", "0", *options],
            stdout=subprocess.PIPE,
            text=True,
            env={"PCCL_LOG": "warning", **environment_of(build)},
            cwd=self._folder.name,
        )
        self.pid = self._process.pid
        self.address = read_line(self._process).split()[-1]
        self.page = ""
        while page and not self.page:
            _, _, self.page = read_line(self._process).strip().partition("shows its runs at ")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=10)
        self._folder.cleanup()
