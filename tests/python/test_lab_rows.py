"""Rows of the benchmarks in an emulated network: goals of formats, and the load of the machine."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "wan"))

import all_reduce
import quantized
from load import Loaded


def format_row(*, faster: float, scenario: str = "atlantic") -> quantized.Row:
    wall = {"float32": [4.0, 4.4, 5.0], "8bit": [4.4 / faster] * 3}
    first = {name: [9.0, 6.0] for name in wall}
    goals = quantized.GOALS.get(scenario, {})
    return quantized.Row(
        scenario=scenario, hosts=2, bytes=1 << 28, goals=goals, wall=wall, first=first
    )


def test_goals_of_formats() -> None:
    assert format_row(faster=4.0).missed() == []
    assert format_row(faster=3.1).missed() == ["8bit"]
    assert format_row(faster=3.1, scenario="both").missed() == []
    assert format_row(faster=0.5, scenario="home").missed() == [], "it has no goals"
    shown = "| 8bit | 9.00 s | 6.00 s | 1.10 s (1.10-1.10) | 4.00 | 3.2 |"
    assert shown in quantized.lines(format_row(faster=4.0)).splitlines()
    assert set(all_reduce.FORMATS) == quantized.GOALS["atlantic"].keys()


def test_a_row_of_busy_cores_is_open() -> None:
    row = Loaded(network=[0.2], cores={"ring": [0.5, 0.6, 0.9], "direct": [0.1]})
    assert row.enough_cores
    assert row.load() == "0.20 of a core; cores 0.60 busy"
    row.cores["direct"] = [0.5, 0.61, 0.9]
    assert not row.enough_cores
    assert row.load() == "0.20 of a core; cores 0.61 busy, **open**: above 0.6"
