"""The collectives whose tensors have parts: reduce, reduce_scatter, gather, scatter, all_to_all."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import work_parts as work
from conftest import MakeWorld
from world import Returned, wait_until

REFUSALS = {
    "reduce_scatter of few": ("ValueError", "one input per rank"),
    "reduce_scatter sizes": ("ValueError", "inputs of the output's sizes [3]"),
    "reduce_scatter_tensor size": ("ValueError", "9 elements"),
    "reduce_scatter dtypes": ("ValueError", "Double", "Float"),
    "reduce_scatter of bits": ("ValueError", "BXOR", "float32"),
    "reduce of bytes": ("ValueError", "Float8_e5m2"),
    "gather of few": ("ValueError", "one output per rank, 3 in all, not 2"),
    "gather to another": ("ValueError", "(dst) has outputs"),
    "gather dtypes": ("ValueError", "dtype"),
    "gather into one": ("ValueError", "share memory"),
    "scatter of few": ("ValueError", "one input per rank", "3 in all, not 2"),
    "scatter from another": ("ValueError", "(src) has inputs"),
    "scatter sizes": ("ValueError", "sizes [3]", "[2]"),
    "all_to_all of few": ("ValueError", "one output and one input per rank", "not 2 and 2"),
    "all_to_all into one": ("ValueError", "share memory"),
    "all_to_all own part": ("ValueError", "for itself has 2 elements", "3 in the outputs"),
    "no equal parts": ("ValueError", "3 equal parts", "7"),
    "splits of others": ("ValueError", "3 ranks, not 1"),
    "splits too long": ("ValueError", "[3 3 3]", "6"),
    "splits too short": ("ValueError", "[1 1 1]", "6"),
    "negative splits": ("ValueError", "at least 0"),
    "factor for integers": ("ValueError", "floats", "Int"),
}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_collective(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.everything, timeout=60)


def test_wrong_arguments(make_world: MakeWorld) -> None:
    for found in make_world(3).run(work.refusals):
        assert found.keys() == REFUSALS.keys()
        for name, (error, text) in found.items():
            wanted, *says = REFUSALS[name]
            assert error == wanted, (name, error, text)
            for word in says:
                assert word in text, (name, text)


def test_splits_that_do_not_fit(make_world: MakeWorld) -> None:
    for error, text in make_world(3).run(work.splits_that_do_not_fit):
        assert error == "CollectiveMismatchError"
        assert "3 elements for rank 1" in text, text
        assert "which expects 2" in text, text


@pytest.mark.parametrize("count", [100, 300_000])
@pytest.mark.parametrize("kind", work.KINDS)
def test_a_loss(make_open_world: MakeWorld, kind: str, count: int, tmp_path: Path) -> None:
    world = make_open_world(4, min_peers=3)
    world.start(work.until_the_loss, kind, count, tmp_path)
    assert wait_until(lambda: len(list(tmp_path.glob("rank-*"))) == 4, timeout_s=30), world.tails()
    time.sleep(random.random() / 5)  # a random moment of the calls, which go on until the loss
    world.processes[2].kill()
    outcomes = world.outcomes(30, expect_success=False)
    survivors = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert survivors == [survivors[0]] * 3, world.tails()
