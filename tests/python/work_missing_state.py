"""Run by test_missing_state.py: peers whose state has fewer tensors than the others' states."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from work_membership import assemble
from world import expected

import pccl_backend as pccl

LARGE = 3 << 20  # elements: three pieces of 4 MiB


def whole(fill: float) -> dict[str, torch.Tensor]:
    """The state of a model with its optimizer."""
    return {
        "model.weight": torch.full((LARGE,), fill),
        "optimizer.complex": torch.full((2, 3), complex(fill, 1)),
        "optimizer.empty": torch.full((0, 4), fill),
        "optimizer.exp_avg": torch.full((LARGE,), fill),
        "optimizer.half": torch.full((5,), fill, dtype=torch.bfloat16),
        "optimizer.step": torch.tensor(fill),
        "optimizer.times": torch.tensor([int(fill)]),
    }


def takes_what_it_lacks(async_op: bool) -> bool:
    """Rank 0 has everything, rank 1 the model, and rank 2 nothing. Then all have the same."""
    rank = dist.get_rank()
    names = [list(whole(0)), ["model.weight"], []][rank]
    own = {name: tensor for name, tensor in whole(7 if rank == 0 else 0).items() if name in names}
    state = pccl.SharedState(own, revision=4 if rank == 0 else 0, allow_missing=rank > 0)
    assert repr(state).endswith("allow_missing=True)") == (rank > 0)
    strategy = "send_only" if rank == 0 else "receive_only"
    result = pccl.sync_shared_state(state, strategy, async_op=async_op)
    if isinstance(result, pccl.state_sync.StateSync):
        assert set(state) == set(names), "nothing is added before wait"
        info = result.wait()
        assert result.wait() == info
    else:
        info = result
    assert info.added == tuple(name for name in whole(0) if name not in names)
    assert not state.allow_missing
    assert state.revision == 4
    for name, expect in whole(7).items():
        assert state[name].dtype == expect.dtype
        assert torch.equal(state[name], expect), name
    assert all(state[name] is own[name] for name in names), "its own tensors stay"
    # From now on it is a state like the others'.
    for tensor in state.values():
        tensor.zero_()
    state.revision += 1
    assert pccl.sync_shared_state(state).rx_bytes == 0
    return True


def newcomer_joins() -> None:
    """A founder has trained; a newcomer has no tensor at all."""
    newcomer = dist.get_world_size() > 1
    state = pccl.SharedState({} if newcomer else whole(3), allow_missing=newcomer)
    if not newcomer:
        pccl.sync_shared_state(state)
        assemble(2)
    info = pccl.sync_shared_state(state, "receive_only" if newcomer else "enforce_popular")
    assert info.added == (tuple(whole(0)) if newcomer else ())
    assert all(torch.equal(state[name], tensor) for name, tensor in whole(3).items())
    for tensor in state.values():
        tensor.add_(1)
    state.revision += 1
    assert pccl.sync_shared_state(state).rx_bytes == 0


def tied_otherwise() -> None:
    """Rank 1 ties two tensors that are apart on rank 0: the same error for both."""
    weight = torch.ones(4)
    if dist.get_rank() == 0:
        state = pccl.SharedState({"head": torch.ones(4), "table": torch.zeros(4)})
    else:
        state = pccl.SharedState({"head": weight, "table": weight}, allow_missing=True)
    with expected(pccl.SharedStateError, '"table" is another name'):
        pccl.sync_shared_state(state, "receive_only" if state.allow_missing else "send_only")
    assert state.allow_missing == (dist.get_rank() == 1)


def has_no_room() -> None:
    """The state that rank 1 lacks does not fit into its host's memory: the same error for both."""
    from pccl_backend import _memory

    _memory.available = lambda: 15
    rank = dist.get_rank()
    tensors = {"w": torch.ones(4)} if rank == 0 else {}
    state = pccl.SharedState(tensors, allow_missing=rank == 1)
    with expected(pccl.SharedStateError, "1 tensor of 16 bytes", "15 bytes"):
        pccl.sync_shared_state(state, "receive_only" if rank == 1 else "enforce_popular")


def has_others() -> None:
    """Rank 1 has a tensor that no other rank has."""
    rank = dist.get_rank()
    tensors = {"a": torch.ones(4)} if rank == 0 else {"b": torch.ones(4)}
    state = pccl.SharedState(tensors, allow_missing=rank == 1)
    with expected(pccl.SharedStateError, '"b" is absent at rank 0 and float32[4] at rank 1'):
        pccl.sync_shared_state(state, "receive_only" if rank == 1 else "enforce_popular")


def all_lack_something() -> None:
    state = pccl.SharedState({}, allow_missing=True)
    with expected(pccl.SharedStateError, "all are receive_only"):
        pccl.sync_shared_state(state, "receive_only")


def wrong_arguments() -> None:
    with expected(TypeError, "allow_missing must be a bool, not int"):
        pccl.SharedState({}, allow_missing=1)  # type: ignore[arg-type]
    state = pccl.SharedState({"w": torch.ones(1)}, allow_missing=True)
    for strategy in ("enforce_popular", "send_only"):
        with expected(ValueError, f"strategy is '{strategy}'", 'Use strategy="receive_only"'):
            pccl.sync_shared_state(state, strategy)
    total = torch.ones(1)
    dist.all_reduce(total)  # nothing is under way


CASES: list[Callable[[], None]] = [tied_otherwise, has_no_room, has_others, all_lack_something]
