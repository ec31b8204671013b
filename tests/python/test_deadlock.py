"""Ranks may post collectives in any order without a deadlock, and the test would detect one."""

from __future__ import annotations

import pytest
import work_deadlock as work
from conftest import MakeWorld
from world import Failed

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


@pytest.mark.parametrize("count", [8, 32])
def test_the_driver_can_tell(make_open_world: MakeWorld, count: int) -> None:
    """Without tags and with one operation in flight, the same calls cannot match."""
    world = make_open_world(8)
    world.start(work.disordered, count, 1, False, True)
    for outcome in world.outcomes(60, expect_success=False):
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, pccl.CollectiveMismatchError), outcome.text
