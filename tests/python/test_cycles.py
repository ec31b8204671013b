"""Ranks that wait for each other get an error at once, and others get none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import work_cycles as work
from conftest import MakeWorld


@pytest.mark.parametrize("size", [2, 3, 8])
def test_ranks_that_wait_for_each_other(make_open_world: MakeWorld, size: int) -> None:
    texts = make_open_world(size).run(work.around)
    for text in texts:
        assert "the ranks wait for each other" in text
        for rank in range(size):
            assert f"rank {rank}" in text
            assert f"(call{rank}, #0)" in text


def test_in_a_fixed_world(make_world: MakeWorld) -> None:
    for text in make_world(2).run(work.around):
        assert "the ranks wait for each other" in text


def test_blocking_sends_that_face_each_other(make_open_world: MakeWorld) -> None:
    for text in make_open_world(2).run(work.facing):
        assert "which rank 1" in text
        assert "has not received" in text


def test_a_joint_call_and_a_collective(make_open_world: MakeWorld) -> None:
    (text,) = filter(None, make_open_world(2).run(work.joint))  # of rank 1
    assert "waits in update_topology, which rank 1" in text


@pytest.mark.parametrize(
    "program",
    [work.one_computes, work.another_thread_calls, work.a_callback_calls, work.limited],
)
def test_no_error_if_a_rank_continues_by_itself(
    make_open_world: MakeWorld, program: Callable[[float], None]
) -> None:
    make_open_world(2).run(program, 4.5)
