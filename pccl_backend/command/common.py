"""Code that the commands of an operator share. Nothing here imports torch."""

from __future__ import annotations

import io
import os
import signal
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pccl_backend._settings import printable

__all__ = [
    "COLUMNS",
    "CommandError",
    "aligned",
    "cut",
    "prepare_output",
    "run_command",
    "socket_folders",
    "state_folder",
    "when",
    "wrapped",
]

COLUMNS = 80
CUT = "..."  # in the place of the rest of a text
INTERRUPTED = 130
NOTHING = "-"  # an empty cell


class CommandError(Exception):
    """A command failed for a reason outside this program; the message has a remedy."""


def run_command(prog: str, act: Callable[[], None]) -> int:
    """Run a command; return 0, 1 after a CommandError, 130 after Ctrl-C."""
    try:
        act()
        sys.stdout.flush()
    except CommandError as error:
        print(f"{prog}: {printable(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\n{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def prepare_output() -> None:
    """Prepare stdout for text that a reader may cut off and whose characters it may lack."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader like `head` that stops is no error
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def state_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of journals and keyrings, as in master/main.cc; None without HOME.

    Example:
        >>> state_folder({"XDG_STATE_HOME": "/var/state"})
        PosixPath('/var/state/pccl')
    """
    state, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME", "")
    if state.startswith("/"):
        return Path(state, "pccl")
    return Path(home, ".local", "state", "pccl") if home.startswith("/") else None


def socket_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders that may have the sockets of masters inside a peer's process.

    These are the folders of master/shell/user_folders.h. The environment of the peer may have named
    the folder of the session, though this one does not, so its usual place is searched, too.

    Example:
        >>> socket_folders({"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/h/alice"})
        [PosixPath('/run/user/7/pccl'), PosixPath('/h/alice/.local/state/pccl')]
    """
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    session = runtime if runtime.startswith("/") else f"/run/user/{os.geteuid()}"
    state = state_folder(environment)
    return [Path(session, "pccl"), *([] if state is None else [state])]


# --- Tables and texts -----------------------------------------------------------------------------


def aligned(rows: Sequence[Iterable[str]]) -> list[str]:
    """Return the lines of a table; all rows have the same number of cells.

    Example:
        >>> aligned([("run", "peers"), ("night", "3")])
        ['run    peers', 'night  3']
    """
    cells = [tuple(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(_padded, row, widths)).rstrip() for row in cells]


def wrapped(text: str, first: str, others: str, columns: int = COLUMNS) -> list[str]:
    """Return a text as lines of at most `columns` columns.

    Args:
        text: may have characters that take two columns.
        first: begins the first line.
        others: begins all other lines.
        columns: the most that a line takes.

    Example:
        >>> wrapped("all is well", "ok  ", "    ")
        ['ok  all is well']
    """
    return textwrap.wrap(
        text,
        columns if text.isascii() else max(1, columns // 2),  # a character may take two columns
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def cut(text: str, columns: int) -> str:
    """Return the text, or the start of it and "..." if it takes more columns.

    Example:
        >>> cut("all is well", 10)
        'all is ...'
    """
    if _width(text) <= columns:
        return text
    room, end = columns - len(CUT), 0
    while _width(text[end]) <= room:
        room -= _width(text[end])
        end += 1
    return text[:end] + CUT


def when(seconds: Any) -> str:
    """Return a time of this machine's clock as text."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError, OverflowError, OSError):
        return NOTHING


def _width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))
