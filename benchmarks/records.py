"""The output of a benchmark for `make bench` (bench.py): a JSON file for each run.

A row is a flat dataclass of the measuring script. Values common to all rows are in `facts`. Figures
are raw, one for each round; the code that shows them computes the medians.
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
    """The figures of one run of a script.

    Attributes:
        congestion: congestion control during the run.
        rounds: number of figures behind each median.
        rows: dataclasses of the script, which knows their type.
        facts: values common to all rows.
    """

    congestion: str
    rounds: int
    rows: list[RowT]
    facts: dict[str, Any] = field(default_factory=dict)


def congestion_here() -> str:
    """Return the congestion control of this network namespace."""
    return CONGESTION.read_text().strip()


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the file of the record."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")


def write(record: Record[Any], path: Path | None) -> None:
    """Write a record if there is a path."""
    if path is not None:
        path.write_text(json.dumps(asdict(record), indent=1) + "\n")


def read(path: Path, row: type[RowT]) -> Record[RowT]:
    """Read a record with rows of this type.

    Raises:
        OSError, ValueError, TypeError, KeyError: the file is missing, or is no such record.
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
    """Return the unit for a time, its number of units per second, and the digits to show."""
    return ("s", 1.0, 2) if seconds >= 1 else ("ms", 1e3, 1) if seconds > 0.01 else ("µs", 1e6, 1)


def size_name(count: int) -> str:
    """Return a size as text, for example 64 MiB for 67108864."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"
