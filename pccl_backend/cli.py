"""The command `pccl`: runs or queries a master, makes tokens, checks a machine, measures a path.

The command starts quickly because nothing here imports torch.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

__all__ = ["main"]

MASTER = Path(__file__).parent / "bin" / "pccl-master"
# The module and the function of each command but `master`; only that of the command is imported.
COMMANDS = {
    "demo": ("pccl_backend.demo", "main"),
    "doctor": ("pccl_backend.command.doctor", "main"),
    "forget": ("pccl_backend.command.runs", "forget_run"),
    "probe": ("pccl_backend.probe", "main"),
    "runs": ("pccl_backend.command.runs", "list_runs"),
    "status": ("pccl_backend.command.status", "show_status"),
    "token": ("pccl_backend.command.tokens", "main"),
    "top": ("pccl_backend.command.top", "show_top"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command named by `arguments` (sys.argv unless given) and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _refuse_tokens(words)
    # Each command parses and explains its own options.
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command == "master":
        run_master(rest)
    if command in COMMANDS:
        module, name = COMMANDS[command]
        run: Callable[[Sequence[str]], int] = getattr(import_module(module), name)
        return run(rest)
    _parser().parse_args(words)
    _parser().print_help()
    return 0


def _refuse_tokens(words: Sequence[str]) -> None:
    """End the process if an argument is a token, or contains one. Nothing repeats its secret."""
    from pccl_backend._tokens import find_token

    for number, word in enumerate(words, start=1):
        if name := find_token(word):
            print(
                f"pccl: argument {number} contains a token. Others on this machine can see the "
                f"arguments of a program, so revoke it: `pccl token revoke {name}`. A token "
                "belongs in a file that PCCL_SECRET_FILE names",
                file=sys.stderr,
            )
            sys.exit(2)


def run_master(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the compiled master, which takes over signals and exit code."""
    if not MASTER.exists():
        sys.exit(
            f"pccl: {MASTER} is missing, so this installation is incomplete; build it with "
            "`make setup`, or `pip install --no-build-isolation .` in the source folder"
        )
    from pccl_backend import _settings

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"pccl: {message}", file=sys.stderr)
        try:
            _settings.check_names(os.environ)
        except ValueError as error:
            print(f"pccl master: {error}", file=sys.stderr)
            sys.exit(2)
    if sys.stdout is not None:  # it is None if the descriptor is closed
        sys.stdout.flush()
    os.execv(MASTER, ["pccl master", *arguments])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pccl",
        description="Collective communication for PyTorch that survives the loss of peers "
        "and takes in new ones.",
        epilog="`pccl COMMAND --help` tells more about each.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands.add_parser("master", help="run a master, which peers join by pccl://host:port/RUN")
    commands.add_parser("runs", help="list the runs of a master on this machine")
    commands.add_parser("status", help="show a run, and why it stands still")
    commands.add_parser("doctor", help="check this machine, and the path to a master")
    commands.add_parser("top", help="show a run live in this terminal")
    commands.add_parser("forget", help="let a master on this machine forget a run that is over")
    commands.add_parser("token", help="make, list and revoke the tokens of those who may join")
    commands.add_parser("demo", help="train a small model on 3 peers, kill one, let another join")
    commands.add_parser("probe", help="measure what the path to another host carries")
    return parser


class _Version(argparse.Action):
    """Looks the version up only when the user asks for it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        from pccl_backend._distribution import NAME

        print(f"pccl {version(NAME)}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
