"""The `pccl demo` command: a training run that loses a peer and takes in a new one, on one machine.

    settings    size of the demo, its duration, and the steps of the kill and the join
    data        the text: Python's standard library, character by character
    model       a small GPT
    peer        one peer process: trains, and reports its progress as JSON lines
    child       a child process and its pipes; guarantees that it ends
    story       collects the reports and draws conclusions from them
    plot        starts the processes, kills one, lets one in
    verdict     checks whether every promise was kept
    view        live progress: a table on a terminal, plain lines elsewhere
    picture     demo.png

Only `peer`, `model` and `data` import torch. The pure modules `story` and `verdict` make all
decisions; `plot` acts and `view` displays.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

__all__ = ["main"]

NEEDED = ("rich", "matplotlib")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pccl demo`; return the exit code: 0 if every check passed.

    Args:
        arguments: arguments after `pccl demo`; by default from sys.argv.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(
            f"pccl demo needs {' and '.join(missing)}: pip install 'pccl-torch[demo]'",
            file=sys.stderr,
        )
        return 1
    from pccl_backend.demo.command import main as command

    return command(arguments)
