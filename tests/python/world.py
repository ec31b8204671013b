"""World: a few processes that run functions of this folder's work_*.py files, for tests.

Processes come from a server that has imported torch once and is forked for each of them, so a world
costs tenths of a second. A process runs one function, `function(*arguments)`, and returns its
result or its exception. A world always ends within its time limit, and `close` ends all remaining
processes, by process id.

    world = World(directory, size=3, init_method=master.url("run"))
    results = world.run(work_collectives.sums, 1024)         # one result per process

    world.start(work_kill.reduce_for_ever)                   # or step by step
    world.processes[1].kill()
    outcomes = world.outcomes(timeout=20)                    # a Lost for the killed one

With `setup="group"` the process group is made before the function runs, and destroyed afterwards.
With `setup="nothing"` the function does that itself. With `setup="program"` it does that, too, and
the process then ends like a Python program that reaches its end; it returns nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import itertools
import multiprocessing
import os
import pickle
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
from programs import Program

PRELOAD = ["torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "torch.utils.data"]
FOLDER = Path(__file__).parent
STACK_SIGNAL = signal.SIGUSR1  # makes a process write its threads' stacks to its log
LOG_TAIL = 4000

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(PRELOAD)
_numbers = itertools.count()


@dataclass(frozen=True)
class Failed:
    """The function raised."""

    error: Exception
    text: str = field(repr=False)
    at: float  # time.monotonic() of this machine


@dataclass(frozen=True)
class Returned:
    """The function returned."""

    value: Any
    at: float


@dataclass(frozen=True)
class Lost:
    """The process ended without a result."""

    exit_code: int | None


Outcome = Failed | Returned | Lost


class WorldError(AssertionError):
    """An unexpected outcome of processes, with the end of their logs."""


@dataclass
class Process:
    """One process of a world."""

    name: str
    log: Path
    handle: Any
    answers: Connection
    outcome: Outcome | None = None

    @property
    def pid(self) -> int:
        return int(self.handle.pid)

    def kill(self) -> None:
        """End it without any warning, as a vanishing machine does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def poll(self) -> Outcome | None:
        if self.outcome is None and self.answers.poll():
            try:
                self.outcome = pickle.loads(self.answers.recv_bytes())
            except EOFError:
                self.handle.join(5)
                self.outcome = Lost(self.handle.exitcode)
        return self.outcome

    def tail(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"--- {self.name} (pid {self.pid}): {self.outcome}\n{text[-LOG_TAIL:]}"


@dataclass
class World:
    """Processes that run the same function; see the head of this file.

    Args:
        directory: directory for logs and rendezvous files.
        size: number of processes that `start` makes.
        init_method: argument of init_process_group, for a run that has a master; without it, rank 0
            hosts one and they meet by a file.
        environment: environment variables of the processes.
        timeout_s: timeout of the process group, in seconds.
        torch_threads: torch threads of each process; tests share two cores.
    """

    directory: Path
    size: int
    init_method: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0
    torch_threads: int = 1
    processes: list[Process] = field(default_factory=list)

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        timeout: float = 30.0,
        setup: str = "group",
    ) -> list[Any]:
        """Run it on a new set of processes; return the results in order of `spawn`.

        Raises:
            WorldError: a process raised, died or took too long.
        """
        self.start(function, *arguments, setup=setup)
        outcomes = self.outcomes(timeout)
        self.processes.clear()
        return [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]

    def start(self, function: Callable[..., Any], *arguments: Any, setup: str = "group") -> None:
        """Start it on `size` new processes."""
        meeting = self.directory / f"meeting-{next(_numbers)}"
        for rank in range(self.size):
            self.spawn(function, *arguments, setup=setup, rank=rank, meeting=meeting)

    def spawn(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        setup: str = "group",
        rank: int = -1,
        meeting: Path | None = None,
    ) -> Process:
        """Start it on one new process, for instance a late peer of a run with a master."""
        name = f"process {len(self.processes)}"
        job = Job(
            function=function,
            arguments=arguments,
            setup=setup,
            rank=rank,
            size=self.size,
            init_method=self.init_method or f"file://{meeting}",
            environment=dict(self.environment),
            timeout_s=self.timeout_s,
            log=str(self.directory / f"log-{next(_numbers)}.txt"),
            torch_threads=self.torch_threads,
        )
        mine, theirs = _context.Pipe(duplex=False)
        handle = _context.Process(target=_main, args=(job, theirs), name=name)
        handle.start()
        theirs.close()
        process = Process(name=name, log=Path(job.log), handle=handle, answers=mine)
        self.processes.append(process)
        return process

    def outcomes(self, timeout: float, *, expect_success: bool | None = None) -> list[Outcome]:
        """Wait for all processes and return their outcomes.

        `expect_success` is on, unless a process was killed. If a test is about a failure, pass
        False.

        Raises:
            WorldError: a process took too long (then all are ended), or failed unexpectedly.
        """
        deadline = time.monotonic() + timeout
        while pending := [process for process in self.processes if process.poll() is None]:
            left = deadline - time.monotonic()
            if left <= 0:
                self._end_late(pending, timeout)
            wait([process.answers for process in pending], max(left, 0))
        outcomes = [process.outcome for process in self.processes]
        if expect_success is not False and any(not isinstance(o, Returned) for o in outcomes):
            raise WorldError("a process did not return:\n" + self.tails())
        return [outcome for outcome in outcomes if outcome is not None]

    def tails(self) -> str:
        texts = [process.tail() for process in self.processes]
        texts += [p.outcome.text for p in self.processes if isinstance(p.outcome, Failed)]
        return "\n".join(texts)

    def close(self) -> None:
        """End all remaining processes."""
        for process in self.processes:
            if process.handle.is_alive():
                process.kill()
            process.handle.join(5)
            process.answers.close()
        self.processes.clear()

    def _end_late(self, pending: Sequence[Process], timeout: float) -> None:
        for process in pending:
            with contextlib.suppress(ProcessLookupError):
                process.signal(STACK_SIGNAL)
        time.sleep(0.5)
        names = ", ".join(process.name for process in pending)
        text = f"{names}: not done after {timeout:g} s\n" + self.tails()
        self.close()
        raise WorldError(text)


# --- In the process -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The task of one process."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    setup: str
    rank: int
    size: int
    init_method: str
    environment: dict[str, str]
    timeout_s: float
    log: str
    torch_threads: int

    def init(self) -> None:
        """Call init_process_group as this process would."""
        from datetime import timedelta

        import torch.distributed as dist

        timeout = timedelta(seconds=self.timeout_s)
        dist.init_process_group("pccl", timeout=timeout, **self.place())

    def place(self) -> dict[str, Any]:
        """Return where the next init finds the others: what torch's arguments of this kind are.

        Each call names another file. torch's FileStore removes its file when the last process has
        closed it, also if another process has just opened it again: then two inits that follow each
        other hang once in about a thousand times.
        """
        global inits  # noqa: PLW0603
        if self.is_open:
            return {"init_method": self.init_method}
        inits += 1
        place = {"init_method": f"{self.init_method}.{inits}"}
        return {**place, "rank": self.rank, "world_size": self.size}

    @property
    def is_open(self) -> bool:
        return self.init_method.startswith("pccl://")


current: Job  # the job of this process
inits = 0  # of this process, with a file


def _main(job: Job, answers: Connection) -> None:
    global current  # noqa: PLW0603
    current = job
    # Ctrl-C in the terminal of the tests must not reach this process.
    os.setpgrp()
    log = open(job.log, "w", buffering=1)  # noqa: SIM115
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    sys.stdout = sys.stderr = log
    faulthandler.register(STACK_SIGNAL, file=log, all_threads=True)
    os.environ.update(job.environment)
    if job.setup == "program":
        _run_as_program(job)
    outcome: Outcome
    try:
        value = _run(job)
        outcome = Returned(value, time.monotonic())
    except Exception as error:  # noqa: BLE001
        outcome = Failed(_portable(error), traceback.format_exc(), time.monotonic())
    answers.send_bytes(pickle.dumps(outcome))


def _run(job: Job) -> Any:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(job.torch_threads)
    if job.setup == "nothing":
        return job.function(*job.arguments)
    job.init()
    try:
        return job.function(*job.arguments)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _run_as_program(job: Job) -> None:
    """Run it and end as a Python program does: threads are joined, exit handlers run."""
    code = 0
    try:
        job.function(*job.arguments)
    except SystemExit as request:
        code = int(request.code or 0)
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    sys.stdout.flush()
    ctypes.pythonapi.Py_Exit(code)


def _portable(error: Exception) -> Exception:
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001
        return RuntimeError(f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def expected(error: type[BaseException], *says: str) -> Iterator[list[BaseException]]:
    """Check that the block raises `error` and that its text has all of `says`; yield the error.

    This is pytest.raises for processes without pytest.
    """
    raised: list[BaseException] = []
    try:
        yield raised
    except error as found:
        raised.append(found)
    if not raised:
        raise AssertionError(f"{error.__name__} was not raised")
    for part in says:
        assert part in str(raised[0]), f"{part!r} is not in: {raised[0]}"


# --- Programs beside the world --------------------------------------------------------------------


def wait_until(condition: Callable[[], bool], *, timeout_s: float) -> bool:
    """Look again and again; return whether the condition came true in time."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)  # the watched programs announce nothing
    return condition()


def is_running(pid: int) -> bool:
    """Return whether a process runs. One that has ended may wait for its parent to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def free_port() -> int:
    """Return a port without a listener at the moment.

    It is below the ports that the system gives to connections, so no connection gets it before the
    caller listens on it.
    """
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(10_000, 32_000)))
            return int(probe.getsockname()[1])


# The variable that names the keyring of all masters, if the tests are secured (conftest.py).
KEYRING = "KEYRING_OF_TESTS"
# The variable with the command of another master that the tests are to use: `make aarch64`.
MASTER = "MASTER_OF_TESTS"


plain_text = pytest.mark.skipif(KEYRING in os.environ, reason="SKIPPED: it is about plain text")


def keyring_options() -> list[str]:
    """Return the options of a master that asks for the token of all tests, if it should."""
    return ["--keyring", os.environ[KEYRING]] if KEYRING in os.environ else []


class Master:
    """A `pccl master` process on loopback, with these further options."""

    def __init__(self, log: Path, *, port: int | None = None, options: Sequence[str] = ()) -> None:
        self.port = port or free_port()
        self._log = log
        self._runs = itertools.count()
        command = shlex.split(os.environ.get(MASTER, ""))
        command = command or [sys.executable, "-m", "pccl_backend.cli", "master"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--no-journal"]
        command += [*keyring_options(), *options]
        with open(log, "w") as out:
            self.process = Program(command, stdout=out, stderr=out)
        self._wait_until_it_listens()

    def url(self, run: str | None = None, **parameters: Any) -> str:
        """Return the URL of a run of its own, unless named."""
        name = run or f"run-{os.getpid()}-{next(self._runs)}"
        query = "&".join(f"{key}={value}" for key, value in parameters.items())
        return f"pccl://127.0.0.1:{self.port}/{name}" + (f"?{query}" if query else "")

    def stop(self) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.end()

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.01)
        raise WorldError(f"pccl master does not listen: {self._log.read_text()}")


def run_program(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float = 60.0,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program with a time limit; the result carries exit code and output."""
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(
        command,
        env=variables,
        timeout=timeout,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def require_own_name() -> None:
    """Skip the test if the name of this machine, which torchrun gives its processes, is unknown."""
    try:
        for name in ("localhost", socket.getfqdn()):
            socket.getaddrinfo(name, 1)
    except OSError:
        pytest.skip("SKIPPED: `torchrun --standalone` needs a name of this machine that resolves")
