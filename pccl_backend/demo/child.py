"""A child process: line-wise pipes to it and from it, and a guaranteed end.

Each child has a session of its own. Therefore Ctrl-C reaches only the demo, and the demo ends its
children by process id on every exit path. If the demo itself is killed, the peers see the end of
their standard input, and Linux kills the other children (`_end_with_parent`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["Child", "Children"]

REAP_TIMEOUT_S = 10.0
TAIL_LINES = 15
READ_BYTES = 1 << 16
PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _own_environment() -> dict[str, str]:
    """Return this process's environment without settings for masters on other machines."""
    others = ("PCCL_SECRET_FILE", "PCCL_INSECURE", "PCCL_MASTER")
    return {name: value for name, value in os.environ.items() if name not in others}


class Child:
    """One child process. The thread that started it owns it; `Children` creates and ends it.

    Attributes:
        name: name of the child in messages.
        errors: file with its standard error.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, errors: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.errors = errors
        self._partial = b""
        with errors.open("wb") as error_file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=error_file,
                env={**_own_environment(), **environment},
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (it makes one system call)
            )
        os.set_blocking(self.fileno(), False)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, or minus the signal number if a signal ended it; None while it runs."""
        return self._process.poll()

    def fileno(self) -> int:
        """Return the descriptor of its standard output, for a selector."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def read_lines(self) -> list[str] | None:
        """Return the complete lines available now, without waiting; None at the end of output."""
        try:
            data = os.read(self.fileno(), READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def tell(self, line: str) -> None:
        """Write a line to its standard input, unless the child has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def wait(self, *, timeout_s: float) -> int | None:
        """Wait for the exit code up to the timeout; return None if the child still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=timeout_s)
        return self.exit_code

    def kill(self) -> float:
        """Send SIGKILL, wait for the end, and return its time (time.monotonic)."""
        self._process.kill()
        self._process.wait(timeout=REAP_TIMEOUT_S)
        return time.monotonic()

    def last_words(self) -> str:
        """Return the last lines of its standard error."""
        lines = self.errors.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def close(self) -> None:
        """Kill the child if it still runs, and close its pipes."""
        if self.exit_code is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


class Children:
    """All children of one demo. None is left after the `with` block.

    Args:
        folder: folder for their standard errors, one file each.

    Example:
        >>> with Children(folder) as children:
        ...     child = children.start("a", [sys.executable, "-c", "print(1)"])
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()  # closes all children, even if closing one fails

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start a child. Its environment is this process's, updated by the given one."""
        errors = self._folder / f"{name}.err"
        child = Child(name, command, errors=errors, environment=environment or {})
        self._stack.callback(child.close)
        return child


def _end_with_parent() -> None:
    """In the child, ask Linux for SIGKILL when the parent ends. On other systems, do nothing."""
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
