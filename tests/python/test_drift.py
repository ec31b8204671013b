"""A peer that computes other bits than the others is corrected, and it is named."""

from __future__ import annotations

import re
from typing import Any

import pytest
import work_drift as work
from conftest import MakeWorld
from world import Returned, World

OTHERS = [0, 2]


def train(world: World, kind: str, *, faulty: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the results of all ranks, and their logs."""
    world.start(work.train, kind, faulty)
    outcomes = world.outcomes(60)
    logs = [process.log.read_text() for process in world.processes]
    world.processes.clear()
    return [outcome.value for outcome in outcomes if isinstance(outcome, Returned)], logs


@pytest.mark.parametrize("kind", ["diloco", "ddp"])
def test_a_peer_that_flips_a_bit_is_named_and_costs_the_others_nothing(
    make_world: MakeWorld, kind: str
) -> None:
    world = make_world(3)
    sound, quiet = train(world, kind, faulty=False)
    results, logs = train(world, kind, faulty=True)

    assert "drifts" not in "".join(quiet)
    assert all(result["corrections"] == [0] * work.STEPS for result in sound)
    for rank in OTHERS:
        assert results[rank]["losses"] == sound[rank]["losses"]
        assert results[rank]["corrections"] == [0] * work.STEPS
        assert results[rank]["drifts"] == []
        assert "this process drifts" not in logs[rank]

    faulty = results[work.FAULTY]
    assert faulty["corrections"] == list(range(1, work.STEPS + 1)), "named at the first outer step"
    assert len(faulty["drifts"]) == work.STEPS
    assert all(len(names) == 1 for names in faulty["drifts"]), "one parameter was wrong"
    (name,) = faulty["drifts"][0]
    at_growing_intervals = ["1", "2", "4", "8"]
    pattern = rf'this process drifts: .*"{re.escape(name)}" .* at revision \d+ \((\d+) correction'
    assert re.findall(pattern, logs[work.FAULTY]) == at_growing_intervals
    pattern = rf'rank 1 \(.+\) drifts: .*"{re.escape(name)}" .* \((\d+) correction'
    assert re.findall(pattern, logs[0]) == at_growing_intervals, "the log of the master"


def test_only_other_bits_of_the_same_step_are_drift(make_world: MakeWorld) -> None:
    make_world(3).run(work.shares_a_state)
