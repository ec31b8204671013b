"""The DiLoCo trainer with real groups, for behaviour that a scripted group might not have."""

from __future__ import annotations

import pytest
import work_diloco as work
from conftest import MakeWorld


def test_nobody_trains_and_nothing_moves(make_world: MakeWorld) -> None:
    results = make_world(3).run(work.untrained)
    assert len({result[0] for result in results}) == 1


def test_a_step_that_timed_out_is_repeated(make_world: MakeWorld) -> None:
    make_world(2, timeout_s=2.0).run(work.times_out_in_the_all_reduce)


def test_a_step_that_was_interrupted_in_its_all_reduce_is_repeated(make_world: MakeWorld) -> None:
    make_world(2).run(work.is_interrupted_in_the_all_reduce)


@pytest.mark.parametrize("event", ["before_meet", "topology_updated"])
def test_a_step_that_was_interrupted_in_its_meeting_is_repeated(
    make_world: MakeWorld, event: str
) -> None:
    make_world(2).run(work.is_interrupted_in_the_meeting, event)


def test_peers_with_unequal_settings_are_told(make_world: MakeWorld) -> None:
    assert make_world(3).run(work.has_settings_of_its_own) == ["fine", "refused", "fine"]
