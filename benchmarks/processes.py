"""The processes of a benchmark: pccl's master, and ranks that answer line by line."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

PREPARED = "prepared"
START_SECONDS = 0.05  # for all to hear of the instant


Handler = Callable[[int, FrameType | None], object]


def on_end(handler: Handler) -> None:
    """Call it when somebody ends this process; what it is to ignore (nohup) it goes on ignoring."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Run a script to its end. An interrupt, which all its ranks hear too, leaves no tracebacks;
    whoever ends it another way does not leave behind what it has made, either."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    on_end(end)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def missing(needs: Sequence[str]) -> list[str]:
    """Return which of these this machine has not: programs, files, "root" for being root."""

    def there(need: str) -> bool:
        if need == "root":
            return os.geteuid() == 0
        return Path(need).exists() if need.startswith("/") else shutil.which(need) is not None

    return [need for need in needs if not there(need)]


def read_line(process: subprocess.Popen[str]) -> str:
    """Return what it says next; ends this program if it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process ended with {process.wait()}: see its error above")
    return line


def ask(processes: Sequence[subprocess.Popen[str]], request: str) -> list[str]:
    """Send a line to all of them at once; return what each says next."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(request + "\n")
        process.stdin.flush()
    return [read_line(process) for process in processes]


def ask_together(
    processes: Sequence[subprocess.Popen[str]], request: str, rounds: int = 1
) -> list[str]:
    """Send a line to all of them; as soon as all have prepared a round for it, let them begin at
    the same instant (wait_for_start), and so each further round; return what each says at last."""
    said = ask(processes, request)
    for _ in range(rounds):
        assert all(line.strip() == PREPARED for line in said), said
        said = ask(processes, repr(time.monotonic() + START_SECONDS))
    return said


def wait_for_start() -> float:
    """Say that this rank is prepared, wait for the start, the same for all; return seconds late.

    An instant of the monotonic clock that all know beforehand is the one barrier that costs the
    round nothing: ranks leave a barrier of messages one after another, and its messages would be
    on the way beside what is measured. Nothing is hoped for while it sleeps: whoever has heard of
    the instant too late starts at once, and says by how much.
    """
    print(PREPARED, flush=True)
    early = float(sys.stdin.readline()) - time.monotonic()
    # It waits for nobody, only for the instant that all were told: no result depends on how long.
    time.sleep(max(0.0, early))
    return max(0.0, -early)


def cpu_seconds(process: int) -> float:
    """Return what all its threads have taken so far, user and system (man 5 proc_pid_stat)."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def end(processes: Sequence[subprocess.Popen[str]], master: Master | None) -> None:
    """Let ranks come to their end, then the master; nothing is left, whatever goes wrong."""
    try:
        for process in processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                process.stdin.close()
        for process in processes:
            process.wait(timeout=30)
    finally:
        for process in processes:
            process.kill()
        if master is not None:
            master.close()


def environment_of(build: Path | None) -> dict[str, str]:
    """Return the environment of processes that run the package pccl_backend in this folder, before
    the one that is installed; None: they run that one."""
    environment = dict(os.environ)
    if build is not None:
        others = environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join([str(build), *filter(None, others)])
    return environment


class Master:
    """`pccl master` at a free port of `host`; `place` is what comes before its command, `build`
    the folder of the package that it belongs to (environment_of)."""

    def __init__(
        self, host: str = "127.0.0.1", place: Sequence[str] = (), build: Path | None = None
    ) -> None:
        program = str(Path(sys.executable).with_name("pccl"))
        self._process = subprocess.Popen(
            [*place, program, "master", "--host", host, "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env=environment_of(build),
        )
        self.pid = self._process.pid
        self.address = read_line(self._process).split()[-1]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=10)
