"""Run by test_membership.py: runs of peers that join, leave and vanish."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from world import expected

import pccl_backend as pccl


def assemble(size: int, group: dist.ProcessGroup | None = None) -> None:
    """Update the topology until `size` members are there; a newcomer enters the same loop."""
    while (group or dist.group.WORLD).size() < size:
        time.sleep(0.02)
        pccl.update_topology(group)


def total(rank_values: bool = True) -> None:
    """Run one all-reduce and check it."""
    world, rank = dist.get_world_size(), dist.get_rank()
    tensor = torch.full((1000,), float(rank if rank_values else 1))
    dist.all_reduce(tensor)
    assert (tensor == (sum(range(world)) if rank_values else world)).all()


def torch_agrees() -> None:
    """Check that torch's own records agree with the group."""
    group = dist.group.WORLD
    size, rank = group.size(), group.rank()
    assert (dist.get_world_size(), dist.get_rank()) == (size, rank)
    assert dist.get_process_group_ranks(group) == list(range(size))
    assert dist.get_group_rank(group, size - 1) == size - 1
    backend: Any = group._get_backend(torch.device("cpu"))
    # Without it, torch's own numbers are constant.
    if hasattr(c10d.ProcessGroup, "supports_reconfigure"):
        assert (backend.size(), backend.rank()) == (size, rank)
    ranks: list[Any] = [None] * size
    dist.all_gather_object(ranks, rank)
    assert ranks == list(range(size))
    said = [rank]
    dist.broadcast_object_list(said, src=size - 1)
    assert said == [size - 1]


def grows_and_shrinks() -> str:
    """Grow from two to three peers, and shrink when one leaves voluntarily."""
    assemble(3)
    torch_agrees()
    total()
    dist.barrier()
    if dist.get_rank() == 2:
        return "left"
    with expected(pccl.PeerLostError):
        total()
    assert dist.get_world_size() == 3, "the size changes in update_topology only"
    topology = pccl.update_topology()
    assert len(topology.left) == 1
    assert topology.joined == ()
    assert topology.rank == dist.get_rank()
    assert topology.world_size == dist.get_world_size() == 2
    torch_agrees()
    total()
    info = pccl.run_info()
    assert info.world_size == len(info.members) == 2
    assert info.epoch == topology.epoch
    assert info.broken_by is None
    assert info.first_call_timeout == info.peer_timeout, "by default"
    assert info.call_timeout is None
    dist.barrier()  # otherwise the other leaves before its vote
    return "stayed"


def notices_newcomers() -> bool:
    """Poll, without disturbing running operations, until a peer is pending; then admit it."""
    if dist.get_world_size() == 1:
        while True:
            work = dist.all_reduce(torch.ones(10), async_op=True)
            pending = pccl.are_peers_pending()
            work.wait()
            if pending:
                break
            time.sleep(0.02)
        topology = pccl.update_topology()
        assert topology.world_size == 2
        assert len(topology.joined) == 1
        assert not topology.left
    assert not pccl.are_peers_pending()
    before = pccl.run_info().epoch
    unchanged = pccl.update_topology()
    assert (unchanged.epoch, unchanged.joined, unchanged.left) == (before, (), ()), "nothing to do"
    total()
    return dist.get_rank() == 0


def dies_in_reduction(count: int, in_flight: list[int]) -> dict[str, Any]:
    """The last rank dies while the others have posted different numbers of operations."""
    assemble(3)
    rank = dist.get_rank()
    total()
    if rank == 2:
        time.sleep(0.3)
        os._exit(9)
    before = [torch.randn(count) for _ in range(in_flight[rank])]
    tensors = [tensor.clone() for tensor in before]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    errors = []
    for work in works:
        with expected(pccl.PeerLostError) as raised:
            work.wait()
        errors.append(str(raised[0]))
    failed_at = time.monotonic()
    for tensor, old in zip(tensors, before, strict=True):
        assert tensor.equal(old), "a failed all-reduce has touched its tensor"
    with expected(pccl.PeerLostError, "update_topology"):
        dist.all_reduce(torch.ones(1))
    assert pccl.run_info().broken_by
    pccl.update_topology()
    assert dist.get_world_size() == 2
    for _ in range(5):
        total()
    return {"rank": rank, "errors": errors, "failed_at": failed_at}


# --- Shared state ---------------------------------------------------------------------------------


def make_state(seed: int, revision: int) -> pccl.SharedState:
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        "weight": torch.randn(257, 3, generator=generator),
        "counts": torch.randint(0, 100, (17,), generator=generator),
        "half": torch.randn(33, generator=generator).to(torch.bfloat16),
        "nothing": torch.empty(0, 4),
        "scalar": torch.tensor(float(seed)),
        "complex": torch.randn(5, generator=generator, dtype=torch.complex64),
    }
    return pccl.SharedState(tensors, revision=revision)


def tied(value: float) -> pccl.SharedState:
    weights = torch.full((4,), value)
    return pccl.SharedState({"embedding": weights, "head": weights}, revision=1)


def ties() -> None:
    """It works if both tie the entries. One alone is refused: no fetched state could be right."""
    rank = dist.get_rank()
    state = tied(float(rank))
    pccl.sync_shared_state(state)
    assert (state["head"] == 0).all(), "of rank 0"
    untied = {"embedding": torch.ones(4), "head": torch.full((4,), 2.0)}
    state = pccl.SharedState(untied, revision=2) if rank == 0 else tied(5.0)
    with expected(pccl.SharedStateError, "head"):
        pccl.sync_shared_state(state)
    assert rank == 0 or (state["head"] == 5.0).all()


def views(async_op: bool) -> None:
    """Views that are not contiguous are gathered and scattered; memory beside them is untouched."""
    rank = dist.get_rank()
    base = torch.arange(5 * 6000, dtype=torch.float32).reshape(5, 6000) + 1000 * rank
    before = base.clone()
    tensors = {
        "even": base[:, 0:4000:2],
        "odd": base[:, 1:4000:2],
        "transposed": base[:2, 4000:5000].t(),
        "conjugate": torch.full((3,), 1j * (rank + 1)).conj(),
    }
    state = pccl.SharedState(tensors, revision=1)
    result = pccl.sync_shared_state(state, async_op=async_op)
    if isinstance(result, pccl.state_sync.StateSync):
        assert base.equal(before)
        result = result.wait()
    expected_base = before.clone()
    expected_base[:, :4000] -= 1000 * rank
    expected_base[:2, 4000:5000] -= 1000 * rank
    assert base.equal(expected_base)
    assert tensors["conjugate"].tolist() == [-1j] * 3
    state.revision = 2
    assert pccl.sync_shared_state(state).rx_bytes == 0


def moved() -> None:
    """From one sync to the next, tensors of one state get other values, memory or shapes."""
    rank = dist.get_rank()
    tensors = {f"layer.{number:02}": torch.full((6,), float(number)) for number in range(60)}
    state = pccl.SharedState(tensors)
    pccl.sync_shared_state(state)

    def sync(name: str, value: float) -> None:
        """Rank 0 has a new revision: all elements of this tensor have one value."""
        if rank == 0:
            tensors[name].fill_(value)
            state.revision += 1
        info = pccl.sync_shared_state(state)
        assert info.rx_bytes == (0 if rank == 0 else tensors[name].nbytes)
        assert (tensors[name] == value).all()
        assert pccl.sync_shared_state(state).rx_bytes == 0

    sync("layer.00", 100.0)
    for turn, name in enumerate(("layer.00", "layer.31", "layer.59")):
        before = tensors[name].detach()
        tensors[name].data = torch.zeros(6)
        sync(name, 200.0 + turn)
        assert (before != 200.0 + turn).all(), "the old memory was written"
        tensors[name].set_(torch.zeros(6))  # type: ignore[call-overload]
        sync(name, 300.0 + turn)
        tensors[name].resize_(2, 3)  # the same memory
        sync(name, 400.0 + turn)
        tensors[name].resize_(6000)
        sync(name, 500.0 + turn)
    tensors["layer.40"].data = torch.zeros(12)[::2]
    sync("layer.40", 600.0)
    sync("layer.40", 601.0)


def same(left: pccl.SharedState, right: pccl.SharedState) -> bool:
    return all(left[key].equal(right[key]) for key in left)


def syncs() -> None:
    """Sync with all strategies on three ranks."""
    assemble(3)
    rank = dist.get_rank()
    size = sum(t.nbytes for t in make_state(0, 0).values())

    # All ranks hold the same state.
    state = make_state(1, revision=0)
    info = pccl.sync_shared_state(state)
    assert (info.revision, info.tx_bytes, info.rx_bytes) == (0, 0, 0)
    hashes: list[Any] = [None] * 3
    dist.all_gather_object(hashes, info.hash)
    assert set(hashes) == {info.hash}

    # One rank has another content: the popular one wins.
    state = make_state(2 if rank == 1 else 3, revision=1)
    info = pccl.sync_shared_state(state)
    assert same(state, make_state(3, 1))
    assert 0 < info.rx_bytes <= size if rank == 1 else info.rx_bytes == 0

    # All differ: the send-only rank is elected, and the receive-only ranks take its state.
    strategy = "send_only" if rank == 2 else "receive_only"
    state = make_state(10 + rank, revision=2)
    info = pccl.sync_shared_state(state, strategy=strategy)
    assert same(state, make_state(12, 2))
    assert info.revision == state.revision == 2
    if rank == 2:
        assert info.tx_bytes > 0

    # A revision that does not follow the last one.
    state = make_state(4, revision=9)
    with expected(pccl.SharedStateError, "9"):
        pccl.sync_shared_state(state)

    # Other names.
    other = pccl.SharedState({f"name {rank // 2}": torch.ones(3)}, revision=3)
    with expected(pccl.SharedStateError):
        pccl.sync_shared_state(other)
    total()


def newcomer_gets_the_state() -> int:
    """A founder trains; a newcomer has its state after one sync."""
    newcomer = dist.get_world_size() > 1
    state = make_state(99, 0) if newcomer else make_state(7, 5)
    if not newcomer:
        pccl.sync_shared_state(state)
        assemble(2)
    info = pccl.sync_shared_state(state)
    assert same(state, make_state(7, 5))
    assert state.revision == info.revision == 5
    return info.rx_bytes
