"""Run by test_async_sync.py: shared state that travels while the members go on."""

from __future__ import annotations

import gc
import logging
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from work_membership import assemble, make_state, same
from world import expected, wait_until

import pccl_backend as pccl


def fetched_in_background(
    members: int,
) -> tuple[bool, torch.Tensor, pccl.SharedState, pccl.state_sync.StateSync]:
    """Let a newcomer among this number of members fetch 32 MiB; return whether this is it, and its
    sync."""
    newcomer = dist.get_world_size() > members
    weights = torch.full((8 << 20,), float("nan") if newcomer else 3.0)
    state = pccl.SharedState({"weights": weights}, revision=0 if newcomer else 1)
    if not newcomer:
        pccl.sync_shared_state(state)
        assemble(members + 1)
    strategy = "receive_only" if newcomer else "enforce_popular"
    sync = pccl.sync_shared_state(state, strategy, async_op=True)
    assert sync.receives is newcomer
    return newcomer, weights, state, sync


def members_go_on() -> dict[str, bool]:
    """A newcomer fetches 32 MiB while all ranks make collectives."""
    newcomer, weights, state, sync = fetched_in_background(members=1)
    agreed = sync.revision, sync.hash
    for _ in range(20):
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        assert (tensor == 1).all(), "the newcomer is absent"
    with expected(pccl.InvalidStateError, "first wait"):
        pccl.are_peers_pending()
    with expected(pccl.InvalidStateError, "first wait"):
        pccl.sync_shared_state(pccl.SharedState({"other": torch.ones(1)}))
    with expected(pccl.InvalidStateError, "this state cannot be synchronized", "first wait"):
        pccl.sync_shared_state(state)
    with expected(pccl.InvalidStateError, "revision cannot change to 7"):
        state.revision = 7
    assert not newcomer or weights.isnan().all(), "nothing is written before wait"
    info = sync.wait()
    assert sync.is_completed()
    assert sync.wait() == info, "a second wait returns the same"
    assert (weights == 3).all()
    assert info.revision == state.revision == 1
    assert agreed == (info.revision, info.hash)
    assert info.rx_bytes == (weights.nbytes if newcomer else 0)
    state.revision = 2
    pccl.sync_shared_state(state)
    return {"newcomer": newcomer}


def sums(newcomer: bool, count: int, present: int) -> None:
    """Make every kind of sum and average. Member i gives i + 1, and the newcomer gives NaN."""
    rank, world = dist.get_rank(), dist.get_world_size()
    total, average = present * (present + 1) / 2, (present + 1) / 2

    def given(size: int = count) -> torch.Tensor:
        return torch.full((size,), float("nan") if newcomer else rank + 1.0)

    tensor = given()
    dist.all_reduce(tensor)
    assert (tensor == total).all()
    tensor = given()
    pccl.all_reduce(tensor, op="avg")
    assert (tensor == average).all()
    both = [given(), given(3)]
    dist.group.WORLD.allreduce_coalesced(both).wait()
    assert all((one == total).all() for one in both)
    tensor = given()
    pccl.all_reduce(tensor, op="avg", quantize=pccl.quantization.MinMax(bits=8))
    assert (tensor - average).abs().max() < 0.1
    half = given().bfloat16()
    pccl.all_reduce(half, op="avg")
    assert (half == average).all()
    whole = torch.full((count,), 1 << 40 if newcomer else -1 - rank)
    pccl.all_reduce(whole, op="avg")
    assert (whole == -(int(total) // present)).all()
    block = torch.empty(count)
    dist.reduce_scatter_tensor(block, given(count * world), op=dist.ReduceOp.AVG)
    assert (block == average).all()
    tensor = given()
    dist.reduce(tensor, 0)
    if rank == 0:
        assert (tensor == total).all()

    tensor = given()
    work = pccl.all_reduce(tensor, op="avg", on_loss="keep", async_op=True)
    work.wait()
    assert (tensor == average).all()
    members = [member.peer for member in pccl.run_info().members]
    (part,) = pccl.contributors(work)
    assert (part.start, part.stop) == (0, count)
    assert part.peers == tuple(members[:present])


def absent_while_it_fetches() -> dict[str, bool]:
    """A newcomer takes part in the sums of the others before it has the shared state."""
    newcomer, weights, _, sync = fetched_in_background(members=2)
    for count in (1, 1000, 1 << 20):
        sums(newcomer, count, present=2)
    largest = torch.full((1000,), dist.get_rank() + 1.0)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    assert (largest == 3).all(), "only sums and averages are without the newcomer"
    sync.wait()
    assert (weights == 3).all()
    for count in (1, 1000, 1 << 20):
        sums(False, count, present=3)
    return {"newcomer": newcomer}


def a_written_tensor_is_named() -> None:
    """Rank 0 writes a tensor while it is lent; the others are not disturbed."""
    rank = dist.get_rank()
    state = make_state(1, revision=0)
    sync = pccl.sync_shared_state(state, async_op=True)
    if rank == 0:
        state["half"].add_(1)
        for _ in range(2):
            with expected(pccl.SharedStateError, "'half' was written while"):
                sync.wait()
    else:
        assert sync.wait(timedelta(seconds=20)).revision == 0
    state.revision = 0
    pccl.sync_shared_state(state)
    assert same(state, make_state(1, 0))


def dropped_without_wait() -> None:
    """The result of the call is dropped: the tensors stay as they are."""
    rank = dist.get_rank()
    state = make_state(rank, revision=0)
    sync = pccl.sync_shared_state(state, async_op=True)
    assert wait_until(sync.is_completed, timeout_s=30)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del sync
        gc.collect()
    expected_text = "dropped without wait(): what this process fetches is thrown away"
    assert [expected_text in str(one.message) for one in caught] == [True] * rank
    assert same(state, make_state(rank, 0))
    state.revision = 1
    state.revision = 0
    pccl.sync_shared_state(state)
    assert same(state, make_state(0, 0))


def ends_with_its_group() -> bool:
    """The group ends while a sync is under way, and its object is still there."""
    state = make_state(1, revision=0)
    sync = pccl.sync_shared_state(state, async_op=True)
    dist.destroy_process_group()
    with expected(TypeError, "timeout must be a timedelta"):
        sync.wait(1)  # type: ignore[arg-type]
    assert sync.is_completed()
    return True


def tells_its_progress(async_op: bool) -> int:
    """Rank 1 fetches 12 MiB, and its function raises each time."""
    rank = dist.get_rank()
    weights = torch.full((3 << 20,), float(rank))
    state = pccl.SharedState({"weights": weights}, revision=0)
    told: list[tuple[int, int, int]] = []
    logged: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = logged.append  # type: ignore[method-assign]
    logging.getLogger("pccl").addHandler(handler)

    def progress(done: int, total: int, peers: int) -> None:
        told.append((done, total, peers))
        raise RuntimeError("of the progress function")

    result = pccl.sync_shared_state(state, async_op=async_op, progress=progress)
    if isinstance(result, pccl.state_sync.StateSync):
        result.wait()
    assert (weights == 0).all()
    assert [record.levelname for record in logged] == ["WARNING"] * len(told)
    if rank == 0:
        assert told == []
        return 0
    assert [total for _, total, _ in told] == [12 << 20] * len(told)
    dones = [done for done, _, _ in told]
    assert dones == sorted(dones)
    assert dones[-1] == 12 << 20
    assert all(peers <= 1 for _, _, peers in told)
    return len(told)


def a_program_may_end_in_its_progress() -> None:
    """An exception that ends programs is not held back."""
    weights = torch.full((3 << 20,), float(dist.get_rank()))
    state = pccl.SharedState({"weights": weights}, revision=0)

    def progress(*_: int) -> None:
        raise SystemExit(3)

    sync = pccl.sync_shared_state(state, async_op=True, progress=progress)
    if sync.receives:
        with expected(SystemExit):
            sync.wait()
    assert sync.wait(timedelta(seconds=20)).revision == 0
    assert (weights == 0).all()


def wrong_arguments() -> None:
    state = make_state(1, revision=0)
    with expected(TypeError, "progress must be a function, not int"):
        pccl.sync_shared_state(state, progress=3)  # type: ignore[call-overload]
    with expected(TypeError, "async_op must be a bool, not str"):
        pccl.sync_shared_state(state, async_op="yes")  # type: ignore[call-overload]
    sync = pccl.sync_shared_state(state, async_op=True)
    with expected(ValueError, "timeout"):
        sync.wait(timedelta(0))
    sync.wait()
