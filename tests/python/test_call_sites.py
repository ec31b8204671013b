"""PCCL_CHECK_CALLSITE=1: calls that match, but come from different lines, and calls that differ."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import work_call_sites as work
from conftest import MakeWorld

CHECKED = {"PCCL_CHECK_CALLSITE": "1"}


@pytest.mark.parametrize(("environment", "count"), [(CHECKED, 1), ({}, 0)])
def test_calls_of_one_shape_at_different_lines_are_reported_once(
    make_world: MakeWorld, environment: Mapping[str, str], count: int
) -> None:
    first, second = work.lines()
    world = make_world(2, environment=environment)
    world.start(work.in_opposite_orders)
    world.outcomes(30)
    for rank, process in enumerate(world.processes):
        process.handle.join(30)  # its log is complete then
        lines = process.log.read_text().splitlines()
        # Rank 0 also has the line of the master, which it hosts.
        warnings = [line for line in lines if f", rank {rank}: rank 0 (" in line]
        assert len(warnings) == count, lines
        for line in warnings:
            assert f"at {first}, and rank 1" in line
            assert f"at {second}. The shapes are equal" in line
            assert "give each line a tag of its own" in line


def test_an_error_about_calls_that_differ_has_their_lines(make_world: MakeWorld) -> None:
    first, second = work.lines()
    for text in make_world(2, environment=CHECKED).run(work.of_two_shapes):
        assert f"8 elements, world size 2) at {first}" in text, text
        assert f"9 elements, world size 2) at {second}" in text, text
