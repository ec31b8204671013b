"""A newcomer's mistakes cost only itself, and a shared state never goes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import work_newcomers as work
from conftest import MakeWorld
from world import Returned

from pccl_backend import _settings

# Every wait that a newcomer may cause is much shorter than this; the group's timeout is 30 s.
SOON_S = 10.0


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (work.other_shape, '"w" is float32[9] at the newcomer and float32[8] at the members'),
        (work.other_dtype, '"w" is float64[8] at the newcomer and float32[8] at the members'),
        (work.extra_parameter, '"x" is float32[1] at the newcomer and absent at the members'),
        (work.later_revision, "its state has revision 1000000"),
        (work.must_not_be_overwritten, "send_only"),
        (work.pending, "rank 2 called are_peers_pending"),
        (work.update, "rank 2 called update_topology"),
        (work.all_reduce, "it called all_reduce(sum, float32, 5 elements"),
        (work.nothing, "it did not call sync_shared_state within 1 s (PCCL_FIRST_CALL_TIMEOUT)"),
    ],
)
def test_a_mistake_costs_the_newcomer_its_membership(
    make_open_world: MakeWorld, tmp_path: Path, mistake: Callable[[], None], says: str
) -> None:
    check_mistake(make_open_world, tmp_path, "sync", mistake, says)


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (work.all_reduce, "rank 2 called all_reduce(sum, float32, 5 elements"),
        (work.all_gather, "rank 2 called all_gather"),
        (work.other_shape, "it called sync_shared_state, and the others all_reduce"),
        (work.nothing, "it did not call all_reduce(sum, float32, 4 elements"),
    ],
)
def test_likewise_where_a_collective_comes_first(
    make_open_world: MakeWorld, tmp_path: Path, mistake: Callable[[], None], says: str
) -> None:
    check_mistake(make_open_world, tmp_path, "all_reduce", mistake, says)


def check_mistake(
    make_open_world: MakeWorld, folder: Path, first: str, mistake: Callable[[], None], says: str
) -> None:
    founded = folder / "founded"
    world = make_open_world(2, parameters={"first_call_timeout": 1})
    world.start(work.member, first, founded)
    world.spawn(work.newcomer, mistake, founded, setup="nothing")
    members, newcomer = split(world.outcomes(30))
    says = says.replace("rank 2", f"rank 2 ({_settings.host_name()})")
    assert says in newcomer, newcomer
    assert "before init_process_group" in newcomer, newcomer
    for member in members:
        assert says in member["removed"], member
        assert member["seconds"] < SOON_S, member


def split(outcomes: list[object]) -> tuple[list[dict[str, object]], str]:
    values = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    members = [value for value in values if isinstance(value, dict)]
    (newcomer,) = [value for value in values if isinstance(value, str)]
    return members, newcomer


@pytest.mark.parametrize(("width", "dtype"), [(2, torch.float32), (1, torch.float64)])
def test_the_trainer_goes_on_without_a_wrong_newcomer(
    make_open_world: MakeWorld, tmp_path: Path, width: int, dtype: torch.dtype
) -> None:
    founded = tmp_path / "founded"
    world = make_open_world(2)
    world.start(work.trains_linear, 1, torch.float32, founded, True, setup="nothing")
    world.spawn(work.trains_linear, width, dtype, founded, False, setup="nothing")
    ended = [outcome.value for outcome in world.outcomes(60) if isinstance(outcome, Returned)]
    assert ended == ["trained to the end", "trained to the end", "removed"]


def test_fresh_founders_do_not_outvote_a_checkpoint(make_open_world: MakeWorld) -> None:
    assert make_open_world(3).run(work.founders_with_a_checkpoint) == [(1000, 7.0)] * 3


def test_a_step_that_one_member_has_taken_is_not_lost(make_open_world: MakeWorld) -> None:
    assert make_open_world(3).run(work.one_member_is_ahead) == [(6, 6.0)] * 3


def test_nobody_is_set_back_for_a_newcomer_with_the_weights_of_before(
    make_open_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_open_world(2)
    world.start(work.trains_on_without_a_sync, False, tmp_path / "founded", setup="nothing")
    world.spawn(work.trains_on_without_a_sync, True, tmp_path / "founded", setup="nothing")
    ended = [outcome.value for outcome in world.outcomes(30) if isinstance(outcome, Returned)]
    assert ended == [(1, 2.0)] * 3
