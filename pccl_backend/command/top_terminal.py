"""The terminal of `pccl top`: modes, keys and signals, and the thread that asks the master.

The happy path: each second the thread asks for a snapshot and wakes the main thread. The main
thread waits for a key, a signal, or the thread, and draws the screen again. In the end the terminal
has its modes back: after q, Ctrl-C, an exception, and the signals that end or stop a program.

Failures: a question that fails is a line on the screen. If the terminal is gone, the process ends
as by SIGHUP. If the terminal takes no more output, a signal ends the process after CLEANUP_S.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import select
import signal
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pccl_backend.command.common import CommandError
from pccl_backend.command.status_page import Tone
from pccl_backend.command.top_screen import Key, KeyReader, Screen, Size

__all__ = ["show"]

REFRESH_S = 1.0  # between an answer and the next question
TICK_S = 1.0  # longest time between two screens: the age of an old page grows
CLEANUP_S = 3  # longest time to restore the terminal after a signal
INPUT, OUTPUT = 0, 1  # file descriptors
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
NO_SIGNAL = 0  # the byte by which the thread wakes the main thread; signals send their number
SIZE_UNKNOWN = Size(80, 24)  # in place of 0, which a serial line reports
STYLES = {
    Tone.PLAIN: "",
    Tone.NOTE: "green",
    Tone.WARNING: "yellow",
    Tone.ERROR: "bold red",
    Tone.LOST: "red",
    Tone.STALE: "dim",
}

Snapshot = Mapping[str, Any]
Source = Callable[[], Snapshot]


def show(source: Source, first: Snapshot) -> None:
    """Show the run on this process's terminal until q; only the main thread may call it.

    Args:
        source: returns a snapshot, or raises CommandError; called once per second by a thread.
        first: the snapshot to begin with.

    Raises:
        KeyboardInterrupt: ended by Ctrl-C.

    Example:
        >>> show(source, source())  # ends by q
    """
    ended = 0
    with _Wakeups() as wakeups, _Questions(source, wakeups.wake) as questions:
        view = _View(questions, wakeups, Screen(first, now=time.monotonic()))
        while (ended := view.run()) == signal.SIGTSTP:
            wakeups.stop_process()
    if ended == signal.SIGINT:
        raise KeyboardInterrupt
    if ended != 0:
        signal.signal(ended, signal.SIG_DFL)
        signal.raise_signal(ended)


class _View:
    """The main loop."""

    def __init__(self, questions: _Questions, wakeups: _Wakeups, screen: Screen) -> None:
        self._questions = questions
        self._wakeups = wakeups
        self._screen = screen
        self._keys = KeyReader()
        self._console = Console(
            file=sys.stdout, force_terminal=True, force_interactive=True, highlight=False
        )

    def run(self) -> int:
        """Take the terminal; return the signal that ends or stops the process, or 0 after q."""
        live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        try:
            with _keys_at_once(), live:
                return self._loop(live)
        except (OSError, termios.error) as error:
            if error.args[0] != errno.EIO:
                raise
            return signal.SIGHUP  # the terminal is gone

    def _loop(self, live: Live) -> int:
        while True:
            self._draw(live)
            sources = [INPUT, self._wakeups.fileno()]
            ready, _, _ = select.select(sources, [], [], TICK_S)
            arrived = self._wakeups.taken()
            for number in (*ENDS, signal.SIGTSTP):
                if number in arrived:
                    return number
            for answer in self._questions.answers():
                if isinstance(answer, CommandError):
                    self._screen.on_failure(answer)
                else:
                    self._screen.on_snapshot(answer, now=time.monotonic())
            if INPUT in ready:
                if not (piece := os.read(INPUT, 1024)):
                    return signal.SIGHUP
                for key in self._keys.read(piece):
                    if key is Key.QUIT:
                        return 0
                    self._screen.on_key(key, _size(), now=time.monotonic())

    def _draw(self, live: Live) -> None:
        size = _size()
        self._console.size = size  # COLUMNS of the environment may be an old one
        text = Text(no_wrap=True, overflow="crop", end="")  # never markup: names come from peers
        encoding = self._console.encoding
        for line in self._screen.lines(size, now=time.monotonic()):
            known = line.text.encode(encoding, "backslashreplace").decode(encoding)
            text.append(known + "\n", STYLES[line.tone])
        live.update(text, refresh=True)


def _size() -> Size:
    columns, rows = os.get_terminal_size(OUTPUT)
    return Size(columns or SIZE_UNKNOWN.columns, rows or SIZE_UNKNOWN.rows)


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Let the terminal deliver each key at once, without showing it; restore its modes after."""
    before = termios.tcgetattr(INPUT)
    modes = termios.tcgetattr(INPUT)
    modes[3] = modes[3] & ~(termios.ICANON | termios.ECHO) | termios.ISIG
    modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
    try:
        termios.tcsetattr(INPUT, termios.TCSANOW, modes)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(INPUT, termios.TCSANOW, before)


class _Wakeups:
    """The signals that end, stop or resize, and the calls of wake(), as bytes of a socket."""

    def __enter__(self) -> _Wakeups:
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        self._outer.setblocking(False)
        self._fd_before = signal.set_wakeup_fd(self._outer.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _bound_the_end) for number in ENDS}
        for number in (signal.SIGWINCH, signal.SIGTSTP):
            self._before[number] = signal.signal(number, _do_nothing)
        return self

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)  # the terminal is restored
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        self._inner.close()
        self._outer.close()

    def fileno(self) -> int:
        return self._inner.fileno()

    def wake(self) -> None:
        """Wake the main thread; any thread may call it."""
        with contextlib.suppress(OSError):  # full: it will wake; closed: it has ended
            self._outer.send(bytes([NO_SIGNAL]))

    def taken(self) -> bytes:
        """Return the bytes that have arrived."""
        with contextlib.suppress(BlockingIOError):
            return self._inner.recv(1024)
        return b""

    def stop_process(self) -> None:
        """Stop this process as Ctrl-Z does; return when it continues."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _do_nothing)


def _do_nothing(*_: object) -> None:
    pass


def _bound_the_end(*_: object) -> None:
    signal.alarm(CLEANUP_S)  # SIGALRM ends a process whose terminal takes no more output


class _Questions:
    """A thread that asks the source once per second, so that keys work while it waits."""

    def __init__(self, source: Source, wake: Callable[[], None]) -> None:
        self._source = source
        self._wake = wake
        self._answers: queue.SimpleQueue[Snapshot | BaseException] = queue.SimpleQueue()
        self._over = threading.Event()
        # A daemon, so that a question in flight does not delay the end of the process.
        self._thread = threading.Thread(target=self._ask, daemon=True, name="pccl top asks")

    def __enter__(self) -> _Questions:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def answers(self) -> Iterator[Snapshot | CommandError]:
        """Yield the answers that have arrived; raise the exception of the source if it has one."""
        with contextlib.suppress(queue.Empty):
            while True:
                answer = self._answers.get_nowait()
                if isinstance(answer, BaseException) and not isinstance(answer, CommandError):
                    raise answer
                yield answer

    def _ask(self) -> None:
        while not self._over.wait(REFRESH_S):
            try:
                self._answers.put(self._source())
            except CommandError as failure:
                self._answers.put(failure)
            except BaseException as error:  # noqa: BLE001  # the main thread raises it
                self._answers.put(error)
                self._over.set()
            self._wake()
