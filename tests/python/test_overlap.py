"""Every rank refuses tensors of one call that share memory, and accepts those that do not."""

from __future__ import annotations

from typing import Any

import pytest
import work_overlap as work
from conftest import MakeWorld

# Each message also reports that memory is shared, with a remedy. This is the rest of the message.
OUTPUTS = {
    "repeated": "outputs 0 and 1",
    "first and last": "outputs 0 and 2",
    "shifted": "outputs 1 and 2",
    "one array": "outputs 1 and 2",
    "pointed at": "outputs 1 and 2",
    "bytes": "outputs 1 and 2",
    "dense and strided": "outputs 1 and 2",
    "row and column": "outputs 1 and 2",
    "transposed": "outputs 1 and 2",
    "wide columns": "outputs 1 and 2",
    "other strides": "outputs 1 and 2",
    "windows": "elements of this one share memory",
}
INPUTS = {
    "another's output": "the input and output {other}",
    "another's place": "the input and the output",
    "shifted by one": "the input and the output",
    "every other": "the input and the output",
    "own in another order": "the input and output {rank}",
    "one element of own": "the input and output {rank}",
    "another's columns": "the input and the output",
    "another output's own place": "input 1 and output 0",
}
PARTS = {
    "another's part": "the input and the output share memory (sizes [3, 4] and [4]), other than as "
    "this rank's own part",
    "another's input": "input {other} and the output",
    "beside its part": "the input and the output",
    "another tensor's part": "input 1 and output 0",
    "scattered to another's": "input {other} and the output",
    "all_to_all in place": "and it does not work in place",
    "all_to_all_single in place": "and it does not work in place",
}
MANY = {
    "reduced twice": "tensors 0 and 1",
    "reduced, overlapping": "tensors 0 and 2",
    "reduced, complex": "tensors 0 and 1",
    "reduced, windows": "elements of this one share memory",
    "reduced, expanded": "elements of this one share memory",
    "gathered twice": "outputs 0 and 1",
    "gathered, overlapping": "outputs 0 and 1",
}


def test_tensors_that_share_memory(make_world: MakeWorld) -> None:
    world = 3
    wanted = {**OUTPUTS, **INPUTS, **PARTS, **MANY}
    for rank, results in enumerate(make_world(world).run(work.refusals)):
        assert results.keys() == wanted.keys()
        for name, found in results.items():
            about: tuple[str, Any] = (name, found)
            assert found["type"] == "ValueError", about
            assert wanted[name].format(rank=rank, other=(rank + 1) % world) in found["text"], about
            assert "share memory" in found["text"], about
            assert ".clone()" in found["text"], about


@pytest.mark.parametrize("size", [1, 2, 3])
def test_views_side_by_side(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.side_by_side)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_in_place(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.in_place)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_reduce_scatter_in_place(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.reduce_scatter_in_place)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_gathers_and_scatters_in_place(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.gathers_and_scatters_in_place)


def test_in_place_below_a_row(make_world: MakeWorld) -> None:
    make_world(2).run(work.parts_of_a_row)
    make_world(4).run(work.parts_of_a_row)


def test_an_input_for_several_outputs(make_world: MakeWorld) -> None:
    make_world(2).run(work.a_shared_input)


def test_any_views(make_world: MakeWorld) -> None:
    """Compare with a list of all elements, in a world of one, where nothing is sent."""
    (found,) = make_world(1).run(work.any_views, 3000)
    assert min(found.values()) > 300, found
