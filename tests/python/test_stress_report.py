"""The verdict on a stress run finds each fault, in logs that are made up here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "stress"))

import report

Lines = list[dict[str, Any]]


def trained(*steps: int, digest: str = "a") -> Lines:
    lines: Lines = []
    for step in steps:
        lines.append({"at": float(step), "agreed": step, "digest": f"{digest} {step}"})
        lines.append({"at": float(step), "stepped": step})
        lines.append({"at": float(step), "held": step, "digest": f"{digest} {step}"})
    return lines


def verdict(*logs: Lines) -> report.Report:
    named = {f"worker{number:04d}": log for number, log in enumerate(logs)}
    return report.judge(named, [report.Event(0.0, "start", "worker0000")], 9.0)


def test_a_run_in_which_all_agree_is_good() -> None:
    again = [*trained(1, 2), {"at": 2.5, "out": "KickedError"}, *trained(5, 6)]
    good = verdict(trained(1, 2, 3, 4, 5, 6), trained(3, 4), again)
    assert good.good, good.text()
    assert (good.steps, good.rejoined) == (6, 1)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (trained(3, 4, digest="b"), "state of revision 3: worker0000 saw a 3, worker0001 saw b 3"),
        (trained(3, 5), "outer step 5 came after 3"),
        (trained(3, 3), "outer step 3 came after 3"),
        (trained(3, 2), "revision 2 was agreed on after 3"),
        (
            [{"at": 1.0, "held": 3, "digest": "b"}],
            "model after step 3: worker0000 saw a 3, worker0001 saw b",
        ),
        ([{"at": 1.0, "violation": "P2"}], "worker0001: P2"),
    ],
)
def test_what_breaks_a_promise_is_found(log: Lines, says: str) -> None:
    bad = verdict(trained(1, 2, 3, 4, 5, 6), log)
    assert not bad.good
    assert any(says in text for text in bad.violations), bad.text()


def test_a_hang_is_found() -> None:
    lines = {"worker0000": trained(1, 2)}
    bad = report.judge(lines, [report.Event(0.0, "start", "worker0000")], 60.0)
    assert bad.hangs == ["nothing was agreed on for 58 s"]
