"""Ranks may post collectives in any order without a deadlock, and the test would detect one."""

from __future__ import annotations

import signal

import pytest
import work_deadlock as work
from conftest import MakeWorld
from world import Failed, Lost, Returned

import pccl_backend as pccl


def test_eight_of_all_sizes_in_random_orders(make_open_world: MakeWorld) -> None:
    make_open_world(8).run(work.disordered, 8, 200, timeout=100)


def test_many_in_flight_in_random_orders(make_open_world: MakeWorld) -> None:
    make_open_world(8).run(work.disordered, 128, 20, timeout=100)


def test_many_in_flight_over_one_connection(make_open_world: MakeWorld) -> None:
    world = make_open_world(8, environment={"PCCL_LANES": "1"})
    world.run(work.disordered, 128, 5, timeout=100)


def test_waits_between_the_calls(make_open_world: MakeWorld) -> None:
    assert min(make_open_world(8).run(work.waits_between, 16, 40, timeout=100)) > 40


def test_opposite_orders(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.opposite, 32)


def test_more_small_ones_than_a_connection_keeps(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.small_after_all_of_another, 1000)


@pytest.mark.parametrize("size", [2, 4])
def test_what_a_laggard_has_not_posted_holds_up_nothing_else(
    make_open_world: MakeWorld, size: int
) -> None:
    make_open_world(size).run(work.behind_a_laggard, 32)


def test_priorities_that_differ_between_the_ranks(make_open_world: MakeWorld) -> None:
    make_open_world(8).run(work.disordered, 64, 20, True, False, True, timeout=100)


def test_calls_of_all_kinds_with_and_without_tags(make_open_world: MakeWorld) -> None:
    assert make_open_world(4).run(work.of_all_kinds, 10, timeout=100) == [480] * 4


def test_groups_that_overlap(make_world: MakeWorld) -> None:
    assert min(make_world(8).run(work.in_overlapping_groups, 10, timeout=100)) >= 80


def test_a_joint_call_in_between(make_open_world: MakeWorld) -> None:
    assert sum(make_open_world(4).run(work.beside_a_joint_call, 16, 10, timeout=100)) > 0


@pytest.mark.parametrize("after", [0, 13, 31])
def test_a_rank_that_is_killed_in_between(make_open_world: MakeWorld, after: int) -> None:
    world = make_open_world(4, min_peers=2, parameters={"founders": 4})
    world.start(work.while_a_rank_is_killed, 32, 3, after)
    outcomes = world.outcomes(100, expect_success=False)
    assert outcomes.count(Lost(-signal.SIGKILL)) == 1, world.tails()
    failures = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert len(failures) == 3, world.tails()
    assert len(set(failures)) == 1
    assert failures[0] > 0


def test_ten_thousand_calls_of_one_rank_cost_little(make_open_world: MakeWorld) -> None:
    count = 10_000
    (cost, completed), *_ = make_open_world(2).run(work.posted_on_one_rank, count, timeout=100)
    assert completed == 20
    # A call has 16 KiB for data that arrives; the rest is what torch and pccl note down about it.
    assert cost < count * (16384 + 20480), cost


@pytest.mark.parametrize("count", [8, 32])
def test_the_driver_can_tell(make_open_world: MakeWorld, count: int) -> None:
    """Without tags and with one operation in flight, the same calls cannot match."""
    world = make_open_world(8)
    world.start(work.disordered, count, 1, False, True)
    for outcome in world.outcomes(60, expect_success=False):
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, pccl.CollectiveMismatchError), outcome.text
