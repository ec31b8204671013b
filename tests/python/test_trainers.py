"""The trainers between real peers: joins, losses, weights, checkpoints, memory."""

from __future__ import annotations

from typing import Any

import pytest
import work_trainers as work
from conftest import MakeWorld
from world import Lost, Returned

KINDS: dict[str, dict[str, Any]] = {
    "blocking": {},
    "overlap": {"overlap": 1},
    "carry": {"overlap": 4, "mix": "carry"},
    "auto": {"overlap": "auto"},
    "streaming": {"fragments": 2, "overlap": 1},
}


def all_equal(results: list[Any]) -> None:
    """Check that all peers had the same hash at each revision that they have in common."""
    for revision in set().union(*(hashes for _, hashes, _, _ in results)):
        seen = {hashes[revision] for _, hashes, _, _ in results if revision in hashes}
        assert len(seen) == 1, f"hashes differ at revision {revision}"


@pytest.mark.parametrize("kind", KINDS)
def test_one_peer_is_lost_and_one_joins(make_open_world: MakeWorld, kind: str) -> None:
    world = make_open_world(3, min_peers=2)
    for seed in range(2):
        world.spawn(work.train_until, KINDS[kind], 14, seed)
    world.spawn(work.train_until, KINDS[kind], 99, 2, 4)
    while world.processes[2].poll() is None:
        world.processes[2].handle.join(0.1)
    world.spawn(work.train_until, KINDS[kind], 14, 3)
    outcomes = world.outcomes(60, expect_success=False)
    assert isinstance(outcomes.pop(2), Lost)
    results = [o.value for o in outcomes if isinstance(o, Returned)]
    assert len(results) == 3, world.tails()
    all_equal(results)
    assert results[2][0] > 0, "the newcomer came late"
    assert results[2][2] == 3, "the newcomer took part"


def test_ddp_loses_a_peer_and_takes_in_another(make_open_world: MakeWorld) -> None:
    world = make_open_world(3, min_peers=2)
    for seed in range(2):
        world.spawn(work.ddp_until, 60, seed)
    world.spawn(work.ddp_until, 999, 2, 6)
    while world.processes[2].poll() is None:
        world.processes[2].handle.join(0.1)
    world.spawn(work.ddp_until, 60, 3)
    outcomes = world.outcomes(60, expect_success=False)
    assert isinstance(outcomes.pop(2), Lost)
    results = [o.value for o in outcomes if isinstance(o, Returned)]
    assert len(results) == 3, world.tails()
    all_equal(results)
    assert len({parameters for _, _, _, parameters in results}) == 1
    assert results[2][0] > 0, "the newcomer came late"


@pytest.mark.parametrize("by", ["equal", "steps", "tokens"])
def test_weights_are_those_asked_for(make_world: MakeWorld, by: str) -> None:
    make_world(2).run(work.weighted, by)


@pytest.mark.parametrize("overlap", [0, 2])
def test_a_peer_whose_numbers_are_not_finite_costs_only_itself(
    make_world: MakeWorld, overlap: int
) -> None:
    make_world(3).run(work.a_sick_peer_is_named, overlap)


def test_leaving_by_an_exception_ends_only_that_peer(make_open_world: MakeWorld) -> None:
    sizes = make_open_world(3, min_peers=2).run(work.leaves_by_an_exception, setup="group")
    assert sorted(sizes) == [-1, 2, 2]


@pytest.mark.parametrize("trainer", ["diloco", "ddp"])
def test_buffers_are_averaged(make_world: MakeWorld, trainer: str) -> None:
    first, second = make_world(2).run(work.buffers_are_averaged, trainer)
    assert first == second


@pytest.mark.parametrize(("mix", "most"), [(0.5, 16), ("carry", 20)])
def test_memory_for_each_parameter(make_world: MakeWorld, mix: Any, most: int) -> None:
    """One temporary of the size of the largest parameter is allowed for: 4 bytes / 6."""
    for size in make_world(2).run(work.peak_bytes_per_parameter, mix):
        print(size)
        assert size <= most + 2
