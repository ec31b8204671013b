"""The screen of `pccl top`: which lines it has, as a function of snapshots, keys, time and size.

The page is the one of `pccl status`, without a limit of its length. Above it is a line if the page
is old, and below it one for the keys. Nothing here touches a terminal, a socket or a clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from pccl_backend._settings import printable
from pccl_backend.command.common import CommandError, cut, wrapped
from pccl_backend.command.runs import NoMasterError
from pccl_backend.command.status_page import Line, Tone, duration, page_lines

__all__ = ["Key", "KeyReader", "Screen", "Size"]

OLD_S = 3.0  # the page is old after this time without an answer, also if no question has failed
ROWS_PER_NOTICE_ROW = 3  # the notice about an old page takes at most a third of the rows
ROWS_WITH_KEYS = 3  # a terminal of fewer rows has no room for the line about the keys


class Key(Enum):
    """A key that has a meaning here."""

    QUIT = "q"
    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"


class Size(NamedTuple):
    """The size of a terminal."""

    columns: int
    rows: int


class Screen:
    """The lines that the terminal shows. Times are in seconds of one clock.

    Example:
        >>> screen = Screen({"run": "night", "findings": []}, now=0.0)
        >>> [line.text for line in screen.lines(Size(40, 3), now=1.0)]
        ['run night', '', 'q quits']
    """

    def __init__(self, snapshot: Mapping[str, Any], *, now: float) -> None:
        self._snapshot = snapshot
        self._answered_at = now
        self._failure: CommandError | None = None  # of the last question
        self._first = 0  # line of the page that is shown on top

    def on_snapshot(self, snapshot: Mapping[str, Any], *, now: float) -> None:
        """Take the answer to the last question."""
        self._snapshot = snapshot
        self._answered_at = now
        self._failure = None

    def on_failure(self, failure: CommandError) -> None:
        """Take the failure of the last question: the page remains, and becomes old."""
        self._failure = failure

    def on_key(self, key: Key, size: Size, *, now: float) -> None:
        """Scroll. Other keys have no effect here."""
        notice, page = self._notice(size, now), self._page(size)
        room = _room(size, notice)
        whole = max(1, room - 1)  # one line of the last screen stays in sight
        steps = {Key.UP: -1, Key.DOWN: 1, Key.PAGE_UP: -whole, Key.PAGE_DOWN: whole}
        first = _bounded(self._first, page, room)  # the page may have become shorter
        self._first = _bounded(first + steps.get(key, 0), page, room)

    def lines(self, size: Size, *, now: float) -> list[Line]:
        """Return a line for each row of the terminal; none is wider than the terminal."""
        notice, page = self._notice(size, now), self._page(size)
        room = _room(size, notice)
        first = _bounded(self._first, page, room)
        shown = page[first : first + room]
        shown += [Line("")] * (room - len(shown))
        if notice:
            shown = [Line(line.text, Tone.STALE) for line in shown]
        keys = [Line(_keys(first, room, len(page)))] if size.rows >= ROWS_WITH_KEYS else []
        return [Line(cut(text, size.columns), tone) for text, tone in [*notice, *shown, *keys]]

    def _page(self, size: Size) -> list[Line]:
        return page_lines(self._snapshot, columns=size.columns, is_short=False)

    def _notice(self, size: Size, now: float) -> list[Line]:
        """Return the lines that report that the page is old, and why; none if it is not."""
        age = now - self._answered_at
        if self._failure is None and age < OLD_S:
            return []
        absent = "master" if isinstance(self._failure, NoMasterError) else "new page"
        reason = str(self._failure or "the master has not answered yet")
        text = printable(f"no {absent} for {duration(max(1, int(age)))}: {reason}")
        lines = wrapped(text, "", "", size.columns)
        most = max(1, size.rows // ROWS_PER_NOTICE_ROW)
        if len(lines) > most:
            lines = [*lines[: most - 1], cut(" ".join(lines[most - 1 :]), size.columns)]
        return [Line(line, Tone.ERROR) for line in lines]


def _room(size: Size, notice: list[Line]) -> int:
    """Return the number of rows for the page."""
    return max(0, size.rows - len(notice) - (size.rows >= ROWS_WITH_KEYS))


def _bounded(first: int, page: list[Line], room: int) -> int:
    return max(0, min(first, len(page) - room))


def _keys(first: int, room: int, count: int) -> str:
    if count <= room:
        return "q quits"
    return f"q quits, arrows scroll, {first + 1}-{first + room} of {count}"


# --- Keys -----------------------------------------------------------------------------------------

# A control sequence (ECMA-48), a function key, or any other byte. Escape alone is no key.
SEQUENCE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[@-~]|.")
PARTIAL = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
PARTIAL_BYTES_MAX = 32  # no key sends more
KEYS = {
    b"q": Key.QUIT,
    b"k": Key.UP,
    b"\x1b[A": Key.UP,
    b"\x1bOA": Key.UP,
    b"j": Key.DOWN,
    b"\x1b[B": Key.DOWN,
    b"\x1bOB": Key.DOWN,
    b"\x1b[5~": Key.PAGE_UP,
    b"\x1b[6~": Key.PAGE_DOWN,
}


class KeyReader:
    """Reads keys from the bytes of a terminal. A sequence may arrive in several pieces.

    Example:
        >>> reader = KeyReader()
        >>> reader.read(b"x\\x1b["), reader.read(b"Aq")
        ([], [<Key.UP: 'up'>, <Key.QUIT: 'q'>])
    """

    def __init__(self) -> None:
        self._partial = b""

    def read(self, piece: bytes) -> list[Key]:
        """Return the keys that are complete now; bytes without a meaning are ignored."""
        data = self._partial + piece
        partial = PARTIAL.search(data)
        whole = data[: partial.start()] if partial else data
        is_kept = partial is not None and len(partial[0]) <= PARTIAL_BYTES_MAX
        self._partial = partial[0] if partial is not None and is_kept else b""
        return [KEYS[one] for one in SEQUENCE.findall(whole) if one in KEYS]
