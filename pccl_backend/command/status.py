"""`pccl status`: shows one run of a master on this machine, and why it stands still.

The master makes the diagnosis and answers at the socket beside its journal (operator/snapshot.h
describes the answer). The answer is shown as far as it is understood: a master of another version
may send more fields, or fewer. Nothing here imports torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from pccl_backend.command.common import CommandError, prepare_output, run_command
from pccl_backend.command.runs import add_master_options, ask, chosen_journal, run_name
from pccl_backend.command.status_page import page

__all__ = ["show_status"]

HEALTHY = 0
STANDS_STILL = 1  # a finding is an error
FAILED = 2  # no master, no such run, or wrong usage
INTERRUPTED = 130


def show_status(arguments: Sequence[str] | None = None) -> int:
    """Run `pccl status`; return 0, 1 if something stands still, 2 on failure, 130 after Ctrl-C.

    Example:
        >>> show_status(["night", "--journal", "/nowhere/journal"])
        2
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    journal = chosen_journal(parser, options)
    request = {"command": "status"} | ({"run": options.run} if options.run is not None else {})
    answers: list[Any] = []

    def act() -> None:
        line = ask(journal, request)
        answer = json.loads(line)
        if not isinstance(answer.get("findings"), list):
            raise CommandError(
                "the answer of the master has no findings: is it of another version?"
            )
        answers.append(answer)
        prepare_output()
        if options.json:
            sys.stdout.buffer.write(line)
        else:
            print("\n".join(page(answer)))

    ended = run_command(parser.prog, act)
    if ended == INTERRUPTED:
        return ended
    if ended != 0 or not answers:
        return FAILED
    return STANDS_STILL if _stands_still(answers[0]["findings"]) else HEALTHY


def _stands_still(findings: Sequence[Any]) -> bool:
    return any(isinstance(one, dict) and one.get("severity") == "error" for one in findings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pccl status",
        description="Show a run of a master on this machine: first the findings, which are the "
        "reasons why it stands still with the next step of a person, then its members, its ring, "
        "the calls that wait, and the last events.",
        epilog="Exit status: 0: nothing stands still; 1: a finding is an error; 2: the run could "
        "not be shown. The master is asked by the socket beside its journal, which is for the user "
        "who has started it and for root only. One with --no-journal has none.",
    )
    parser.add_argument(
        "run",
        type=run_name,
        metavar="RUN",
        nargs="?",
        help="its name, as `pccl runs` shows it (default: the only run that is under way)",
    )
    parser.add_argument("--json", action="store_true", help="print the master's answer as it is")
    add_master_options(parser)
    return parser
