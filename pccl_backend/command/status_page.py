"""The text of `pccl status` and `pccl top`: a snapshot of a run as lines that fit the columns.

A snapshot comes from a master that may be of another version, and names come from peers. So each
field may be missing or of another type, and everything that is shown is escaped. A page of
`pccl status` for eight members has at most 40 lines: if the findings need more room, less of the
rest is shown. `pccl top` shows everything, because it scrolls. Nothing here imports torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from pccl_backend._settings import printable
from pccl_backend.command.common import COLUMNS, NOTHING, aligned, cut, wrapped

__all__ = ["Line", "Tone", "duration", "page", "page_lines"]

LINES = 40  # with at most MEMBERS_OF_A_SHORT_PAGE members
MEMBERS_OF_A_SHORT_PAGE = 8
EVENTS_KEPT = 1  # the fewest that are shown if there is little room
ROOM_OF_EVENTS = 2 + EVENTS_KEPT + 2  # and of the line about more findings
HEAD = ("rank", "name", "address", "state", "for", "activity")
TIME_HEAD = ("rank", "computes", "waits", "transfers", "joint", "sends", "reports")
ADDRESS_AT = HEAD.index("address")
NARROW = 64  # columns; a table with less room has no addresses, so that states and times are whole
LOST_STATES = ("away", "silent")  # the master does not hear from such a peer
TIME_IN_TEXT = re.compile(r" for [0-9.]+ (?:ms|s|min|h)\b")
NAME_COLUMNS = 16
NAME_COLUMNS_IF_NARROW = 10
ADDRESS_COLUMNS = 21


class Tone(Enum):
    """The meaning of a line. The text says it, too; `pccl top` adds a colour."""

    PLAIN = "plain"
    NOTE = "note"  # the title of a finding of this severity
    WARNING = "warning"
    ERROR = "error"
    LOST = "lost"  # a peer that the master does not hear from
    STALE = "stale"  # a line of an earlier page


class Line(NamedTuple):
    """A line of the page."""

    text: str
    tone: Tone = Tone.PLAIN


class _Block(NamedTuple):
    """A text without its division into lines."""

    text: str
    first: str = ""  # indent of the first line
    others: str = "  "  # indent of the other lines
    tone: Tone = Tone.PLAIN  # of all lines
    is_row: bool = False  # it is one line, which is cut if it is too long


BLANK = _Block("")


def page(snapshot: Mapping[str, Any]) -> list[str]:
    """Return the lines of `pccl status`: at most 80 columns, and 40 lines for eight members.

    Example:
        >>> page({"run": "night", "findings": [{"text": "all is well", "severity": "note"}]})
        ['run night', '', 'note', '  all is well']
    """
    return [line.text for line in page_lines(snapshot, columns=COLUMNS, is_short=True)]


def page_lines(snapshot: Mapping[str, Any], *, columns: int, is_short: bool) -> list[Line]:
    """Return the lines of the page.

    Args:
        snapshot: an answer of the master.
        columns: the most columns of a line, at least 40.
        is_short: whether findings and events are left out that need more room than LINES.

    Example:
        >>> page_lines({"run": "night"}, columns=40, is_short=False)
        [Line(text='run night', tone=<Tone.PLAIN: 'plain'>)]
    """
    groups = _dicts(snapshot.get("groups"))
    reported = _findings(_dicts(snapshot.get("findings")), _count(snapshot.get("findings_more")))
    findings = [_lines(one, columns) for one in reported]
    events = _lines(map(_event, _dicts(snapshot.get("events"))), columns)
    head = _lines(_header(snapshot, groups), columns)
    members = sum(len(_dicts(group.get("peers"))) for group in groups)
    most = LINES + max(0, members - MEMBERS_OF_A_SHORT_PAGE) - len(head)
    bodies = _bodies(snapshot, groups, columns, has_times=True)
    needed = len(findings[0]) if findings else 0
    if is_short and most < len(bodies) + needed + ROOM_OF_EVENTS:
        bodies = _bodies(snapshot, groups, columns, has_times=False)
    room = most - len(bodies)
    if is_short and events:
        events = events[-max(EVENTS_KEPT, room - len(findings) - 2) :]
    tail = [Line(""), Line("last events"), *events] if events else []
    shown = [line for one in findings for line in one]
    if is_short:
        shown = _shortened(findings, room - len(tail))
    return [*head, *shown, *bodies, *tail]


# --- Parts ----------------------------------------------------------------------------------------


def _bodies(
    snapshot: Mapping[str, Any],
    groups: Sequence[Mapping[str, Any]],
    columns: int,
    *,
    has_times: bool,
) -> list[Line]:
    """Return the lines of the groups."""
    blocks: list[_Block] = []
    for group in groups:
        blocks += _group(group, len(groups) > 1, columns, has_times=has_times)
    if more := _count(snapshot.get("groups_more")):
        blocks += [BLANK, _Block(f"{more} more peer groups are not shown")]
    return _lines(blocks, columns)


def _header(snapshot: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> list[_Block]:
    first = f"run {_text(snapshot.get('run'))}"
    if len(groups) == 1:
        first += f": {_state(groups[0])}"
    if (up := duration(snapshot.get("up_s"))) != NOTHING:
        first += f"; up {up}"
    return [_Block(first), *(_facts(groups[0]) if len(groups) == 1 else [])]


def _state(group: Mapping[str, Any]) -> str:
    members = group.get("members")
    return (
        f"{_text(group.get('phase'))}, epoch {_text(group.get('epoch'))}, "
        f"{_text(members)} member{'' if members == 1 else 's'}, "
        f"min_peers {_text(group.get('min_peers'))}"
    )


def _facts(group: Mapping[str, Any]) -> list[_Block]:
    """Return the shared state and the rate of a group, if it has them."""
    facts = []
    if state := _dict(group.get("shared_state")):
        facts.append(f"shared state {_text(state.get('revision'))}: {_text(state.get('hash'))}")
    if rate := _dict(group.get("rate")):
        facts.append(
            f"{_number(rate.get('operations_per_s'))} operations/s, "
            f"{_rate(rate.get('bytes_per_s'))} in the last {duration(rate.get('over_s'))}"
        )
    return [_Block(fact, "  ") for fact in facts]


def _findings(findings: Sequence[Mapping[str, Any]], more: int) -> list[list[_Block]]:
    """Return the texts of each finding, and the number of those that the master left out."""
    shown = []
    for one in findings:
        whom = one.get("whom")
        names = ", ".join(map(_text, whom)) if isinstance(whom, list) else ""
        code = f" {_text(one['code'])}" if "code" in one else ""
        title = f"{_text(one.get('severity'))}{code}" + (f": {names}" if names else "")
        tone = _tone_of(one.get("severity"))
        blocks = [BLANK, _Block(title, tone=tone), _Block(_text(one.get("text")), "  ")]
        if "next" in one:
            blocks.append(_Block(_text(one["next"]), "  -> ", "     "))
        shown.append(blocks)
    if more:
        shown.append([BLANK, _Block(f"{more} more findings are not shown")])
    return shown


def _tone_of(severity: Any) -> Tone:
    tones = (Tone.NOTE, Tone.WARNING, Tone.ERROR)
    return next((tone for tone in tones if tone.value == severity), Tone.PLAIN)


def _shortened(findings: Sequence[list[Line]], room: int) -> list[Line]:
    """Return the lines of the findings that fit; at least the first one is whole."""
    lines: list[Line] = []
    for number, one in enumerate(findings):
        if number > 0 and len(lines) + len(one) > room - (number + 1 < len(findings)) * 2:
            left = len(findings) - number
            rest = f"{left} more findings: `pccl status --json` shows them"
            return [*lines, Line(""), Line(rest)]
        lines += one
    return lines


def _group(
    group: Mapping[str, Any], is_titled: bool, columns: int, *, has_times: bool
) -> list[_Block]:
    blocks: list[_Block] = []
    if is_titled:
        title = f"peer group {_text(group.get('group'))}: {_state(group)}"
        blocks += [BLANK, _Block(title), *_facts(group)]
    if peers := _dicts(group.get("peers")):
        blocks += [BLANK, *_peers(peers, columns)]
        blocks += _times(peers) if has_times else []
    if hops := [_hop(one) for one in _dicts(group.get("ring"))]:
        blocks += [BLANK, _Block("ring  " + ", ".join(hops), others="      ")]
    if calls := [_call(one) for one in _dicts(group.get("calls"))]:
        blocks += [BLANK, *calls]
    return blocks


def _peers(peers: Sequence[Mapping[str, Any]], columns: int) -> list[_Block]:
    """Return the rows of the table."""
    is_narrow = columns < NARROW
    name_columns = NAME_COLUMNS_IF_NARROW if is_narrow else NAME_COLUMNS
    rows = [HEAD, *(_peer(one, name_columns) for one in peers)]
    if is_narrow:
        rows = [(*row[:ADDRESS_AT], *row[ADDRESS_AT + 1 :]) for row in rows]
    tones = [
        Tone.PLAIN,
        *(Tone.LOST if peer.get("state") in LOST_STATES else Tone.PLAIN for peer in peers),
    ]
    texts = aligned(rows)
    return [_Block(text, tone=tone, is_row=True) for text, tone in zip(texts, tones, strict=True)]


def _peer(peer: Mapping[str, Any], name_columns: int) -> tuple[str, ...]:
    name = cut(_text(peer.get("name") or peer.get("peer")), name_columns)
    address = cut(_text(peer.get("address")), ADDRESS_COLUMNS)
    state, since = _text(peer.get("state")), duration(peer.get("since_s"))
    doing = TIME_IN_TEXT.sub("", _text(peer.get("doing")), count=1)  # the column has the time
    return (_text(peer.get("rank")), name, address, state, since, doing)


def _times(peers: Sequence[Mapping[str, Any]]) -> list[_Block]:
    """Return a table of the members that have reported their numbers; empty if there are none."""
    rows = [
        _time(_text(peer.get("rank")), telemetry)
        for peer in peers
        if (telemetry := _dict(peer.get("telemetry"))) is not None
    ]
    if not rows:
        return []
    return [BLANK, *(_Block(text, is_row=True) for text in aligned([TIME_HEAD, *rows]))]


def _time(rank: str, telemetry: Mapping[str, Any]) -> tuple[str, ...]:
    shares = [_share(telemetry.get(name)) for name in ("computing", "waiting", "transferring")]
    if (awaited := telemetry.get("waits_for")) is not None and shares[1] not in ("0 %", NOTHING):
        name, _, _ = _text(awaited).partition(" (peer ")
        shares[1] += f" for {cut(name, NAME_COLUMNS)}"
    scalars = _dict(telemetry.get("scalars")) or {}
    numbers = ", ".join(f"{_text(name)} {_scalar(value)}" for name, value in scalars.items())
    joint = _share(telemetry.get("joint"))
    return (rank, *shares, joint, _rate(telemetry.get("sent_per_s")), numbers or NOTHING)


def _hop(hop: Mapping[str, Any]) -> str:
    """Return a link of the ring, with its rate and its round trip if they are known."""
    facts = [_rate(hop.get("bytes_per_s")), _milliseconds(hop.get("round_trip_s"))]
    known = " ".join(fact for fact in facts if fact != NOTHING)
    ends = f"{_text(hop.get('from'))}->{_text(hop.get('to'))}"
    return f"{ends} {known}" if known else ends


def _call(call: Mapping[str, Any]) -> _Block:
    missing = call.get("missing")
    ranks = ", ".join(map(_text, missing)) if isinstance(missing, list) else ""
    absent = f", without {'ranks' if ',' in ranks else 'rank'} {ranks}" if ranks else ""
    text = f"waits {duration(call.get('since_s'))}{absent}: {_text(call.get('call'))}"
    return _Block(text, is_row=True)


def _event(event: Mapping[str, Any]) -> _Block:
    at = _text(event.get("at"))
    time = at[11:19] if len(at) >= 19 else at
    return _Block(f"{time} {_text(event.get('level'))}: {_text(event.get('text'))}", is_row=True)


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


def _share(value: Any) -> str:
    return f"{100 * value:.0f} %" if _is_number(value) else NOTHING


def _scalar(value: Any) -> str:
    """Return a number of the application, which may be negative."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.4g}" if is_number and math.isfinite(value) else NOTHING


def _number(value: Any) -> str:
    if not _is_number(value):
        return NOTHING
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def duration(value: Any) -> str:
    """Return seconds in the form of the texts of the master.

    Example:
        >>> duration(12.0), duration(45000)
        ('12 s', '12.5 h')
    """
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


def _lines(blocks: Iterable[_Block], columns: int) -> list[Line]:
    return [
        Line(text, block.tone)
        for block in blocks
        for text in (
            [cut(block.text, columns)]
            if block.is_row
            else wrapped(block.text, block.first, block.others, columns)
        )
    ]
