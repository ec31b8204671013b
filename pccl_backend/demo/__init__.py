"""The `pccl demo` command: a training run that loses a peer and takes in a new one, on one machine.

    settings    how large, how long, when what happens
    data        the text: Python's standard library, character by character
    model       a small GPT
    peer        one peer process: trains, and reports what happens to it as JSON lines
    child       a process of ours and the pipes to it; leaves nothing behind
    story       what the reports add up to
    plot        starts the processes, kills one, lets one in
    verdict     was every promise kept?
    view        live progress: a table on a terminal, plain lines elsewhere
    picture     demo.png

Only `peer`, `model` and `data` import torch. Everything decided here is decided in `story` and
`verdict`, which are pure; `plot` acts and `view` shows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

__all__ = ["main"]

NEEDED = ("rich", "matplotlib")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pccl demo`; return the exit code: 0 when every check passed.

    Args:
        arguments: what follows `pccl demo`; sys.argv unless given.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(f"pccl demo needs {' and '.join(missing)}: pip install 'pccl[demo]'", file=sys.stderr)
        return 1
    from pccl_backend.demo.command import main as command

    return command(arguments)
