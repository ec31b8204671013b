"""Every collective, dtype and reduction against a reference, on worlds of several sizes."""

from __future__ import annotations

import pytest
import work_collectives as work
from conftest import MakeWorld

MIB = 1 << 20


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_dtype_and_reduction(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.reductions, [0, 1, 7, 4099])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_other_collective(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.everything_else)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_ranks_hold_the_same_bits(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.rounded_sums, MIB // 4)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_an_average_of_16_bit_floats_does_not_overflow(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.averages_of_16_bit_floats)


def test_many_elements(make_world: MakeWorld) -> None:
    make_world(2).run(work.many_elements, 16 * MIB)


def test_eight_ranks(make_world: MakeWorld) -> None:
    make_world(8).run(work.eight_ranks, timeout=60)


@pytest.mark.parametrize("size", [2, 3])
def test_tags_match_operations_in_any_order(make_open_world: MakeWorld, size: int) -> None:
    make_open_world(size).run(work.tags_in_any_order, 50)


def test_threads_with_a_tag_each(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.tags_of_threads, 25)


def test_what_is_not_there_says_what_is(make_world: MakeWorld) -> None:
    (messages, _) = make_world(2).run(work.not_there_yet)
    for message in messages:
        assert "pccl moves dense tensors" in message
