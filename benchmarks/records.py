"""What a benchmark hands on to `make bench` (bench.py): a JSON file for each that was run.

A row is a flat dataclass of the script that measures; what is the same for all rows goes into
`facts`. Figures are handed on as they were measured, one for each round: who shows them takes the
medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
RowT = TypeVar("RowT")


@dataclass(frozen=True, kw_only=True)
class Record(Generic[RowT]):
    """What one run of a script has measured.

    Attributes:
        congestion: the congestion control that it ran under.
        rounds: so many figures are behind each median.
        rows: dataclasses of the script, which knows their type.
        facts: of all rows.
    """

    congestion: str
    rounds: int
    rows: list[RowT]
    facts: dict[str, Any] = field(default_factory=dict)


def congestion_here() -> str:
    """Return the congestion control of this network namespace."""
    return CONGESTION.read_text().strip()


def add_option(parser: argparse.ArgumentParser) -> None:
    """Let a script be told where its record goes."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")


def write(record: Record[Any], path: Path | None) -> None:
    """Write a record, if somebody wants it."""
    if path is not None:
        path.write_text(json.dumps(asdict(record), indent=1) + "\n")


def read(path: Path, row: type[RowT]) -> Record[RowT]:
    """Read a record of such rows.

    Raises:
        OSError, ValueError, TypeError, KeyError: it is not there, or not one of these.
    """
    found = json.loads(path.read_text())
    return Record(
        congestion=found["congestion"],
        rounds=found["rounds"],
        rows=[row(**fields) for fields in found["rows"]],
        facts=found["facts"],
    )


def spread(seconds: Sequence[float]) -> str:
    """Return median, least and most of times: `46.5 ms (44.0-48.2)`."""
    middle = statistics.median(seconds)
    unit, scale, digits = _unit_of(middle)
    least, most = (f"{end * scale:.{digits}f}" for end in (min(seconds), max(seconds)))
    return f"{middle * scale:.{digits}f} {unit} ({least}-{most})"


def duration(seconds: float) -> str:
    """Return a time: `46.5 ms`."""
    unit, scale, digits = _unit_of(seconds)
    return f"{seconds * scale:.{digits}f} {unit}"


def _unit_of(seconds: float) -> tuple[str, float, int]:
    """Return the unit that a time is shown in, so many of it in a second, and its digits."""
    return ("s", 1.0, 2) if seconds >= 1 else ("ms", 1e3, 1) if seconds > 0.01 else ("µs", 1e6, 1)


def size_name(count: int) -> str:
    """Return 64 MiB for 67108864."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"
