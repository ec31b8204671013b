"""`pccl top`: shows a run of a master on this machine live, in the words of `pccl status`.

    top            options, and whether there is a terminal and rich
    top_screen     which lines the terminal shows (pure)
    top_terminal   the terminal: modes, keys, signals, and the thread that asks the master

Nothing here imports torch. Only top_terminal imports rich, which is optional.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from pccl_backend.command.common import CommandError, run_command
from pccl_backend.command.status import (
    add_run_options,
    answer_of,
    check_run_options,
    read_snapshot,
)

__all__ = ["show_top"]

FAILED = 2  # no master, no such run, no terminal, or wrong usage
INTERRUPTED = 130


def show_top(arguments: Sequence[str] | None = None) -> int:
    """Run `pccl top`; return 0 after q, 2 if nothing can be shown, 130 after Ctrl-C.

    Example:
        >>> show_top(["night", "--journal", "/nowhere/journal"])  # no terminal
        2
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    check_run_options(parser, options)

    def source() -> dict[str, Any]:
        return read_snapshot(answer_of(parser, options))

    def act() -> None:
        _require_rich()
        _require_terminal()
        first = source()
        if options.run is None and isinstance(first.get("run"), str):
            options.run = first["run"]  # another run that begins does not take its place
        from pccl_backend.command.top_terminal import show

        show(source, first)

    ended = run_command(parser.prog, act)
    return ended if ended in (0, INTERRUPTED) else FAILED


def _require_rich() -> None:
    if find_spec("rich") is None:
        raise CommandError("it needs rich: pip install 'pccl-torch[top]'")


def _require_terminal() -> None:
    instead = "use `pccl status`, which prints the page once"
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None or stream.closed or not stream.isatty():
            raise CommandError(f"its standard {name} is no terminal: {instead}")
    if (kind := os.environ.get("TERM", "")) in ("dumb", "unknown"):
        raise CommandError(f"a terminal with TERM={kind} cannot redraw a page: {instead}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pccl top",
        description="Show a run of a master on this machine live: the page of `pccl status`, "
        "once per second. If the master does not answer, the last page stays, with the reason "
        "above it. q quits; the arrow keys, j, k, Page Up and Page Down scroll.",
        epilog="Exit status: 0: ended by q; 2: the run could not be shown; 130: ended by Ctrl-C. "
        "The command needs a terminal and rich: pip install 'pccl-torch[top]'. The master is asked "
        "as `pccl status` does it.",
    )
    add_run_options(parser)
    return parser
