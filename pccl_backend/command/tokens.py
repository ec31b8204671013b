"""`pccl token`: make, list and revoke the tokens that admit peers and observers.

The tokens of a master are in a keyring (keyring_file.py). A new token is shown once, to the person
who makes it. `revoke` asks a running master to read its keyring again. Nothing here imports torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pccl_backend import _private_file
from pccl_backend._limits import NAME_BYTES_MAX, RUN_NAME_BYTES_MAX
from pccl_backend._settings import check_name, decoded
from pccl_backend._tokens import Token, read_secret_file
from pccl_backend.command import keyring_file
from pccl_backend.command.common import CommandError, aligned, prepare_output, run_command, when
from pccl_backend.command.keyring_file import Entry
from pccl_backend.command.runs import (
    MasterError,
    NoMasterError,
    add_master_options,
    ask,
    chosen_journal,
)

__all__ = ["main"]

HEAD = ("id", "name", "role", "runs", "created")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pccl token`; return 0, 1 if it failed, 130 after Ctrl-C."""
    parser = _parser()
    options = parser.parse_args(arguments)
    chosen: argparse.ArgumentParser = options.parser
    if "keyring" in options:
        options.keyring = options.keyring or keyring_file.default_keyring(os.environ)
        if options.keyring is None:
            chosen.error("HOME is not set: give --keyring PATH")
    if "journal" in options:  # of revoke
        options.journal = chosen_journal(chosen, options)
    return run_command(chosen.prog, lambda: options.act(options))


# --- The commands ---------------------------------------------------------------------------------


def _new(options: argparse.Namespace) -> None:
    keyring: Path = options.keyring
    if options.out is not None and os.path.lexists(options.out):
        raise CommandError(f"{options.out} exists already: name a new file, or remove it first")
    runs = list(dict.fromkeys(options.run))
    before = keyring_file.read(keyring) if keyring.exists() else []
    made = keyring_file.add(
        keyring, name=options.name, role=options.role, runs=runs, created=int(time.time())
    )
    try:
        _hand_out(made.token, options.out)
    except CommandError as error:
        keyring_file.remove(keyring, made.token.id)
        raise CommandError(f"{error}. The new token is not in the keyring any more") from None
    where = "the line above" if options.out is None else str(options.out)
    use = "the peer's machine" if made.role == "peer" else "the machine of `pccl status URL`"
    print(
        f"{where} has the token {made.token.id} of {made.name}, for {_runs_text(made)}: bring it "
        f"to {use}, in a file that only you can read, and name that file in "
        f"PCCL_SECRET_FILE there. The keyring {keyring} has it, too; a running master notices "
        "that within a second",
        file=sys.stderr,
    )
    if same := [entry.token.id for entry in before if entry.name == made.name]:
        print(
            f"{made.name} had a token before: {', '.join(same)}. `pccl token revoke ID` ends one "
            "that nobody uses any more",
            file=sys.stderr,
        )


def _hand_out(token: Token, out: Path | None) -> None:
    """Write the token to a new file, or to stdout."""
    line = f"{token.text()}\n".encode()
    try:
        if out is not None:
            return _private_file.create(out, line)
        # With sys.stdout, a line that cannot be written would be tried again when Python ends.
        with open(sys.stdout.fileno(), "wb", closefd=False) as stdout:
            stdout.write(line)
    except _private_file.PrivateFileError as error:
        raise CommandError(f"{out} {error}") from None
    except OSError as error:
        raise CommandError(f"stdout cannot be written: {error.strerror}") from None


def _list(options: argparse.Namespace) -> None:
    entries = keyring_file.read(options.keyring)
    prepare_output()
    rows = [
        (one.token.id, one.name, one.role, _runs_text(one), when(one.created)) for one in entries
    ]
    print("\n".join(aligned([HEAD, *rows])) if rows else "this keyring has no tokens")


def _revoke(options: argparse.Namespace) -> None:
    keyring: Path = options.keyring
    gone = keyring_file.remove(keyring, options.token)
    for entry in gone:
        print(f"revoked token {entry.token.id} of {entry.name}", flush=True)
    try:
        _tell_master(options.journal, [entry.token.id for entry in gone])
    except NoMasterError:
        print(
            f"no master was told: none with the journal {options.journal} runs here. A running "
            f"master that uses the keyring {keyring} notices the change within a second; a master "
            "on another machine has a keyring of its own, which is as it was",
            file=sys.stderr,
        )
    except MasterError as error:
        raise CommandError(f"the keyring is changed, but the master is not: {error}") from None


def _http_password(options: argparse.Namespace) -> None:
    try:
        token = read_secret_file(str(options.file))
    except ValueError as error:
        raise CommandError(f"{options.file}: {error}") from None
    print(f"{token.id}:{token.http_password()}")


def _tell_master(journal: Path, ids: Sequence[str]) -> None:
    """Let the master with this journal read its keyring again; print the result."""
    revoked = json.loads(ask(journal, {"command": "revoke", "tokens": ids})).get("revoked")
    counts = revoked if isinstance(revoked, dict) else {}
    tokens, peers = counts.get("tokens"), counts.get("peers")
    if not (isinstance(tokens, int) and isinstance(peers, int)):
        raise MasterError("its answer says nothing about tokens: is it of another version?")
    print(
        f"the master has read its keyring again: {_count(tokens, 'token')} revoked, "
        f"{_count(peers, 'peer')} removed"
    )


def _runs_text(entry: Entry) -> str:
    return ", ".join(entry.runs) or "all runs"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# --- Options --------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pccl token",
        description="Make, list and revoke tokens. A token belongs to one person or one machine "
        "and lets its peers into runs, or only lets it observe them (`pccl status URL`). A master "
        "with a keyring admits nobody without a token, and encrypts all connections.",
        epilog="`pccl token COMMAND --help` tells more about each.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    new = commands.add_parser(
        "new",
        help="make a token and print it once",
        description="Make a token, add it to the keyring, and print it. It is shown this one time. "
        "Two tokens of one name may exist at the same time, so that one can replace the other.",
    )
    new.add_argument("name", type=_name, metavar="NAME", help="of the person or the machine")
    new.add_argument(
        "--run",
        type=_run,
        action="append",
        default=[],
        help="a run that the token is for (may be repeated; default: all runs)",
    )
    new.add_argument(
        "--role",
        choices=keyring_file.ROLES,
        default="peer",
        help="the permission that it gives: an observer only reads (`pccl status URL`), and a peer "
        "may also do that (default: %(default)s)",
    )
    new.add_argument(
        "--out", type=_path, metavar="FILE", help="write the token to this new file, of mode 0600"
    )
    new.set_defaults(act=_new)
    listing = commands.add_parser(
        "list",
        help="list the tokens, without their secrets",
        description="List the tokens of the keyring: id, name, role, runs and date. A secret is "
        "never shown.",
    )
    listing.set_defaults(act=_list)
    revoke = commands.add_parser(
        "revoke",
        help="remove a token, or all tokens of a name",
        description="Remove a token from the keyring by its id, or all tokens of a name. A master "
        "on this machine is told, by the socket beside its journal, to read its keyring again. The "
        "exit status is 0 if the keyring is changed, even if no such master runs, which stderr "
        "then says. It is 1 if the keyring is as it was, or if the master does not follow it.",
    )
    revoke.add_argument("token", metavar="NAME-or-ID", help="as `pccl token list` shows it")
    add_master_options(revoke)
    revoke.set_defaults(act=_revoke)
    password = _add_http_password(commands)
    for command in (new, listing, revoke, password):
        command.set_defaults(parser=command)
    for command in (new, listing, revoke):
        command.add_argument(
            "--keyring",
            type=_path,
            metavar="PATH",
            help="the file with the tokens (default ~/.local/state/pccl/keyring)",
        )
    return parser


def _add_http_password(commands: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        "http-password",
        help="print the user and the password for the pages of a master",
        description="Print USER:PASSWORD for the pages of a master (`pccl master --http`), as "
        "`curl --user` takes it. Both come from the token: the user is its id. The password is "
        "derived from its secret and shows runs only, so it may be kept by a program such as "
        "Prometheus. It works until the token is revoked.",
    )
    parser.add_argument("file", type=_path, metavar="FILE", help="a file that has one token")
    parser.set_defaults(act=_http_password)
    return parser


def _name(text: str) -> str:
    try:
        return check_name(decoded(text), NAME_BYTES_MAX)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(text: str) -> str:
    try:
        text = check_name(decoded(text), RUN_NAME_BYTES_MAX)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if "/" in text:
        raise argparse.ArgumentTypeError("the name contains a slash, and no run has such a name")
    return text


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError("the path is empty: give that of a file")
    return Path(text)
