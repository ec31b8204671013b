"""Terminal: a program in a pseudo-terminal, whose screen the test reads.

    with Terminal([*PCCL, "top"], size=(80, 24)) as terminal:
        terminal.until("run night")
        terminal.type("q")
        assert terminal.wait() == 0

It understands the programs that draw whole screens from the upper left corner, as rich does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from programs import Program

WAIT_S = 60.0
HOME = "\x1b[H"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"  # screens: switch to
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"  # the cursor: let it be


class Terminal:
    """A terminal with a program in its foreground, as the leader of the terminal's session.

    Args:
        command: program and arguments.
        size: columns and rows.
        environment: variables besides those of this process.
    """

    def __init__(
        self,
        command: Sequence[Any],
        *,
        size: tuple[int, int] = (80, 24),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._outer, self._inner = os.openpty()
        os.set_blocking(self._outer, False)
        self.resize(*size)
        self.modes_before = self.modes()
        self.output = ""  # all that the program has written
        self._seen = 0  # the part of it that until() has used
        # Python without a buffer drops the rest of an output that a signal interrupts.
        removed = ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "LINES", "PYTHONUNBUFFERED")
        kept = {name: value for name, value in os.environ.items() if name not in removed}
        # PYTHONUTF8: the screen has names in all scripts.
        variables = {**kept, "TERM": "xterm-256color", "PYTHONUTF8": "1", **(environment or {})}
        self.program = Program(
            ["setsid", "--ctty", *map(str, command)],
            stdin=self._inner,
            stdout=self._inner,
            stderr=self._inner,
            env=variables,
            heeds_signals=True,
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.program.end()
        os.close(self._inner)
        with contextlib.suppress(OSError):  # hang_up() has closed it
            os.close(self._outer)

    # --- What a person does ---

    def type(self, text: str) -> None:
        os.write(self._outer, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        self._size = (columns, rows)
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        os.close(self._outer)

    # --- What a person sees ---

    def until(self, *texts: str, without: str = "\0") -> list[str]:
        """Return the lines of the first new screen that has all `texts`, and not `without`."""
        found: list[list[str]] = []

        def is_found() -> bool:
            for drawn in self.output[self._seen :].split(HOME):
                lines = self._whole(drawn)
                shown = "\n".join(lines)
                if lines and all(text in shown for text in texts) and without not in shown:
                    found.append(lines)
            return bool(found)

        self._read_until(is_found, f"{texts}")
        self._seen = len(self.output)
        return found[0]

    def until_printed(self, text: str) -> str:
        """Return all output as soon as it has the text."""
        self._read_until(lambda: text in self.output, text)
        return self.output

    def wait(self) -> int:
        """Return the exit status of the program, after its end."""
        self._read_until(lambda: self.program.poll() is not None, "the end of the program")
        while self._read(0):
            pass
        return self.program.wait()

    def modes(self) -> list[Any]:
        """Return the modes of the terminal, in the form of termios."""
        return termios.tcgetattr(self._inner)

    def is_restored(self) -> bool:
        """Return whether modes, screen and cursor are as before the program."""
        screens = [self.output.rfind(NORMAL) - self.output.rfind(ALTERNATE)]
        screens.append(self.output.rfind(SHOWN) - self.output.rfind(HIDDEN))
        return self.modes() == self.modes_before and min(screens) > 0

    def _whole(self, drawn: str) -> list[str]:
        """Return the lines of a screen; none if it is not complete yet, or of another size."""
        columns, rows = self._size
        lines = STYLE.sub("", drawn.partition("\x1b[?")[0]).split("\r\n")
        is_whole = len(lines) == rows and len(lines[-1]) == columns
        return lines if is_whole else []

    def _read_until(self, is_found: Callable[[], bool], meaning: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_found():
            left = deadline - time.monotonic()
            assert left > 0, f"no {meaning} within {WAIT_S:g} s, but {self.output[-4000:]!r}"
            # A program that ends writes nothing, so its end is looked for again and again.
            self._read(min(left, 0.05))

    def _read(self, timeout: float) -> bool:
        """Read what is there; return whether there was something within `timeout` seconds."""
        if not select.select([self._outer], [], [], timeout)[0]:
            return False
        self.output += os.read(self._outer, 1 << 16).decode(errors="replace")
        return True
