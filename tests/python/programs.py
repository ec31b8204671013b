"""Programs that a test starts: every wait for one is bounded, and none outlives its block.

    with Program([sys.executable, "-c", text]) as program:
        assert program.line() == "begun\\n"
        program.send_signal(signal.SIGTERM)
        assert program.communicate() == ("tidied up\\n", None)
    assert program.returncode == 0

The end of a `with subprocess.Popen` waits for ever, even if the time limit of the test has just
raised inside it. The end of a `with Program` kills a process that still runs, as subprocess.run()
with a timeout does.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

WAIT_S = 60.0  # a slow machine may take this long to read torch from its disk
REAP_S = 10.0  # limit for the end of a process that was killed

# `nohup` ignores the first, and `command &` in a script the other two. All child processes inherit
# that.
KEYBOARD = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


@contextlib.contextmanager
def heeded_by_children() -> Iterator[None]:
    """Let programs that are started in this block react to the signals that this process ignores.

    exec() keeps a signal ignored, but it resets a signal that has a handler. The handlers of this
    block do nothing, so this process still ignores the signals. Only the main thread may set
    handlers.
    """
    ignored = [number for number in KEYBOARD if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


class Program(subprocess.Popen[str]):
    """A program whose standard output the test reads.

    Args:
        command: program and arguments.
        heeds_signals: whether it reacts to SIGHUP, SIGINT and SIGQUIT even if the whole run ignores
            them; for a program that the test sends one of them.
        options: options of subprocess.Popen.
    """

    def __init__(
        self, command: Sequence[Any], *, heeds_signals: bool = False, **options: Any
    ) -> None:
        self._said = b""  # bytes that were read, but not returned yet
        with heeded_by_children() if heeds_signals else contextlib.nullcontext():
            super().__init__(command, text=True, **{"stdout": subprocess.PIPE, **options})

    def line(self, timeout: float = WAIT_S) -> str:
        """Return the next line that it prints, or the rest before the end of its output.

        Raises:
            TimeoutError: it printed no line within `timeout` seconds.
        """
        assert self.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._said:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([self.stdout], [], [], left)[0]:
                raise TimeoutError(f"{self.args!r} printed no line within {timeout:g} s")
            if not (more := os.read(self.stdout.fileno(), 1 << 16)):
                break
            self._said += more
        line, end, self._said = self._said.partition(b"\n")
        return (line + end).decode()

    def wait(self, timeout: float | None = WAIT_S) -> int:
        """Return its exit status.

        Raises:
            subprocess.TimeoutExpired: it did not end within `timeout` seconds.
        """
        return super().wait(timeout)

    def communicate(  # type: ignore[override]
        self, input: str | None = None, timeout: float | None = WAIT_S
    ) -> tuple[str, str | None]:
        """Write `input` and close its input; return the rest of its output and errors when it ends.

        Raises:
            subprocess.TimeoutExpired: it did not end within `timeout` seconds.
        """
        output, errors = super().communicate(input, timeout)
        said, self._said = self._said.decode(), b""
        return said + (output or ""), errors

    def end(self) -> None:
        """Kill it if it still runs."""
        self.kill()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # bytes that are still buffered remain unread
                    pipe.close()
        self.wait(REAP_S)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
