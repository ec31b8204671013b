"""`pccl status`: shows one run of a master, and why it stands still.

The master makes the diagnosis and answers (operator/snapshot.h describes the answer): on its own
machine at its socket (runs.py, hosted.py), and from anywhere at its port (observing.py). The answer
is shown as far as it is understood: a master of another version may send more fields, or fewer.
Nothing here imports torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from pccl_backend._settings import OpenRun, read_url
from pccl_backend.command import observing
from pccl_backend.command.common import CommandError, prepare_output, run_command
from pccl_backend.command.hosted import chosen_master, find_masters
from pccl_backend.command.runs import (
    NoMasterError,
    add_master_options,
    ask,
    ask_at,
    chosen_journal,
    run_name,
)
from pccl_backend.command.status_page import page

__all__ = ["add_run_options", "answer_of", "check_run_options", "read_snapshot", "show_status"]

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
    check_run_options(parser, options)
    answers: list[dict[str, Any]] = []

    def act() -> None:
        line = answer_of(parser, options)
        answers.append(read_snapshot(line))
        prepare_output()
        if options.json:
            sys.stdout.buffer.write(line)
        else:
            print("\n".join(page(answers[0])))

    ended = run_command(parser.prog, act)
    if ended == INTERRUPTED:
        return ended
    if ended != 0 or not answers:
        return FAILED
    return STANDS_STILL if _stands_still(answers[0]["findings"]) else HEALTHY


def check_run_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the command if the options of add_run_options() contradict each other."""
    elsewhere = options.journal is not None or options.port is not None or options.pid is not None
    if isinstance(options.run, OpenRun) and elsewhere:
        parser.error("a URL names the master, so --journal, --port and --pid do not go with it")


def answer_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> bytes:
    """Return the answer of the master that the options choose: a line that is a JSON object.

    Raises:
        CommandError: no master can be asked, several could be, or it refuses.
    """
    run = options.run
    if isinstance(run, OpenRun):
        return json.dumps(observing.snapshot(run), separators=(",", ":")).encode() + b"\n"
    request = _status_request(run)
    if options.journal is not None or options.port is not None:
        return ask(chosen_journal(parser, options), request)
    masters = find_masters(os.environ)
    if options.pid is not None:
        masters = [master for master in masters if master.pid == options.pid]
        if not masters:
            raise NoMasterError(
                f"process {options.pid} has no master of this user: without --pid, `pccl status` "
                "lists those that there are"
            )
    if not masters:  # the error explains where a master would be
        return ask(chosen_journal(parser, options), request)
    return ask_at(chosen_master(masters, run).socket, request)


def _status_request(run: str | None) -> dict[str, object]:
    """Return the question for a snapshot of this run; None: of the only one that is under way.

    Example:
        >>> _status_request("night")
        {'command': 'status', 'run': 'night'}
    """
    return {"command": "status", **({} if run is None else {"run": run})}


def read_snapshot(line: bytes) -> dict[str, Any]:
    """Return the snapshot in an answer of the master, which is a JSON object.

    Raises:
        CommandError: the answer is no snapshot.

    Example:
        >>> read_snapshot(b'{"run": "night", "findings": []}')
        {'run': 'night', 'findings': []}
    """
    answer: dict[str, Any] = json.loads(line)
    if not isinstance(answer.get("findings"), list):
        raise CommandError("the answer of the master has no findings: is it of another version?")
    return answer


def _stands_still(findings: Sequence[Any]) -> bool:
    return any(isinstance(one, dict) and one.get("severity") == "error" for one in findings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pccl status",
        description="Show a run: first the findings, which are the reasons why it stands still "
        "and what to do, then its members, its ring, the calls that wait, and the last events.",
        epilog="Exit status: 0: nothing stands still; 1: a finding is an error; 2: the run could "
        "not be shown. On its machine, a master answers at a socket, to its own user and to root "
        "only: beside its journal, or, if a peer's process contains the master "
        "(torchrun), in $XDG_RUNTIME_DIR/pccl or ~/.local/state/pccl. From anywhere else it is "
        "asked by its URL, with a token in the file of PCCL_SECRET_FILE, if it has a keyring.",
    )
    add_run_options(parser)
    parser.add_argument("--json", action="store_true", help="print the master's answer as it is")
    return parser


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument RUN, and the options that choose one of the masters of this machine."""
    parser.add_argument(
        "run",
        type=_run_or_url,
        metavar="RUN",
        nargs="?",
        help="its name, as `pccl runs` shows it (default: the only run that is under way); or its "
        "URL, pccl://HOST[:PORT]/RUN, for a master on any machine",
    )
    which = add_master_options(parser)
    which.add_argument(
        "--pid", type=_pid, help="the process of a peer that contains the master (torchrun)"
    )


def _run_or_url(text: str) -> str | OpenRun:
    if not text.startswith("pccl:"):
        return run_name(text)
    try:
        return read_url(text, os.environ)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"pid is {text!r}, must be the number of a process")
    return int(text)
