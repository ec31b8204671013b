"""An error of the run keeps its class on all ways through torch, but for Python callbacks."""

from __future__ import annotations

from pathlib import Path

import work_error_types as work
from conftest import MakeWorld
from world import Lost, Returned


def test_a_loss(make_open_world: MakeWorld, tmp_path: Path) -> None:
    world = make_open_world(2, min_peers=1)
    world.start(work.after_a_loss, tmp_path)
    outcomes = world.outcomes(100, expect_success=False)
    assert {type(outcome) for outcome in outcomes} == {Lost, Returned}, world.tails()


def test_mismatches(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.after_mismatches)
