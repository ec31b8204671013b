"""Work and Future: waiting, timeouts, Ctrl-C, and the lifetime of tensors."""

from __future__ import annotations

import work_lifecycle as work
from conftest import MakeWorld


def test_futures(make_world: MakeWorld) -> None:
    make_world(2).run(work.futures)


def test_a_future_that_fails(make_world: MakeWorld) -> None:
    make_world(2).run(work.failed_futures)


def test_tensors_live_as_long_as_needed(make_world: MakeWorld) -> None:
    make_world(2).run(work.tensors_live_as_long_as_needed)


def test_tensors_that_are_pointed_elsewhere(make_world: MakeWorld) -> None:
    make_world(2).run(work.tensors_that_are_pointed_elsewhere)


def test_wait_with_a_timeout(make_world: MakeWorld) -> None:
    make_world(2).run(work.waits_for_a_while)


def test_the_groups_timeout(make_world: MakeWorld) -> None:
    messages = make_world(2, timeout_s=1.5).run(work.times_out)
    assert messages[0] == messages[1], "ranks were told different things"
    assert "rank 1" in messages[0]


def test_ctrl_c_in_wait(make_world: MakeWorld) -> None:
    make_world(2).run(work.is_interrupted)
