"""Run by test_shards.py: every way to cut a tensor between the processes of a host."""

from __future__ import annotations

import torch
import torch.distributed as dist
import world
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor

from pccl_backend.trainers.shards import local_of, shard_of

SHAPES = [(7, 5), (2, 3), (1,), (), (4, 0), (8, 6, 5)]


def parts() -> None:
    job = world.current
    dist.init_process_group("gloo", init_method=job.init_method, rank=job.rank, world_size=job.size)
    for shape in SHAPES:
        tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        check(tensor, tensor.clone())
        ways: list[Placement] = [Replicate(), *(Shard(dim) for dim in range(len(shape)))]
        line = init_device_mesh("cpu", (job.size,))
        for way in ways:
            check(tensor, cut(tensor, line, [way]))
        if job.size == 4:
            square = init_device_mesh("cpu", (2, 2))
            for first in ways:
                for second in ways:
                    check(tensor, cut(tensor, square, [first, second]))


def cut(tensor: torch.Tensor, mesh: DeviceMesh, ways: list[Placement]) -> torch.Tensor:
    return distribute_tensor(tensor.clone(), mesh, ways, src_data_rank=None)


def check(tensor: torch.Tensor, mine: torch.Tensor) -> None:
    shard = shard_of(mine, leads=dist.get_rank() == 0)
    local = local_of(mine)
    assert torch.equal(shard.of(tensor), local), (shard, mine)
    written = torch.zeros(tensor.shape)
    if shard.writes:
        shard.of(written).add_(1)
    dist.all_reduce(written)
    assert (written == 1).all(), "each element has one writer"
    local.fill_(7.0)
    assert (local_of(mine) == 7).all(), "a write reaches the model"
