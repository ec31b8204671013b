"""`pccl doctor`: options, output and exit codes."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from pccl_backend._distribution import NAME
from pccl_backend._settings import OpenRun, PeerSettings, printable, read_url
from pccl_backend.command.common import prepare_output, run_command, wrapped
from pccl_backend.command.doctor import machine, path
from pccl_backend.command.doctor.bounded import gathered
from pccl_backend.command.doctor.checks import CHECKS, examine
from pccl_backend.command.doctor.facts import Facts, Machine, Path
from pccl_backend.command.doctor.line import LEVELS, Line, worst
from pccl_backend.command.doctor.sharing import masked

__all__ = ["main", "page"]

SCHEMA = 1
BAD = 1
SETTINGS_S, FACTS_S = 1.0, 18.0  # twice the first and the second are 20 s: the most it takes
NAME_COLUMNS = max(len(check.name) for check in CHECKS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pccl doctor`; return 0, 1 if a line is bad, 2 on wrong usage, 130 after Ctrl-C.

    Example:
        >>> main(["--json"])
        {"schema": 1, "pccl": "0.1.0", "worst": "ok", "lines": [...]}
        0
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    found: list[tuple[str, Line]] = []

    def act() -> None:
        prepare_output()
        facts = _gather(options.url)
        found.extend(examine(facts))
        shown = _masked(found, facts) if options.share else found
        print(_json(shown) if options.json else "\n".join(page(shown)))

    ended = run_command(parser.prog, act)
    level = worst(line.level for _, line in found)
    return ended or (BAD if level == "bad" else 0)


def _gather(url: OpenRun | None) -> Facts:
    """Return the facts, those about the machine and about the path at the same time."""
    settings = gathered({"": lambda: machine.read_settings(os.environ)}, SETTINGS_S).get("")
    peer = settings.peer if settings and settings.peer else PeerSettings()
    # The path needs a port of the range for itself, so this look ends before.
    ports = gathered({"": lambda: machine.look_at_ports(peer)}, SETTINGS_S).get("")
    calls: dict[str, Callable[[], Any]] = {
        "machine": lambda: machine.gather(os.environ, settings, ports)
    }
    if url is not None:
        calls["path"] = lambda: path.gather(url.host, url.port, peer)
    found = gathered(calls, FACTS_S)
    late = None if url is None else Path(host=url.host, port=url.port)
    return Facts(machine=found.get("machine", Machine()), path=found.get("path", late))


def _masked(lines: Sequence[tuple[str, Line]], facts: Facts) -> list[tuple[str, Line]]:
    names = [] if facts.machine.own_name is None else [facts.machine.own_name.name]
    names += [] if facts.path is None else [facts.path.host]
    return masked(lines, names, os.environ.get("HOME", ""))


# --- Output ---------------------------------------------------------------------------------------


def page(lines: Sequence[tuple[str, Line]]) -> list[str]:
    """Return the lines as text of at most 80 columns.

    Example:
        >>> page([("torch", Line("ok", "torch 2.15.0"))])
        ['ok    torch       torch 2.15.0', '', '1 check: 1 ok']
    """
    shown: list[str] = []
    for name, line in lines:
        first = f"{line.level:<4}  {name:<{NAME_COLUMNS}}  "
        indent = " " * len(first)
        shown += wrapped(printable(line.text), first, indent)
        if line.next:
            shown += wrapped(printable(line.next), f"{indent}-> ", f"{indent}   ")
    counts = Counter(line.level for _, line in lines)
    total = ", ".join(f"{counts[level]} {level}" for level in LEVELS if counts[level])
    return [*shown, "", f"{len(lines)} check{'s' * (len(lines) != 1)}: {total or 'none'}"]


def _json(lines: Sequence[tuple[str, Line]]) -> str:
    return json.dumps(
        {
            "schema": SCHEMA,
            "pccl": _version(),
            "worst": worst(line.level for _, line in lines),
            "lines": [
                {"level": line.level, "name": name, "text": line.text, "next": line.next}
                for name, line in lines
            ],
        }
    )


def _version() -> str:
    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return ""


# --- Options --------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pccl doctor",
        description="Check this machine: Python, torch, pccl and its libraries, the limits and the "
        "network of the system. With a URL, check the path to that master, too: name, route, port, "
        "version, token, large packets, the way back to this machine, and the clocks. A line is "
        "ok, warn (pccl works, but less well than it can) or bad (something does not work). A warn "
        "or bad line is followed by what to do.",
        epilog="Exit status: 0: no line is bad; 1: a line is bad; 2: wrong usage. It takes at most "
        "20 seconds, and joins no run. It shows the token of PCCL_SECRET_FILE to the master, as a "
        "peer does.",
    )
    parser.add_argument(
        "url", type=_url, metavar="URL", nargs="?", help="of a run: pccl://HOST:PORT/RUN"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.add_argument(
        "--share", action="store_true", help="mask addresses and names of hosts, for a bug report"
    )
    return parser


def _url(text: str) -> OpenRun:
    try:
        return read_url(text, {})
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
