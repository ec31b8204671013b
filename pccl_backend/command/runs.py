"""`pccl runs` and `pccl forget`: list the runs of a master on this machine, or make it forget one.

A master with a journal answers at a Unix socket beside the journal, one line of JSON each way, in
the form of master/operator/control.h. The answer is shown as far as it is understood: a master of
another version may send more fields, or fewer. Nothing here imports torch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pccl_backend._limits import MASTER_ANSWER_BYTES_MAX, MASTER_PORT_DEFAULT, PORT_MAX
from pccl_backend._settings import decoded, printable
from pccl_backend.command.common import (
    NOTHING,
    CommandError,
    aligned,
    prepare_output,
    run_command,
    state_folder,
    when,
)

__all__ = [
    "MasterError",
    "NoMasterError",
    "add_master_options",
    "ask",
    "ask_at",
    "chosen_journal",
    "default_journal",
    "forget_run",
    "is_live",
    "list_runs",
    "run_name",
    "socket_of",
    "table",
]

ANSWER_S = 10.0  # longest wait: a master answers at once, unless it is suspended (SIGSTOP)
ADDRESS_BYTES_MAX = 107  # of a file path in the address of a Unix socket
HEAD = ("run", "state", "peers", "since", "shared state (group: revision, hash)")


class MasterError(CommandError):
    """The master could not be asked, or it refused; the message has a remedy."""


class NoMasterError(MasterError):
    """No master with this journal runs here."""


# --- The commands ---------------------------------------------------------------------------------


def list_runs(arguments: Sequence[str] | None = None) -> int:
    """Run `pccl runs`; return 0, 1 if the master could not be asked, 130 after Ctrl-C."""
    parser = _parser(
        "runs",
        "List the runs of a master on this machine: their state, how many peers they have, since "
        "when they are there (or over), and the shared state that was agreed on last.",
    )
    parser.add_argument("--json", action="store_true", help="print the master's answer as it is")
    options = parser.parse_args(arguments)
    show = _show_line if options.json else _show_runs
    return _run_command(parser, options, {"command": "runs"}, show)


def forget_run(arguments: Sequence[str] | None = None) -> int:
    """Run `pccl forget`; return 0, 1 if the master did not forget the run, 130 after Ctrl-C."""
    parser = _parser(
        "forget",
        "Let a master on this machine forget a run that is over, its shared state included. Peers "
        "that join under its name afterwards begin a new one.",
    )
    parser.add_argument(
        "run", type=run_name, metavar="RUN", help="its name, as `pccl runs` shows it"
    )
    options = parser.parse_args(arguments)
    request = {"command": "forget", "run": options.run}
    return _run_command(parser, options, request, _show_forgotten)


def _run_command(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    request: Mapping[str, str],
    show: Callable[[bytes], None],
) -> int:
    journal = chosen_journal(parser, options)

    def act() -> None:
        line = ask(journal, request)
        prepare_output()
        show(line)

    return run_command(parser.prog, act)


def _show_line(line: bytes) -> None:
    sys.stdout.buffer.write(line)


def _show_runs(line: bytes) -> None:
    runs = json.loads(line).get("runs")
    if not isinstance(runs, list):
        raise MasterError("its answer names no runs: is it a master of another version?")
    print("\n".join(table(runs)) if runs else "this master has no runs")


def _show_forgotten(line: bytes) -> None:
    print("forgotten:\n" + "\n".join(table([json.loads(line).get("forgot")])))


# --- Asking ---------------------------------------------------------------------------------------


def default_journal(environment: Mapping[str, str], port: int) -> Path | None:
    """Return the default journal of a master on this port, as in master/main.cc; None without HOME.

    Example:
        >>> default_journal({"XDG_STATE_HOME": "/var/state"}, 48148)
        PosixPath('/var/state/pccl/master-48148.journal')
    """
    folder = state_folder(environment)
    return None if folder is None else folder / f"master-{port}.journal"


def ask(journal: Path, request: Mapping[str, object], *, timeout: float = ANSWER_S) -> bytes:
    """Return the answer of the master with this journal: a line that is a JSON object.

    Args:
        journal: path of the journal.
        request: the command and its arguments.
        timeout: seconds for the whole exchange.

    Raises:
        NoMasterError: no master with this journal runs here.
        MasterError: the master cannot be asked, or it answered with an error.
    """
    return ask_at(socket_of(journal), request, timeout=timeout)


def socket_of(journal: Path) -> Path:
    """Return the socket of the master with this journal.

    Example:
        >>> socket_of(Path("/var/lib/pccl/master.journal"))
        PosixPath('/var/lib/pccl/master.journal.sock')
    """
    return Path(f"{journal}.sock")


def ask_at(path: Path, request: Mapping[str, object], *, timeout: float = ANSWER_S) -> bytes:
    """Return the answer of the master that listens at this socket; see `ask`."""
    deadline = time.monotonic() + timeout
    try:
        with _connected(path, deadline) as connection:
            connection.sendall(json.dumps(request).encode() + b"\n")
            line = _read(connection, deadline)
    except TimeoutError:
        raise MasterError(
            f"the master at {path} does not answer within {timeout:g} s: is it stopped, or its "
            "machine overloaded?"
        ) from None
    except (FileNotFoundError, NotADirectoryError):
        raise NoMasterError(
            f"there is no {path}: no master with this journal runs here. Name that of the one that "
            "does by --journal, or by --port; one with --no-journal, and one of an earlier "
            "version, cannot be asked"
        ) from None
    except PermissionError:
        raise MasterError(
            f"{path} is not for this user: ask as the one who has started the master, or as root"
        ) from None
    except ConnectionRefusedError:
        raise NoMasterError(
            f"the master that has made {path} has ended: start one with this journal, and ask again"
        ) from None
    except (BrokenPipeError, ConnectionResetError):
        line = b""
    except OSError as error:
        raise MasterError(f"cannot ask the master at {path}: {error}") from None
    if not line:
        raise MasterError(
            f"the master at {path} has closed the connection without an answer: it ends, or others "
            "ask it at the same time; try again"
        )
    _check(path, line)
    return line


def is_live(path: Path) -> bool:
    """Return whether a process of this user listens at this socket."""
    try:
        with _connected(path, time.monotonic() + ANSWER_S):
            return True
    except (OSError, MasterError):
        return False


def _check(path: Path, line: bytes) -> None:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not line.endswith(b"\n") or not isinstance(answer, dict):
        raise MasterError(f"{path} did not answer as a master does: is another program behind it?")
    if "error" in answer:
        raise MasterError(str(answer["error"]))


@contextlib.contextmanager
def _connected(path: Path, deadline: float) -> Iterator[socket.socket]:
    """Connect to the socket at `path`, which may be longer than a socket address allows."""
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(place).st_mode):
            raise MasterError(f"{path} is no socket: move it away, and start the master again")
        short = len(os.fsencode(path)) <= ADDRESS_BYTES_MAX
        address = os.fspath(path) if short else f"/proc/self/fd/{place}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            # If too many clients connect at once, the system itself waits for room. It does not
            # wait if the socket has a Python timeout, because such a socket is non-blocking.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_left(deadline)))
            try:
                connection.connect(address)
            except BlockingIOError:
                raise TimeoutError from None
            connection.settimeout(_left(deadline))
            yield connection
    finally:
        os.close(place)


def _read(connection: socket.socket, deadline: float) -> bytes:
    """Read up to the end of the line or of the connection."""
    pieces: list[bytes] = []
    size = 0
    while not pieces or not pieces[-1].endswith(b"\n"):
        connection.settimeout(_left(deadline))
        piece = connection.recv(1 << 20)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
        if size > MASTER_ANSWER_BYTES_MAX:
            raise MasterError(f"its answer takes more than {MASTER_ANSWER_BYTES_MAX} bytes")
    return b"".join(pieces)


def _timeval(seconds: float) -> bytes:
    """Return the time as the system's struct timeval."""
    whole = int(seconds)
    return struct.pack("ll", whole, int((seconds - whole) * 1e6))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


# --- Showing --------------------------------------------------------------------------------------


def table(runs: Sequence[Any]) -> list[str]:
    """Return the lines of a table of runs, from the master's answer; missing fields are "-".

    Example:
        >>> table([{"run": "night", "state": "away", "peers": 0}])[1].split()
        ['night', 'away', '0', '-', '-']
    """
    rows: list[tuple[str, ...]] = [HEAD]
    for run in runs:
        rows += _rows(run if isinstance(run, dict) else {})
    return aligned(rows)


def _rows(run: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one row for each shared state of the run, or a single row if it has none."""
    cells = (_cell(run.get("run")), _cell(run.get("state")), _cell(run.get("peers")))
    states = run.get("shared_states")
    texts = [_state(one) for one in states] if isinstance(states, list) and states else [NOTHING]
    first = (*cells, when(run.get("since")), texts[0])
    return [first, *(("", "", "", "", text) for text in texts[1:])]


def _state(state: Any) -> str:
    if not isinstance(state, dict):
        return NOTHING
    group, revision, digest = (_cell(state.get(name)) for name in ("group", "revision", "hash"))
    return f"{group}: {revision}, {digest}"


def _cell(value: Any) -> str:
    return NOTHING if value is None else printable(str(value))


# --- Options --------------------------------------------------------------------------------------


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"pccl {command}",
        description=description,
        epilog="The master is asked by the socket beside its journal, which is for the user who "
        "has started it and for root only. One with --no-journal has none.",
    )
    add_master_options(parser)
    return parser


def add_master_options(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Add the options that choose one of the masters of this machine; return their group."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--journal",
        type=_journal,
        metavar="PATH",
        help="of the master (default ~/.local/state/pccl/master-PORT.journal)",
    )
    which.add_argument(
        "--port",
        type=_port,
        help=f"that it listens on, if its journal is in that place (default {MASTER_PORT_DEFAULT})",
    )
    return which


def chosen_journal(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Path:
    """Return the journal of the master that the options choose."""
    port = MASTER_PORT_DEFAULT if options.port is None else options.port
    journal: Path | None = options.journal or default_journal(os.environ, port)
    if journal is None:
        parser.error("HOME is not set: give --journal PATH")
    return journal


def _journal(text: str) -> Path:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError("the path is empty: give that of the master's journal")
    return Path(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"port is {text!r}, must be a number from 1 to {PORT_MAX}")
    return int(text)


def run_name(text: str) -> str:
    """Return the name of a run, as an argument of a command names it.

    Raises:
        argparse.ArgumentTypeError: no run can have this name.

    Example:
        >>> run_name("night")
        'night'
    """
    text = decoded(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is no UTF-8, which every name is") from None
    if not text:
        raise argparse.ArgumentTypeError("the name is empty: give that of a run")
    return text
