"""sync_shared_state(async_op=True): the legal calls of members before its wait."""

from __future__ import annotations

import work_async_sync as work
from conftest import MakeWorld


def test_members_go_on(make_open_world: MakeWorld) -> None:
    world = make_open_world(1)
    world.spawn(work.members_go_on)
    world.spawn(work.members_go_on)
    world.outcomes(60)


def test_a_newcomer_is_absent_while_it_fetches(make_open_world: MakeWorld) -> None:
    world = make_open_world(2)
    for _ in range(3):
        world.spawn(work.absent_while_it_fetches)
    newcomers = [outcome.value["newcomer"] for outcome in world.outcomes(60)]
    assert sorted(newcomers) == [False, False, True]


def test_a_written_tensor_is_named(make_open_world: MakeWorld) -> None:
    make_open_world(3).run(work.a_written_tensor_is_named)


def test_what_is_dropped_ends_by_itself(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.dropped_without_wait)


def test_the_group_may_end_first(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.ends_with_its_group)


def test_progress_of_a_call(make_open_world: MakeWorld) -> None:
    assert sorted(make_open_world(2).run(work.tells_its_progress, False)) == [0, 3]


def test_progress_of_a_wait(make_open_world: MakeWorld) -> None:
    first, second = sorted(make_open_world(2).run(work.tells_its_progress, True))
    assert first == 0
    assert second >= 1


def test_a_program_may_end_in_its_progress(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.a_program_may_end_in_its_progress)


def test_wrong_arguments(make_open_world: MakeWorld) -> None:
    make_open_world(1).run(work.wrong_arguments)
