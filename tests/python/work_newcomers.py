"""Run by test_newcomers.py: two members that train, and a newcomer that behaves differently."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import world

import pccl_backend as pccl
from pccl_backend.trainers import DiLoCo

WIDTH = 8
PEERS = 2
FOUND_S = 20.0


def join_when(founded: Path) -> None:
    """Join the run once its founders have written that they are members."""
    deadline = time.monotonic() + FOUND_S
    while not founded.exists():
        assert time.monotonic() < deadline, "the run was not founded"
        time.sleep(0.01)  # the file is written by another process; `deadline` bounds the loop
    world.current.init()


def state_of(revision: int = 0, *, width: int = WIDTH, fill: float = 0.0) -> pccl.SharedState:
    return pccl.SharedState({"w": torch.full((width,), fill)}, revision=revision)


def meet(state: pccl.SharedState, first: str) -> None:
    """Update the topology, then make the first call that newcomers need: `first` names it."""
    pccl.update_topology()
    if first == "sync":
        pccl.sync_shared_state(state)
    else:
        dist.all_reduce(torch.ones(4))


def member(first: str, founded: Path) -> dict[str, object]:
    """Train until a newcomer came and was removed; return the error and the time that it cost."""
    state = state_of()
    pccl.sync_shared_state(state)
    founded.touch()
    removed, slowest_s = "", 0.0
    while not removed or dist.get_world_size() != PEERS:
        begun = time.monotonic()
        try:
            dist.all_reduce(torch.ones(4))
            state["w"].add_(1.0)
            state.revision += 1
            meet(state, first)
            if first != "sync":
                pccl.sync_shared_state(state)
        except pccl.PeerLostError as error:
            removed = str(error)
            meet(state, first)
            slowest_s = max(slowest_s, time.monotonic() - begun)
        time.sleep(0.01)  # stands for a step; without it the loop takes the cores of the newcomers
    dist.all_reduce(torch.ones(4))  # training continues
    assert (state["w"] == state.revision).all()
    return {"removed": removed, "seconds": slowest_s}


def other_shape() -> None:
    pccl.sync_shared_state(state_of(width=9))


def other_dtype() -> None:
    state = pccl.SharedState({"w": torch.zeros(WIDTH, dtype=torch.float64)}, revision=0)
    pccl.sync_shared_state(state)


def extra_parameter() -> None:
    state = pccl.SharedState({"w": torch.zeros(WIDTH), "x": torch.zeros(1)}, revision=0)
    pccl.sync_shared_state(state)


def later_revision() -> None:
    pccl.sync_shared_state(state_of(10**6))


def must_not_be_overwritten() -> None:
    pccl.sync_shared_state(state_of(fill=7.0), strategy="send_only")


def pending() -> None:
    pccl.are_peers_pending()


def update() -> None:
    pccl.update_topology()


def all_reduce() -> None:
    dist.all_reduce(torch.ones(5))


def all_gather() -> None:
    tensor = torch.ones(4)
    dist.all_gather([torch.empty(4) for _ in range(dist.get_world_size())], tensor)


def nothing() -> None:
    # The mistake under test is to make no call. It lasts longer than PCCL_FIRST_CALL_TIMEOUT (1 s);
    # then the others must have continued.
    time.sleep(5)
    pccl.sync_shared_state(state_of())


def newcomer(mistake: Callable[[], None], founded: Path) -> str:
    """Make the mistake, and return how it ended."""
    join_when(founded)
    try:
        mistake()
    except pccl.KickedError as error:
        return str(error)
    return "it went through"


# --- The trainer ----------------------------------------------------------------------------------


def trains(model: torch.nn.Module, founded: Path, *, first: bool) -> str:
    """Train until the newcomer was removed, or train as the newcomer."""
    outer = DiLoCo(model)
    try:
        world.current.init() if first else join_when(founded)
        outer.start()
        founded.touch()
        left: tuple[str, ...] = ()
        while not left:
            time.sleep(0.02)  # stands for the inner steps, so that a fault meets them too
            left = outer.step().left
        outer.step()
    except pccl.KickedError as error:
        assert "before init_process_group" in str(error), error  # noqa: PT017
        return "removed"
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return "trained to the end"


def trains_linear(width: int, dtype: torch.dtype, founded: Path, first: bool) -> str:
    return trains(torch.nn.Linear(width, 1).to(dtype), founded, first=first)


# --- Shared state ---------------------------------------------------------------------------------


def founders_with_a_checkpoint() -> tuple[int, float]:
    """Rank 0 has a checkpoint; the other ranks have equal new weights."""
    has_it = dist.get_rank() == 0
    state = state_of(1000, fill=7.0) if has_it else state_of(0, fill=1.0)
    pccl.sync_shared_state(state)
    return state.revision, state["w"][0].item()


def one_member_is_ahead() -> tuple[int, float]:
    state = state_of(5)
    pccl.sync_shared_state(state)
    if dist.get_rank() == 2:
        state["w"].fill_(6.0)
        state.revision += 1
    pccl.sync_shared_state(state)
    return state.revision, state["w"][0].item()


def trains_on_without_a_sync(joins: bool, founded: Path) -> tuple[int, float]:
    """Two members take two steps without a sync; a newcomer comes with older weights."""
    state = state_of(0)
    join_when(founded) if joins else world.current.init()
    try:
        return trains_on(state, joins, founded)
    finally:
        dist.destroy_process_group()


def trains_on(state: pccl.SharedState, joins: bool, founded: Path) -> tuple[int, float]:
    if joins:
        while state["w"][0] == 0:
            try:
                pccl.sync_shared_state(state)
            except pccl.SharedStateError as error:
                assert "revision 2" in str(error), error  # noqa: PT017
        return state.revision, state["w"][0].item()
    pccl.sync_shared_state(state)
    founded.touch()
    state["w"].fill_(2.0)
    state.revision += 2
    while dist.get_world_size() < PEERS + 1:
        pccl.update_topology()
        time.sleep(0.01)  # stands for a step; without it the loop takes the cores of the newcomers
    try:
        pccl.sync_shared_state(state)
    except pccl.SharedStateError as error:
        assert "revision 0" in str(error), error  # noqa: PT017
        assert "state.revision = 1" in str(error), error  # noqa: PT017
    else:
        raise AssertionError("two steps were taken for one")
    assert (state["w"] == 2.0).all()
    state.revision = 1
    pccl.sync_shared_state(state)
    return state.revision, state["w"][0].item()
