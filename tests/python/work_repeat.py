"""Run by test_membership.py: every collective fails after a loss, and works when it is repeated."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from work_membership import assemble
from world import expected

import pccl_backend as pccl

Tensors = list[torch.Tensor]
COUNT = 6


def mine(rank: int) -> torch.Tensor:
    return torch.arange(COUNT) * (rank + 1.0)


def all_of(size: int) -> torch.Tensor:
    return torch.stack([mine(rank) for rank in range(size)])


def reduced(op: dist.ReduceOp.RedOpType) -> Callable[[], Tensors]:
    def call() -> Tensors:
        tensor = mine(dist.get_rank())
        try:
            dist.all_reduce(tensor, op)
        finally:
            if pccl.run_info().last_error is not None:
                assert tensor.equal(mine(dist.get_rank())), "a failed call leaves its tensor"
        return [tensor]

    return call


def coalesced() -> Tensors:
    tensors = [mine(dist.get_rank()), mine(dist.get_rank())]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    return tensors


def broadcast() -> Tensors:
    tensor = mine(dist.get_rank())
    dist.broadcast(tensor, 1)
    return [tensor]


def gathered() -> Tensors:
    outputs = list(torch.zeros(dist.get_world_size(), COUNT))
    dist.all_gather(outputs, mine(dist.get_rank()))
    return outputs


def gathered_into_one() -> Tensors:
    output = torch.zeros(dist.get_world_size(), COUNT)
    dist.all_gather_into_tensor(output, mine(dist.get_rank()))
    return list(output)


def objects() -> Tensors:
    outputs: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(outputs, mine(dist.get_rank()))
    return outputs


def passed_on() -> Tensors:
    """Send to the next rank, and receive from the one before."""
    rank, size = dist.get_rank(), dist.get_world_size()
    received = torch.zeros(COUNT)
    send = dist.P2POp(dist.isend, mine(rank), (rank + 1) % size)
    receive = dist.P2POp(dist.irecv, received, (rank - 1) % size)
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()
    return [received]


def barrier() -> Tensors:
    dist.barrier()
    return []


# A call, and its results for a rank and a world size.
CALLS: dict[Callable[[], Tensors], Callable[[int, int], Tensors]] = {
    reduced(dist.ReduceOp.SUM): lambda rank, size: [all_of(size).sum(0)],
    reduced(dist.ReduceOp.AVG): lambda rank, size: [all_of(size).sum(0) / size],
    reduced(dist.ReduceOp.MAX): lambda rank, size: [all_of(size).amax(0)],
    coalesced: lambda rank, size: [all_of(size).sum(0)] * 2,
    broadcast: lambda rank, size: [mine(1)],
    gathered: lambda rank, size: list(all_of(size)),
    gathered_into_one: lambda rank, size: list(all_of(size)),
    objects: lambda rank, size: list(all_of(size)),
    passed_on: lambda rank, size: [mine((rank - 1) % size)],
    barrier: lambda rank, size: [],
}


def check(size: int) -> None:
    for call, results in CALLS.items():
        got, want = call(), results(dist.get_rank(), size)
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def repeats_each() -> int:
    """The highest rank dies; the others are those that they were before."""
    assemble(3)
    check(3)
    dist.barrier()  # the results of the others have arrived
    rank = dist.get_rank()
    if rank == 2:
        os._exit(9)
    for call in CALLS:
        with expected(pccl.PeerLostError, "lost"):
            call()
    pccl.update_topology()
    assert dist.get_rank() == rank
    check(2)
    dist.barrier()  # the first to leave would be lost for the other
    return rank
