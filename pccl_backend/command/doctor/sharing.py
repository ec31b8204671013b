"""Masks addresses and names of hosts in a report, so that it can be shown to strangers. Pure.

Equal addresses get equal masks, so that a reader sees which of them are the same. Loopback and
unspecified addresses stay: every machine has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from ipaddress import ip_address

from pccl_backend.command.doctor.line import Line

__all__ = ["masked"]

# Anything that may be an address; ip_address() decides.
_ADDRESS = re.compile(r"(?<![\w.:])([0-9A-Fa-f:.]*[:.][0-9A-Fa-f:.]*[0-9A-Fa-f:])(%\w+)?(?![\w:])")
_KEPT = ("localhost", "localhost.localdomain")


def masked(
    lines: Sequence[tuple[str, Line]], names: Iterable[str], home: str
) -> list[tuple[str, Line]]:
    """Return the lines with masks in the place of addresses, of names of hosts, and of HOME.

    Args:
        names: the names of hosts in the lines; those that are addresses are masked as such.
        home: the home folder, which contains the name of a user; "": unknown.

    Example:
        >>> masked([("name", Line("ok", "tokyo is 10.0.0.7"))], ["tokyo"], "")
        [('name', Line(level='ok', text='HOST-1 is ADDRESS-1', next=''))]
    """
    hosts, found = _Masks("HOST"), _Masks("ADDRESS")

    def address(match: re.Match[str]) -> str:
        try:
            parsed = ip_address(match[1])
        except ValueError:
            return match[0]
        return match[0] if parsed.is_loopback or parsed.is_unspecified else found.of(str(parsed))

    known = [one for one in names if one and one not in _KEPT and not _is_address(one)]
    known.sort(key=len, reverse=True)  # a long name may contain a short one
    replaced: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [(_ADDRESS, address)]
    if known:
        pattern = "|".join(map(re.escape, known))
        name = re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE)
        replaced.append((name, lambda match: hosts.of(match[0].lower())))

    def mask(text: str) -> str:
        if len(home) > 1:
            text = text.replace(home, "~")
        for one, by in replaced:
            text = one.sub(by, text)
        return text

    return [
        (check, replace(line, text=mask(line.text), next=mask(line.next))) for check, line in lines
    ]


class _Masks:
    """Gives the same mask to the same text."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._given: dict[str, str] = {}

    def of(self, text: str) -> str:
        return self._given.setdefault(text, f"{self._kind}-{len(self._given) + 1}")


def _is_address(text: str) -> bool:
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
