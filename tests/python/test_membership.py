"""Peers that join, leave and vanish; joint calls; shared state."""

from __future__ import annotations

import pytest
import work_membership as work
import work_repeat
from conftest import MakeWorld
from world import Lost, Returned


def test_rank_and_size_follow_the_run(make_open_world: MakeWorld) -> None:
    results = make_open_world(3, min_peers=2).run(work.grows_and_shrinks)
    assert sorted(results) == ["left", "stayed", "stayed"]


def test_are_peers_pending(make_open_world: MakeWorld) -> None:
    world = make_open_world(2, min_peers=1)
    assert sorted(world.run(work.notices_newcomers)) == [False, True]


@pytest.mark.parametrize("in_flight", [[1, 1], [1, 5]])
def test_a_death_in_an_all_reduce(make_open_world: MakeWorld, in_flight: list[int]) -> None:
    world = make_open_world(3, min_peers=2)
    world.start(work.dies_in_reduction, 1 << 18, in_flight)
    outcomes = world.outcomes(30, expect_success=False)
    survivors = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert sum(isinstance(outcome, Lost) for outcome in outcomes) == 1, world.tails()
    assert len(survivors) == 2, world.tails()
    first = {survivor["errors"][0] for survivor in survivors}
    assert len(first) == 1, "survivors saw different outcomes"


def test_shared_state(make_open_world: MakeWorld) -> None:
    make_open_world(3, min_peers=2).run(work.syncs)


@pytest.mark.parametrize("async_op", [False, True])
def test_views_are_gathered_and_scattered(make_open_world: MakeWorld, async_op: bool) -> None:
    make_open_world(2).run(work.views, async_op)


def test_a_tensor_that_has_moved_is_noticed(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.moved)


def test_tied_weights_are_shared_once_and_tied_by_all(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.ties)


def test_a_newcomer_gets_the_state(make_open_world: MakeWorld) -> None:
    world = make_open_world(1)
    world.spawn(work.newcomer_gets_the_state)
    world.spawn(work.newcomer_gets_the_state)
    world.outcomes(30)


def test_every_collective_is_repeated_after_a_loss(make_open_world: MakeWorld) -> None:
    world = make_open_world(3, min_peers=2)
    world.start(work_repeat.repeats_each)
    outcomes = world.outcomes(30, expect_success=False)
    returned = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert sorted(returned) == [0, 1], world.tails()
