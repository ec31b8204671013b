"""The verdict on a stress run: compare the log lines of all workers, and compute the figures."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

# It is a hang if nothing is agreed on for this long while there are peers that could agree. The
# longest regular wait is a few peer timeouts in a row.
HANG_S = 30.0


@dataclass
class Event:
    """An action of the orchestrator."""

    at: float
    kind: str
    who: str


@dataclass
class Report:
    """The verdict on a run."""

    seconds: float
    events: list[Event]
    iterations: int = 0
    operations: int = 0
    kept: int = 0
    revision: int = 0
    steps: int = 0  # outer steps of trainers
    violations: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    rejoined: int = 0
    growth: str = ""

    @property
    def good(self) -> bool:
        return not self.violations and not self.hangs and self.iterations > 0

    def text(self) -> str:
        kinds = Counter(event.kind for event in self.events)
        counted = ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))
        lines = [
            f"{self.seconds:.0f} s; events: {counted or 'none'}",
            f"{self.iterations} iterations by all workers, {self.operations} operations compared "
            f"({self.kept} of them kept in part over a loss), state advanced to revision "
            f"{self.revision}; {self.rejoined} came back after they "
            "had been given up",
        ]
        if self.steps:
            lines.append(f"{self.steps} outer steps")
        for kind, times in sorted(self.recoveries.items()):
            lines.append(
                f"from {kind} to the next agreed state: p50 {_percentile(times, 50):.2f} s, "
                f"p99 {_percentile(times, 99):.2f} s"
            )
        lines.append(self.growth or "too short to say whether memory grows")
        lines += [f"VIOLATION {text}" for text in self.violations[:20]]
        lines += [f"HANG {text}" for text in self.hangs[:20]]
        lines.append(f"{len(self.violations)} violations, {len(self.hangs)} hangs")
        return "\n".join(lines)


def read(logs: list[Path]) -> dict[str, list[dict[str, Any]]]:
    """Read the log lines of each worker; an incomplete last line, cut off by a kill, is skipped."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for log in logs:
        if not log.exists():  # killed before it wrote anything
            continue
        whole = [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        lines[log.name] = [json.loads(line) for line in whole]
    return lines


def judge(lines: dict[str, list[dict[str, Any]]], events: list[Event], end: float) -> Report:
    """Compare the lines of all workers."""
    report = Report(end - events[0].at if events else 0.0, events)
    states: dict[str, tuple[str, str]] = {}
    models: dict[str, tuple[str, str]] = {}
    outcomes: dict[str, tuple[str, str]] = {}
    agreed: list[float] = []
    kept: set[str] = set()
    for name, said in lines.items():
        revision, steps = -1, None
        for line in said:
            if "violation" in line:
                report.violations.append(f"{name}: {line['violation']}")
            if "out" in line:
                revision, steps = -1, None  # it starts anew
                report.rejoined += 1
            if "iterated" in line:
                report.iterations += 1
            if "stepped" in line:
                report.iterations += 1
                if steps not in (None, line["stepped"] - 1):
                    report.violations.append(
                        f"{name}: outer step {line['stepped']} came after {steps}"
                    )
                steps = line["stepped"]
                report.steps = max(report.steps, steps)
            if "agreed" in line:
                agreed.append(line["at"])
                if line["agreed"] < revision:
                    report.violations.append(
                        f"P6 {name}: revision {line['agreed']} was agreed on after {revision}"
                    )
                revision = line["agreed"]
                report.revision = max(report.revision, revision)
                _compare(report, states, f"state of revision {revision}", name, line["digest"])
            if "held" in line:
                _compare(report, models, f"model after step {line['held']}", name, line["digest"])
            if "op" in line:
                _compare(report, outcomes, f"operation {line['op']}", name, line["outcome"])
                if line.get("kept"):
                    kept.add(line["op"])
    report.operations = len(outcomes)
    report.kept = len(kept)
    agreed.sort()
    _find_hangs(report, agreed, end)
    _time_recoveries(report, agreed)
    _measure_growth(report, lines)
    return report


def _compare(
    report: Report, known: dict[str, tuple[str, str]], thing: str, who: str, what: str
) -> None:
    first, value = known.setdefault(thing, (who, what))
    if value != what:
        report.violations.append(f"P1/P3 {thing}: {first} saw {value}, {who} saw {what}")


def _find_hangs(report: Report, agreed: list[float], end: float) -> None:
    start = report.events[0].at if report.events else end
    moments = [start, *(at for at in agreed if at > start), end]
    for before, after in pairwise(moments):
        if after - before > HANG_S:
            report.hangs.append(f"nothing was agreed on for {after - before:.0f} s")


def _time_recoveries(report: Report, agreed: list[float]) -> None:
    times: dict[str, list[float]] = {}
    at = 0
    for event in report.events:
        while at < len(agreed) and agreed[at] <= event.at:
            at += 1
        if at < len(agreed):
            times.setdefault(event.kind, []).append(agreed[at] - event.at)
    report.recoveries = times


def _measure_growth(report: Report, lines: dict[str, list[dict[str, Any]]]) -> None:
    eldest = max(lines, key=lambda name: len(lines[name]), default=None)
    if eldest is None:
        return
    usage = [line["usage"] for line in lines[eldest] if "usage" in line]
    quarter = len(usage) // 4
    if quarter < 3:
        return
    first, last = usage[quarter : 2 * quarter], usage[-quarter:]  # the first quarter is the warm-up
    # The pool keeps memory of the last operations, within bounds of its own. That is no leak.
    for one in usage:
        one["own"] = max(one["rss"] - one["held"], 0)
    mib = 1 << 20
    figures = []
    for name, unit, slack in (
        ("rss", mib, None),
        ("held", mib, None),
        ("own", mib, 16),
        ("descriptors", 1, 8),
        ("threads", 1, 8),
    ):
        a, b = (median(one[name] for one in part) / unit for part in (first, last))
        figures.append(f"{name} {a:.0f} -> {b:.0f}{' MiB' if unit > 1 else ''}")
        if slack is not None and b > a * 1.2 + slack:
            report.violations.append(f"{eldest}: {figures[-1]}: it leaks")
    report.growth = f"the eldest worker ({eldest}), second quarter to last: {', '.join(figures)}"


def _percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
