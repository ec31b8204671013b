"""recv without src: it takes a send from any rank, and returns that rank."""

from __future__ import annotations

import pytest
import work_any_source as work
from conftest import MakeWorld


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_rank_sends_to_rank_0(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.every_rank_sends_to_rank_0)


@pytest.mark.parametrize("size", [3, 4])
def test_several_at_once(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.several_at_once)


@pytest.mark.parametrize("size", [3, 4])
def test_with_other_receives(make_world: MakeWorld, size: int) -> None:
    world = make_world(size)
    world.run(work.tags_are_apart)
    world.run(work.a_named_source_keeps_its_send)


def test_in_a_subgroup(make_world: MakeWorld) -> None:
    make_world(3).run(work.in_a_subgroup)


def test_in_an_open_run(make_open_world: MakeWorld) -> None:
    make_open_world(3).run(work.every_rank_sends_to_rank_0)


def test_nobody_sends(make_world: MakeWorld) -> None:
    make_world(2).run(work.nobody_sends)


def test_the_size_differs(make_world: MakeWorld) -> None:
    make_world(3).run(work.the_size_differs)


def test_bad_calls(make_world: MakeWorld) -> None:
    make_world(2).run(work.bad_calls)


def test_a_group_of_one(make_world: MakeWorld) -> None:
    make_world(1).run(work.alone)


def test_the_group_is_destroyed_meanwhile(make_world: MakeWorld) -> None:
    make_world(2).run(work.the_group_is_destroyed)
