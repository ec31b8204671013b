"""The text of `pccl status`: a snapshot of a run as lines of at most 80 columns.

A snapshot comes from a master that may be of another version, and names come from peers. So each
field may be missing or of another type, and everything that is shown is escaped. A page for eight
members has at most 40 lines: if the findings need more room, less of the rest is shown. Nothing
here imports torch.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from pccl_backend._settings import printable
from pccl_backend.command.common import COLUMNS, NOTHING, aligned, wrapped

__all__ = ["page"]

LINES = 40  # with at most MEMBERS_OF_A_SHORT_PAGE members
MEMBERS_OF_A_SHORT_PAGE = 8
EVENTS_KEPT = 1  # the fewest that are shown if there is little room
FINDINGS_KEPT = 3  # the fewest that are shown whole
CUT = "..."  # in the place of the rest of a text
HEAD = ("rank", "name", "address", "state", "for", "activity")
TIME_IN_TEXT = re.compile(r" for [0-9.]+ (?:ms|s|min|h)\b")
NAME_COLUMNS = 16
ADDRESS_COLUMNS = 21


def page(snapshot: Mapping[str, Any]) -> list[str]:
    """Return the lines of the page.

    Example:
        >>> page({"run": "night", "findings": [{"text": "all is well", "severity": "note"}]})
        ['run night', '', 'note', '  all is well']
    """
    groups = _dicts(snapshot.get("groups"))
    findings = _findings(_dicts(snapshot.get("findings")), _count(snapshot.get("findings_more")))
    events = [_event(one) for one in _dicts(snapshot.get("events"))]
    head = _header(snapshot, groups)
    bodies = [line for group in groups for line in _group(group, len(groups) > 1)]
    if more := _count(snapshot.get("groups_more")):
        bodies += ["", f"{more} more peer groups are not shown"]
    members = sum(len(_dicts(group.get("peers"))) for group in groups)
    room = LINES + max(0, members - MEMBERS_OF_A_SHORT_PAGE) - len(head) - len(bodies)
    events = events[-max(EVENTS_KEPT, room - len(findings) - 2) :] if events else []
    tail = ["", "last events", *events] if events else []
    return [*head, *_shortened(findings, room - len(tail)), *bodies, *tail]


# --- Parts ----------------------------------------------------------------------------------------


def _header(snapshot: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> list[str]:
    first = f"run {_text(snapshot.get('run'))}"
    if len(groups) == 1:
        first += f": {_state(groups[0])}"
    if (up := _duration(snapshot.get("up_s"))) != NOTHING:
        first += f"; up {up}"
    lines = wrapped(first, "", "  ")
    return lines + (_facts(groups[0]) if len(groups) == 1 else [])


def _state(group: Mapping[str, Any]) -> str:
    return (
        f"{_text(group.get('phase'))}, epoch {_text(group.get('epoch'))}, "
        f"{_text(group.get('members'))} members, min_peers {_text(group.get('min_peers'))}"
    )


def _facts(group: Mapping[str, Any]) -> list[str]:
    """Return the lines about the shared state and the rate of a group, if it has them."""
    facts = []
    if state := _dict(group.get("shared_state")):
        facts.append(f"shared state {_text(state.get('revision'))}: {_text(state.get('hash'))}")
    if rate := _dict(group.get("rate")):
        facts.append(
            f"{_number(rate.get('operations_per_s'))} operations/s, "
            f"{_rate(rate.get('bytes_per_s'))} in the last {_duration(rate.get('over_s'))}"
        )
    return [line for fact in facts for line in wrapped(fact, "  ", "  ")]


def _findings(findings: Sequence[Mapping[str, Any]], more: int) -> list[list[str]]:
    """Return the lines of each finding, and of the number of those that the master left out."""
    shown = []
    for one in findings:
        whom = one.get("whom")
        names = ", ".join(map(_text, whom)) if isinstance(whom, list) else ""
        code = f" {_text(one['code'])}" if "code" in one else ""
        title = f"{_text(one.get('severity'))}{code}" + (f": {names}" if names else "")
        lines = ["", *wrapped(title, "", "  "), *wrapped(_text(one.get("text")), "  ", "  ")]
        if "next" in one:
            lines += wrapped(_text(one["next"]), "  -> ", "     ")
        shown.append(lines)
    if more:
        shown.append(["", f"{more} more findings are not shown"])
    return shown


def _shortened(findings: Sequence[list[str]], room: int) -> list[str]:
    """Return the lines of the findings that fit; at least the first one is whole."""
    lines: list[str] = []
    for number, one in enumerate(findings):
        if number > 0 and len(lines) + len(one) > room - (number + 1 < len(findings)) * 2:
            left = len(findings) - number
            return [*lines, "", f"{left} more findings: `pccl status --json` shows them"]
        lines += one
    return lines


def _group(group: Mapping[str, Any], is_titled: bool) -> list[str]:
    lines: list[str] = []
    if is_titled:
        title = f"peer group {_text(group.get('group'))}: {_state(group)}"
        lines += ["", *wrapped(title, "", "  ")]
        lines += _facts(group)
    if peers := _dicts(group.get("peers")):
        lines += ["", *(_cut(line) for line in aligned([HEAD, *map(_peer, peers)]))]
    if hops := [_hop(one) for one in _dicts(group.get("ring"))]:
        lines += ["", *wrapped("ring  " + ", ".join(hops), "", "      ")]
    if calls := [_call(one) for one in _dicts(group.get("calls"))]:
        lines += ["", *(_cut(line) for line in calls)]
    return lines


def _peer(peer: Mapping[str, Any]) -> tuple[str, ...]:
    name = _cut(_text(peer.get("name") or peer.get("peer")), NAME_COLUMNS)
    address = _cut(_text(peer.get("address")), ADDRESS_COLUMNS)
    state, since = _text(peer.get("state")), _duration(peer.get("since_s"))
    doing = TIME_IN_TEXT.sub("", _text(peer.get("doing")), count=1)  # the column has the time
    return (_text(peer.get("rank")), name, address, state, since, doing)


def _hop(hop: Mapping[str, Any]) -> str:
    """Return a link of the ring, with its rate and its round trip if they are known."""
    facts = [_rate(hop.get("bytes_per_s")), _milliseconds(hop.get("round_trip_s"))]
    known = " ".join(fact for fact in facts if fact != NOTHING)
    ends = f"{_text(hop.get('from'))}->{_text(hop.get('to'))}"
    return f"{ends} {known}" if known else ends


def _call(call: Mapping[str, Any]) -> str:
    missing = call.get("missing")
    ranks = ", ".join(map(_text, missing)) if isinstance(missing, list) else ""
    absent = f", without ranks {ranks}" if ranks else ""
    return f"waits {_duration(call.get('since_s'))}{absent}: {_text(call.get('call'))}"


def _event(event: Mapping[str, Any]) -> str:
    at = _text(event.get("at"))
    time = at[11:19] if len(at) >= 19 else at
    return _cut(f"{time} {_text(event.get('level'))}: {_text(event.get('text'))}")


# --- Values ---------------------------------------------------------------------------------------


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _dict(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) and value else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _text(value: Any) -> str:
    return NOTHING if value is None else printable(str(value))


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def _number(value: Any) -> str:
    if not _is_number(value):
        return NOTHING
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _duration(value: Any) -> str:
    """Return seconds in the form of the texts of the master: "12 s", "2.5 h"."""
    if not _is_number(value):
        return NOTHING
    if value < 1:
        return f"{value * 1e3:.4g} ms"
    scale, unit = (3600, "h") if value >= 36000 else (60, "min") if value >= 600 else (1, "s")
    return f"{value / scale:.1f}".removesuffix(".0") + f" {unit}"


def _milliseconds(value: Any) -> str:
    return f"{value * 1e3:.3g} ms" if _is_number(value) else NOTHING


def _rate(value: Any) -> str:
    """Return bytes per second in the form of the texts of the master: "12.3 MB/s"."""
    if not _is_number(value):
        return NOTHING
    units = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s"))
    scale, unit = next(((scale, unit) for scale, unit in units if value >= scale), units[-1])
    count = value / scale
    return (f"{count:.3g}" if count < 100 else f"{count:.0f}") + f" {unit}"


# --- Layout ---------------------------------------------------------------------------------------


def _cut(text: str, columns: int = COLUMNS) -> str:
    """Return the text, or the start of it and "..." if it takes more columns."""
    if sum(map(_width, text)) <= columns:
        return text
    room, end = columns - len(CUT), 0
    while _width(text[end]) <= room:
        room -= _width(text[end])
        end += 1
    return text[:end] + CUT


def _width(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
