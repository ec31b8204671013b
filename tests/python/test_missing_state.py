"""SharedState(allow_missing=True): a peer takes tensors that it does not have yet."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import work_missing_state as work
from conftest import MakeWorld


@pytest.mark.parametrize("async_op", [False, True])
def test_it_takes_what_it_lacks(make_open_world: MakeWorld, async_op: bool) -> None:
    make_open_world(3).run(work.takes_what_it_lacks, async_op)


def test_a_newcomer_joins(make_open_world: MakeWorld) -> None:
    world = make_open_world(1)
    world.spawn(work.newcomer_joins)
    world.spawn(work.newcomer_joins)
    world.outcomes(60)


@pytest.mark.parametrize("case", work.CASES)
def test_what_does_not_fit_fails_on_all(
    make_open_world: MakeWorld, case: Callable[[], None]
) -> None:
    make_open_world(2).run(case)


def test_wrong_arguments(make_open_world: MakeWorld) -> None:
    make_open_world(1).run(work.wrong_arguments)
