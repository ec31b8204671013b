"""Run by test_any_source.py in every process of a world: receives that name no source."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from world import expected

import pccl_backend as pccl

ROUNDS = 5


def all_are_done() -> None:
    """Keep a rank that is done from leaving while another one still receives."""
    dist.barrier()


def message(sender: int, number: int) -> torch.Tensor:
    return torch.full((1000,), float(100 * sender + number))


def every_rank_sends_to_rank_0() -> None:
    """The sends of one rank arrive in their order, and each is received once."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        for number in range(ROUNDS):
            dist.send(message(rank, number), 0)
        all_are_done()
        return
    received = dict.fromkeys(range(1, size), 0)
    for _ in range(ROUNDS * (size - 1)):
        tensor = torch.empty(1000)
        source = dist.recv(tensor)
        assert torch.equal(tensor, message(source, received[source]))
        received[source] += 1
    assert received == dict.fromkeys(range(1, size), ROUNDS)
    all_are_done()


def several_at_once() -> None:
    """Receives that are under way together, called before and after the sends."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [torch.empty(1000) for _ in range(ROUNDS * (size - 1))]
    for sends_first in (True, False):
        if sends_first == (rank == 0):
            dist.barrier()
        if rank == 0:
            works = [dist.irecv(tensor) for tensor in tensors]
        else:
            works = [dist.isend(message(rank, number), 0) for number in range(ROUNDS)]
        if sends_first != (rank == 0):
            dist.barrier()
        for work in works:
            work.wait()
        if rank == 0:
            for tensor, work in zip(tensors, works, strict=True):
                assert tensor[0].item() // 100 == work._source_rank()
            values = sorted(tensor[0].item() for tensor in tensors)
            assert values == [100.0 * s + n for s in range(1, size) for n in range(ROUNDS)]
        all_are_done()


def tags_are_apart() -> None:
    rank = dist.get_rank()
    if rank == 1:
        dist.isend(message(1, 0), 0, tag=3).wait()
    elif rank == 2:
        dist.isend(message(2, 0), 0, tag=4).wait()
    elif rank == 0:
        tensor = torch.empty(1000)
        assert dist.recv(tensor, tag=4) == 2
        assert dist.recv(tensor, tag=3) == 1
    all_are_done()


def a_named_source_keeps_its_send() -> None:
    rank = dist.get_rank()
    if rank == 0:
        named, any_source = torch.empty(1000), torch.empty(1000)
        works = [dist.irecv(named, 1), dist.irecv(any_source)]
        for work in works:
            work.wait()
        assert works[0]._source_rank() == 1
        assert works[1]._source_rank() == 2
        assert torch.equal(named, message(1, 0))
        assert torch.equal(any_source, message(2, 0))
    elif rank <= 2:
        dist.send(message(rank, 0), 0)
    all_are_done()


def in_a_subgroup() -> None:
    """The source has its rank in the whole world, as in torch's documentation."""
    group = dist.new_group([1, 2])
    if dist.get_rank() == 1:
        dist.send(message(1, 0), 2, group=group)
    elif dist.get_rank() == 2:
        assert dist.recv(torch.empty(1000), group=group) == 1
    all_are_done()


def nobody_sends() -> None:
    """The receive fails on its own, its tensor stays as it was, and the group is unharmed."""
    group = dist.new_group(timeout=timedelta(seconds=0.5))
    if dist.get_rank() == 0:
        tensor = torch.full((4,), 7.0)
        work = dist.irecv(tensor, group=group)
        with expected(pccl.InvalidStateError, "sourceRank() of recv", "Call wait() first"):
            work._source_rank()
        with expected(
            pccl.OperationTimeoutError, "recv(float32, 4 elements, from any rank)", "500 ms"
        ):
            work.wait()
        assert torch.equal(tensor, torch.full((4,), 7.0))
    all_are_done()


def the_size_differs() -> None:
    rank = dist.get_rank()
    if rank < 2:
        with expected(pccl.CollectiveMismatchError, "4 elements", "5 elements"):
            dist.send(torch.ones(5), 0) if rank == 1 else dist.recv(torch.ones(4))
    all_are_done()


def bad_calls() -> None:
    with expected(ValueError, "elements of this one share memory"):
        dist.recv(torch.ones(4, 4).expand(2, 4, 4))
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    with expected(pccl.InvalidStateError, "only a receive"):
        work._source_rank()


def alone() -> None:
    with expected(ValueError, "recv without src: this rank is alone in its group"):
        dist.recv(torch.ones(4))


def the_group_is_destroyed() -> None:
    tensor = torch.full((4,), 7.0)
    work = dist.irecv(tensor)
    dist.destroy_process_group()
    # Another rank may have left before, or the master with rank 0.
    with expected(pccl.PcclError, "recv(float32, 4 elements, from any rank)"):
        work.wait()
    assert torch.equal(tensor, torch.full((4,), 7.0))
