"""The table of all checks. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pccl_backend.command.doctor import machine_checks, package_checks, path_checks
from pccl_backend.command.doctor.facts import Facts
from pccl_backend.command.doctor.line import Line

__all__ = ["CHECKS", "Check", "examine"]


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: shown in front of its line; never changes, so that a program can compare it.
        look: decides; returns None if there is nothing to check.
        needs_url: whether it is about the path to a master.
    """

    name: str
    look: Callable[[Facts], Line | None]
    needs_url: bool = False


CHECKS = (
    Check("python", package_checks.python),
    Check("torch", package_checks.torch),
    Check("module", package_checks.modules),
    Check("installs", package_checks.installs),
    Check("libraries", package_checks.libraries),
    Check("settings", package_checks.settings),
    Check("open files", machine_checks.open_files),
    Check("congestion", machine_checks.congestion),
    Check("buffers", machine_checks.buffers),
    Check("cores", machine_checks.cores),
    Check("memory", machine_checks.memory),
    Check("disk", machine_checks.disk),
    Check("clock", machine_checks.clock),
    Check("own name", machine_checks.own_name),
    Check("addresses", machine_checks.addresses),
    Check("ports", machine_checks.ports),
    Check("provider", machine_checks.provider),
    Check("name", path_checks.name, needs_url=True),
    Check("route", path_checks.route, needs_url=True),
    Check("port", path_checks.port, needs_url=True),
    Check("master", path_checks.master, needs_url=True),
    Check("token", path_checks.token, needs_url=True),
    Check("packets", path_checks.large_packets, needs_url=True),
    Check("way back", path_checks.reachable, needs_url=True),
    Check("clocks", path_checks.clocks, needs_url=True),
)


def examine(facts: Facts) -> list[tuple[str, Line]]:
    """Return the name and the line of each check that applies.

    Example:
        >>> examine(Facts(machine=Machine(torch="2.15.0")))[0]
        ('torch', Line(level='ok', text='torch 2.15.0', next=''))
    """
    made = [check for check in CHECKS if facts.path is not None or not check.needs_url]
    lines = [(check.name, check.look(facts)) for check in made]
    return [(name, line) for name, line in lines if line is not None]
