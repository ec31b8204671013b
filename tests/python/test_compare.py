"""`make compare`: its rule for a slower build, and its message if nothing can be compared.

Nothing is measured or built here: times are invented, and fleets return the required ones.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import builds
import compare
import names
import verdict
from verdict import Figure, Pair, Verdict

import pccl_backend as pccl


def pairs_of(ratios: Sequence[float], base: float = 1.0) -> list[Pair]:
    return [Pair(base=Figure(wall=base), new=Figure(wall=base * ratio)) for ratio in ratios]


def noisy(ratio: float, count: int, spread: float, seed: int = 7) -> list[Pair]:
    """Return pairs of times with random noise in both."""
    drawn = random.Random(seed)

    def time_of(wall: float) -> Figure:
        return Figure(wall=wall * drawn.uniform(1, 1 + spread))

    return [Pair(base=time_of(1.0), new=time_of(ratio)) for _ in range(count)]


# ---- The rule ------------------------------------------------------------------------------------


def test_equal_times_are_no_slower() -> None:
    found = verdict.compare(pairs_of([1.0] * 15))
    assert (found.ratio, found.low, found.high) == (1.0, 1.0, 1.0)
    assert not found.slower
    assert not found.faster


def test_ratio_is_the_median_of_pairs_not_the_ratio_of_medians() -> None:
    # The machine was ten times slower for a while, for both times of a pair.
    pairs = pairs_of([1.1] * 8) + pairs_of([1.1] * 7, base=10.0)
    found = verdict.compare(pairs)
    assert found.ratio == pytest.approx(1.1)
    assert found.base == 1.0
    assert found.slower


def test_same_times_give_the_same_interval() -> None:
    pairs = noisy(1.02, 15, 0.3)
    assert verdict.compare(pairs) == verdict.compare(pairs)


def test_interval_lies_around_the_median_and_shrinks_with_more_pairs() -> None:
    few, many = (verdict.compare(noisy(1.0, count, 0.3)) for count in (15, 150))
    for found in (few, many):
        assert found.low <= found.ratio <= found.high
    assert many.high - many.low < few.high - few.low


@pytest.mark.parametrize(
    ("ratios", "slower"),
    [
        pytest.param([1.10] * 15, True, id="clearly"),
        pytest.param([1.05] * 15, False, id="at the bound"),
        pytest.param([1.04] * 15, False, id="surely, but by little"),
        pytest.param([0.9] * 6 + [1.1] * 9, False, id="by much, but not surely"),
        pytest.param([1.0] * 12 + [3.0] * 3, False, id="a few pairs disturbed"),
        pytest.param([1.1] * 12 + [0.3] * 3, True, id="a few pairs disturbed the other way"),
    ],
)
def test_slower(ratios: list[float], slower: bool) -> None:
    assert verdict.compare(pairs_of(ratios)).slower is slower


def test_faster() -> None:
    assert verdict.compare(pairs_of([0.9] * 15)).faster
    assert not verdict.compare(pairs_of([0.97] * 15)).faster


def test_ten_per_cent_are_seen_through_noise_and_none_are_not() -> None:
    seeds = range(40)
    assert all(verdict.compare(noisy(1.1, 30, 0.1, seed)).slower for seed in seeds)
    assert not any(verdict.compare(noisy(1.0, 30, 0.1, seed)).slower for seed in seeds)


def test_no_pairs_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="no pair"):
        verdict.compare([])
    assert not verdict.is_outlier([])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param([1.0] * 15, [], Verdict.NOT_SLOWER, id="never"),
        pytest.param([0.8] * 15, [], Verdict.FASTER, id="faster"),
        pytest.param([1.2] * 15, [1.2] * 30, Verdict.SLOWER, id="twice"),
        pytest.param([1.2] * 15, [1.0] * 30, Verdict.NOT_SLOWER, id="once"),
        pytest.param([1.2] * 15, [1.2] * 29, Verdict.NOT_REPEATED, id="repeated too little"),
        pytest.param([1.2] * 14, [], Verdict.TOO_FEW, id="measured too little"),
        pytest.param([], [], Verdict.TOO_FEW, id="not measured"),
    ],
)
def test_verdict(first: list[float], second: list[float], expected: Verdict) -> None:
    found = verdict.judge(pairs_of(first), pairs_of(second), pairs_min=15, repeated_min=30)
    assert found is expected


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([Verdict.NOT_SLOWER, Verdict.FASTER], 0),
        ([Verdict.NOT_SLOWER, Verdict.SLOWER, Verdict.TOO_FEW], 1),
        ([Verdict.NOT_SLOWER, Verdict.TOO_FEW], 3),
        ([Verdict.NOT_REPEATED], 3),
    ],
)
def test_status(verdicts: list[Verdict], status: int) -> None:
    assert compare.status_of(verdicts) == status


# ---- Measuring -----------------------------------------------------------------------------------


class Told:
    """A fleet with rounds of the duration in the name of its build."""

    def __init__(self, build: Path, rounds: list[str]) -> None:
        self._wall = float(build.name)
        self._rounds = rounds

    def round(self, step: str) -> dict[str, Figure]:
        self._rounds.append(f"{step} {self._wall:g}")
        return {f"{step}, world 2": Figure(wall=self._wall, cpu=2.0)}

    def close(self) -> None:
        self._rounds.append("end")


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    monkeypatch.setattr(compare.Suite, "start", lambda _, build: Told(build, made))
    return made


SUITE = compare.Suite(world=2, steps=("64 MiB", "1 KiB"))


def both(new: str, seconds: float = 60.0) -> compare.Builds:
    return compare.Builds(
        base=Path("1.0"), new=Path(new), deadline=time.monotonic() + seconds, row_seconds=0.0
    )


def test_builds_take_turns_and_swap(rounds: list[str]) -> None:
    seen = compare.measure(SUITE, 3, both("2.0"))
    assert {row: len(pairs) for row, pairs in seen.items()} == {
        "64 MiB, world 2": 3,
        "1 KiB, world 2": 3,
    }
    ahead, swapped = ["1", "2"], ["2", "1"]
    of_start = {0: ahead, 1: swapped, 2: ahead}
    expected: list[str] = []
    for order in of_start.values():  # each start warms up and makes one pair per step
        expected += [f"{step} {name}" for step in SUITE.steps for name in order * 2]
        expected += ["end", "end"]
    assert rounds == expected


def test_short_rounds_are_made_more_often(rounds: list[str]) -> None:
    seen = compare.measure(SUITE, 3, replace(both("1.0"), row_seconds=60.0))
    assert [len(pairs) for pairs in seen.values()] == [3 * compare.MORE] * 2


@pytest.mark.parametrize(("pairs", "expected"), [(15, [5, 5, 5]), (16, [6, 5, 5]), (2, [1, 1])])
def test_pairs_are_shared_out(pairs: int, expected: list[int]) -> None:
    assert compare.shares(pairs) == expected


@pytest.mark.parametrize(("new", "status"), [("1.0", 0), ("1.2", 1)])
def test_outliers_are_repeated_alone(
    new: str, status: int, rounds: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    seen = compare.measure(SUITE, 15, both(new))
    rounds.clear()
    repeated = compare.repeat_outliers(SUITE, seen, both(new))
    assert [len(pairs) for pairs in repeated.values()] == [30] * (2 * status)
    assert compare.report([SUITE], seen, repeated, 15) == status
    out = capsys.readouterr().out
    assert ("No row is slower (2 rows)" in out) is (status == 0)
    if status == 1:
        assert "| 64 MiB, world 2 | 30 | 1.00 s | 1.20 s | 1.200 | 1.200-1.200 | 2.00 |" in out
        assert "SLOWER by more than 5%, twice: 64 MiB, world 2; 1 KiB, world 2" in out


def test_too_little_time_is_no_verdict(
    rounds: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    seen = compare.measure(SUITE, 15, both("1.0", seconds=-1.0))
    assert rounds == []
    assert compare.report([SUITE], seen, {}, 15) == 3
    assert "the time was too short: 64 MiB, world 2; 1 KiB, world 2" in capsys.readouterr().out


def test_rows_are_those_that_are_asked_for() -> None:
    suites = compare.suites_of(["256 MiB", *compare.CALLS_COMPARED], [2, 8])
    assert [(suite.world, suite.steps) for suite in suites] == [
        (2, ("256 MiB",)),
        (0, (compare.CALLS,)),
        (0, (compare.DDP_STEP,)),
    ]
    everything = compare.suites_of(
        [*(case.name for case in compare.CASES), *compare.CALLS_COMPARED], [2, 4]
    )
    rows = [row for suite in everything for step in suite.steps for row in suite.rows(step)]
    assert len(rows) == len(set(rows))


# ---- Builds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revision", "says"),
    [
        ("", "which revision"),
        ("no-such-branch", "no revision 'no-such-branch'"),
        ("--all", "no revision '--all'"),
    ],
)
def test_unknown_revision_is_named(
    revision: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(builds.BuildError, match=says):
        builds.resolve(revision)
    monkeypatch.setattr(sys, "argv", ["compare.py", "--", revision])
    assert compare.main() == 2
    assert says in capsys.readouterr().err


def test_rank_that_ends_is_not_a_slower_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(given: object) -> int:
        raise SystemExit("a process ended with -9")

    monkeypatch.setattr(compare, "compare_builds", ended)
    monkeypatch.setattr(sys, "argv", ["compare.py", "HEAD", "--folders", "base", "new"])
    assert compare.main() == 2
    assert "Nothing is compared: a process ended with -9" in capsys.readouterr().err


def test_choices_of_the_working_tree_are_read(tmp_path: Path) -> None:
    cache = tmp_path / "CMakeCache.txt"
    assert builds.read_choices(cache) == {}
    cache.write_text(
        "# comment\nCMAKE_BUILD_TYPE:STRING=\nCMAKE_CXX_COMPILER:FILEPATH=/usr/bin/c++\n"
        "PCCL_OPENMP:BOOL=ON\nPCCL_TESTS:BOOL=ON\n"
    )
    assert builds.read_choices(cache) == {
        "CMAKE_CXX_COMPILER": "/usr/bin/c++",
        "PCCL_OPENMP": "ON",
    }


def test_environment_puts_a_build_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from processes import environment_of

    monkeypatch.setenv("PYTHONPATH", "others")
    assert environment_of(Path("build"))["PYTHONPATH"] == "build:others"
    assert environment_of(None)["PYTHONPATH"] == "others"
    monkeypatch.delenv("PYTHONPATH")
    assert environment_of(Path("build"))["PYTHONPATH"] == "build"


# ---- Older trees ---------------------------------------------------------------------------------


def test_a_dict_of_an_older_pccl_has_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    older = {"rank": 1, "links": [{"lanes": 2, "rate": None}], "direct": (0, None)}
    monkeypatch.setattr(pccl, "run_info", lambda group: older)
    info = names.run_info()
    assert (info.rank, info.links[0].lanes, info.direct) == (1, 2, (0, None))
    assert not hasattr(info.links[0], "rtt")
