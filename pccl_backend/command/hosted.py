"""Finds the masters of this machine, also those inside a peer's process (torchrun).

A master inside a process has a socket in one of two folders (`socket_folders`), with the name
PID@HOST.sock. Its answers are those of a separate master (runs.py). A process that was killed
leaves its socket; such a file is skipped here, and the next master removes it.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pccl_backend._limits import MASTER_PORT_DEFAULT
from pccl_backend._settings import printable
from pccl_backend.command.common import CommandError, socket_folders
from pccl_backend.command.runs import MasterError, ask_at, default_journal, is_live, socket_of

__all__ = ["LocalMaster", "chosen_master", "find_masters"]

ANSWER_S = 2.0  # longest wait for the runs of one of several masters
RUNS_NAMED_MAX = 3  # for each master, in an error


@dataclass(frozen=True, kw_only=True)
class LocalMaster:
    """A master of this machine that can be asked.

    Attributes:
        socket: its socket.
        pid: the process that it is inside of; None: a separate master.
    """

    socket: Path
    pid: int | None

    @property
    def name(self) -> str:
        """The text that names it to a person, with the option that chooses it."""
        if self.pid is not None:
            return f"in process {self.pid} (--pid {self.pid})"
        return f"with the socket {self.socket} (--port {MASTER_PORT_DEFAULT})"


def find_masters(environment: Mapping[str, str]) -> list[LocalMaster]:
    """Return the masters of this user: that at the default port, then those inside processes.

    Example:
        >>> [master.pid for master in find_masters(os.environ)]
        [None, 4711]
    """
    ending = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())
    form = re.compile(rf"([0-9]+)(-[0-9]+)?@{re.escape(ending)}\.sock")
    found = []
    journal = default_journal(environment, MASTER_PORT_DEFAULT)
    if journal is not None:
        found.append(LocalMaster(socket=socket_of(journal), pid=None))
    for folder in socket_folders(environment):
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError:
            continue
        for name in names:
            if match := form.fullmatch(name):
                found.append(LocalMaster(socket=folder / name, pid=int(match[1])))
    return [master for master in found if is_live(master.socket)]


def chosen_master(masters: Sequence[LocalMaster], run: str | None) -> LocalMaster:
    """Return the only master, or the only one that has this run (None: any run) under way.

    Raises:
        CommandError: several masters remain. The message lists them with their runs.
    """
    if len(masters) == 1:
        return masters[0]
    runs = {master: _runs_of(master) for master in masters}
    fitting = [
        master
        for master, names in runs.items()
        if names is not None and (names if run is None else run in names)
    ]
    if len(fitting) == 1:
        return fitting[0]
    shown = "; ".join(f"{master.name}: {_text(runs[master])}" for master in masters)
    which = "a run, or one of them" if run is None else "one of them"
    raise CommandError(
        f"{len(masters)} masters of this user run on this machine, so name {which}: {shown}"
    )


def _runs_of(master: LocalMaster) -> list[str] | None:
    """Return the names of its runs that are not over; None if it does not answer."""
    try:
        runs = json.loads(ask_at(master.socket, {"command": "runs"}, timeout=ANSWER_S)).get("runs")
    except MasterError:
        return None
    known = [one for one in runs if isinstance(one, dict)] if isinstance(runs, list) else []
    return [str(one.get("run")) for one in known if one.get("state") != "finished"]


def _text(runs: list[str] | None) -> str:
    if runs is None:
        return "it does not answer"
    shown = ", ".join(f'run "{printable(run)}"' for run in runs[:RUNS_NAMED_MAX])
    more = len(runs) - RUNS_NAMED_MAX
    return (shown or "no run under way") + (f" and {more} more" if more > 0 else "")
