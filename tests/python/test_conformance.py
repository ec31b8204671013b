"""`make conformance`: the outcomes of a PyTorch test, and the errors among them. Nothing of torch
runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

import run
from run import FAILED, MISSING, PASSED, SKIPPED, Result

SKIP = 86  # an exit status of torch's ranks for a skipped test


def passes(rank: int, errors: Connection) -> None:
    pass


def fails_on_one_rank(rank: int, errors: Connection) -> None:
    if rank == 0:
        errors.send("Traceback\n  ...\nValueError: one\n\nTraceback\n  ...\nValueError: two\nmore")
        sys.exit(10)
    signal.pause()


def is_missing(rank: int, errors: Connection) -> None:
    errors.send("NotImplementedError: pccl does not have reduce yet; it has all_reduce")
    sys.exit(10)


def is_skipped(rank: int, errors: Connection) -> None:
    sys.exit(SKIP)


def skips_on_one_rank(rank: int, errors: Connection) -> None:
    sys.exit(SKIP if rank == 0 else 0)


def hangs(rank: int, errors: Connection) -> None:
    signal.pause()


def is_killed(rank: int, errors: Connection) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


STORIES: dict[Callable[[int, Connection], None], tuple[str, str]] = {
    passes: (PASSED, ""),
    fails_on_one_rank: (FAILED, "ValueError: two"),
    is_missing: (MISSING, "NotImplementedError: pccl does not have reduce yet"),
    is_skipped: (SKIPPED, "for a reason"),
    skips_on_one_rank: (FAILED, f"exit status of the ranks: {SKIP}, 0"),
    hangs: (FAILED, "not done after 5 s"),
    is_killed: (FAILED, "exit status of the ranks: 0, -9"),
}


class Stories:
    """Stands in for torch's suite."""

    skips = {SKIP: "for a reason"}  # noqa: RUF012
    names = tuple(story.__name__ for story in STORIES)

    def skipped(self, name: str) -> str | None:
        return "known at once" if name == "never_runs" else None

    def run_rank(
        self, name: str, rank: int, folder: Path, errors: Connection, limit: float
    ) -> None:
        globals()[name](rank, errors)


def test_outcomes(tmp_path: Path) -> None:
    names = [*Stories.names, "never_runs"]
    results = {
        result.name: result
        for result in run.run_all(Stories(), names, world=2, jobs=3, limit=5.0, logs=tmp_path)
    }
    assert sorted(results) == sorted(names)
    for story, (outcome, reason) in STORIES.items():
        result = results[story.__name__]
        assert result.outcome == outcome, result
        assert result.reason.startswith(reason), result
    assert results["never_runs"] == Result("never_runs", SKIPPED, "known at once")


def test_a_difference_is_an_error() -> None:
    results = [
        Result("passes", PASSED),
        Result("broke", FAILED, "ValueError: x"),
        Result("vanished", SKIPPED),
        Result("new", PASSED),
        Result("at_another_world", PASSED),
        Result("fails_as_ever", FAILED),
        Result("fails_unexplained", FAILED, "ValueError: y"),
    ]
    expected = {
        "passes": {2, 4},
        "broke": {4},
        "vanished": {4},
        "at_another_world": {2},
        "not_in_this_torch": {4},
    }
    texts = run.complaints(results, expected, 4, ["fails_as_ever"])
    assert [text.split(":")[0] for text in texts] == [
        "expected to pass",
        "expected to pass",
        "passes, and is not in the list",
        "passes, and is not in the list",
        "fails, and reasons.txt does not say why",
    ]
    assert "ValueError: x" in texts[0]
    assert "ValueError: y" in texts[-1]


def test_reasons_belong_to_a_mode(tmp_path: Path) -> None:
    path = tmp_path / "reasons.txt"
    path.write_text("# why\n\nas-gloo test_a it wants b\npccl test_a it wants c\n")
    assert run.read_reasons(path, "pccl") == {"test_a": "it wants c"}
    assert run.read_reasons(path, "gloo") == {}


def test_the_list_is_kept_as_text(tmp_path: Path) -> None:
    path = tmp_path / "pccl.txt"
    assert run.read_expected(path) == {}
    run.write_expected(path, {"test_b": {4, 2}, "test_a": {3}, "test_never": set()})
    assert path.read_text().splitlines()[1:] == ["test_a 3", "test_b 2 4"]
    assert run.read_expected(path) == {"test_b": {4, 2}, "test_a": {3}}


@pytest.mark.parametrize("mode", run.MODES)
def test_each_mode_has_a_list(mode: str) -> None:
    listed = run.read_expected(run.EXPECTED / f"{mode}.txt")
    assert all(worlds <= {2, 3, 4} for worlds in listed.values())
