"""All-reduces of sparse tensors: sums, order, refusals, and the tensors after a failure."""

from __future__ import annotations

import pytest
import work_sparse as work
from conftest import MakeWorld
from world import Lost, Returned


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sums(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.sums)


@pytest.mark.parametrize("size", [1, 3])
def test_corners(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.corners)


def test_many_in_flight(make_world: MakeWorld) -> None:
    make_world(3).run(work.in_flight, 60)


def test_threads_with_a_tag_each(make_world: MakeWorld) -> None:
    make_world(3).run(work.threads, 40)


@pytest.mark.parametrize("size", [2, 4])
def test_tensors_that_cannot_be_added(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.mismatches)


def test_arguments_that_are_refused(make_world: MakeWorld) -> None:
    make_world(2).run(work.refused)


def test_a_rank_that_does_not_call(make_world: MakeWorld) -> None:
    _, *texts = make_world(3, timeout_s=1.0).run(work.late, 1.0)
    assert len(set(texts)) == 1


@pytest.mark.parametrize("calls", [False, True])
def test_a_loss_ends_it_alike(make_open_world: MakeWorld, calls: bool) -> None:
    world = make_open_world(3, min_peers=2)
    world.start(work.loses_one, calls)
    outcomes = world.outcomes(40, expect_success=False)
    survivors = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert sum(isinstance(outcome, Lost) for outcome in outcomes) == 1, world.tails()
    assert len(survivors) == 2, world.tails()
    assert survivors[0] == survivors[1]


def test_a_rank_without_memory(make_world: MakeWorld) -> None:
    make_world(2).run(work.without_memory)
