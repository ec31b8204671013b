"""Run by test_leaving.py: ranks of a fixed world that are done before the others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import world
from world import expected

import pccl_backend as pccl

LIMIT = timedelta(seconds=60)


class Signs:
    """Signs that the ranks give each other, in a file that outlives the group of any rank."""

    def __init__(self, path: str) -> None:
        self._store = dist.FileStore(path, -1)
        self._rank = dist.get_rank()

    def give(self, sign: str) -> None:
        self._store.set(f"{self._rank} {sign}", "yes")

    def wait(self, sign: str, *ranks: int) -> None:
        self._store.wait([f"{rank} {sign}" for rank in ranks], LIMIT)

    def leave(self) -> None:
        dist.destroy_process_group()
        self.give("has left")


def pipeline(path: str) -> float:
    """Pass tensors from stage to stage. Each stage leaves when it has passed on its last one."""
    rank, size, signs = dist.get_rank(), dist.get_world_size(), Signs(path)
    seen = 0.0
    for batch in range(4):
        if batch == 3 and rank == 2:
            signs.wait("has left", 0)  # the last tensor goes on without the first stage
        if batch == 3 and rank == 1:
            tensor = torch.empty(1000)
            dist.recv(tensor, 0)
            signs.wait("has left", 0)
        else:
            tensor = torch.full((1000,), float(batch))
            if rank > 0:
                dist.recv(tensor, rank - 1)
        tensor += 1
        if rank < size - 1:
            dist.send(tensor, rank + 1)
        seen += tensor[0].item()
    signs.leave()
    return seen


CALLS: dict[str, Callable[[torch.Tensor], object]] = {
    "all_reduce": dist.all_reduce,
    "broadcast": lambda tensor: dist.broadcast(tensor, 1),
    "all_gather": lambda tensor: dist.all_gather([torch.empty(4) for _ in range(3)], tensor),
    "barrier": lambda _: dist.barrier(),
    "average": lambda tensor: pccl.all_reduce(tensor, op="avg", tag="other"),
    "send to the leaver": lambda tensor: dist.send(tensor, 0),
    "recv from the leaver": lambda tensor: dist.recv(tensor, 0),
}


def calls_after_a_leave(path: str) -> list[str]:
    """Return the errors of calls that need a rank that has left. Then go on without it."""
    rank, size, signs = dist.get_rank(), dist.get_world_size(), Signs(path)
    if rank == 0:
        signs.leave()
        return []
    signs.wait("has left", 0)
    errors: list[str] = []
    for name, call in CALLS.items():
        tensor = torch.full((4,), float(rank))
        with expected(pccl.PeerLostError, "rank 0", "has left") as caught:
            call(tensor)
        assert (tensor == rank).all(), f"{name} has changed its tensor"
        if "leaver" not in name:
            errors.append(str(caught[0]))
        # The others still reach each other.
        if rank == 1:
            dist.send(torch.full((4,), 7.0), 2)
        else:
            dist.recv(tensor, 1)
            assert (tensor == 7).all()
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    topology = pccl.update_topology()
    assert (topology.rank, topology.world_size) == (rank - 1, size - 1)
    assert len(topology.left) == 1
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert (tensor == size - 1).all()
    return errors


def all_reduce_under_way(path: str) -> str:
    """Leave while the others wait in an all-reduce."""
    rank, size, signs = dist.get_rank(), dist.get_world_size(), Signs(path)
    if rank == 0:
        signs.wait("has called", *range(1, size))
        signs.leave()
        return ""
    tensor = torch.full((4,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    signs.give("has called")
    with expected(pccl.PeerLostError, "rank 0", "has left") as caught:
        work.wait()
    assert (tensor == rank).all()
    return str(caught[0])


def receive_from_any(path: str) -> None:
    """Receive what ranks have sent before they left. Then no rank is left that could send."""
    rank, size, signs = dist.get_rank(), dist.get_world_size(), Signs(path)
    if rank < size - 1:
        dist.send(torch.full((4,), float(rank)), size - 1)
        signs.leave()
        return
    tensor = torch.empty(4)
    assert {dist.recv(tensor) for _ in range(size - 1)} == set(range(size - 1))
    signs.wait("has left", *range(size - 1))
    with expected(pccl.PeerLostError, "every other rank has left"):
        dist.recv(tensor)


def with_retry(path: str) -> int:
    """Leave as rank 0 under policy `retry`: for the others this is a loss, and they go on."""
    rank, signs = dist.get_rank(), Signs(path)
    dist.barrier()  # each knows its first rank: the loss gives the others new ones
    if rank == 0:
        signs.leave()
        return 0
    signs.wait("has left", 0)
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    return int(tensor[0])


def group_that_rank_0_leaves(path: str) -> None:
    """Leave a further group as its rank 0, whose process hosts its run. The others use it."""
    rank, size, signs = dist.get_rank(), dist.get_world_size(), Signs(path)
    group = dist.new_group(list(range(size)))
    dist.all_reduce(torch.ones(1), group=group)
    if rank == 0:
        dist.destroy_process_group(group)
        signs.give("has left the group")
    else:
        signs.wait("has left the group", 0)
        tensor = torch.full((4,), float(rank))
        if rank == 1:
            dist.send(tensor, 2, group=group)
        elif rank == 2:
            dist.recv(tensor, 1, group=group)
            assert (tensor == 1).all()
    dist.all_reduce(torch.ones(1))


# --- The end of the process of rank 0 -------------------------------------------------------------


def rank_0_ends_well(turns: int, step_s: float) -> None:
    """End the process of rank 0. The others send to each other for `turns` steps, or for ever."""
    world.current.init()
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup ignores it
        return
    tensor = torch.full((4,), float(rank))
    turn = 0
    while turn != turns:
        time.sleep(step_s)  # the work of a step
        turn += 1
        try:
            dist.send(tensor, 2) if rank == 1 else dist.recv(tensor, 1)
        except pccl.MasterLostError as error:
            print(f"MasterLostError: {error}", flush=True)
            return


def rank_0_is_killed() -> None:
    """Kill the process of rank 0 while the others wait for it."""
    world.current.init()
    rank = dist.get_rank()
    try:
        dist.all_reduce(torch.ones(1))
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)  # the others may still wait for this verdict
        dist.all_reduce(torch.ones(1))
    except pccl.PcclError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
