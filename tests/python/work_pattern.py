"""Run by test_pattern.py in every process of a world."""

from __future__ import annotations

import hashlib
import os
import signal

import pytest
import torch
import torch.distributed as dist

import pccl_backend as pccl


def numbers(rank: int, size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(rank))


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def sums_in_rank_order(sizes: list[int]) -> str:
    """Compare float32 sums with the sums of one process, bit by bit."""
    world, rank = dist.get_world_size(), dist.get_rank()
    assert sum(pccl.run_info().shares) == 256
    digests = ""
    for size in sizes:
        tensor = numbers(rank, size)
        dist.all_reduce(tensor)
        want = numbers(0, size)
        for other in range(1, world):
            want += numbers(other, size)
        assert torch.equal(tensor, want), size
        digests += digest(tensor)
    return digests


def sum_of_everybody(size: int, members: int, peers: int) -> str:
    """Return a digest of the sum of this number of members. One peer more leaves in the middle of
    it."""
    while dist.get_world_size() < peers:
        pccl.update_topology()
    mine = numbers(dist.get_rank(), size)
    if dist.get_rank() == members:
        dist.all_reduce(mine, async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = mine.clone()
    if peers > members:
        with pytest.raises(pccl.PeerLostError):
            dist.all_reduce(tensor)
        assert torch.equal(tensor, mine), "a failed all-reduce leaves the tensor as it was"
        pccl.update_topology()
    dist.all_reduce(tensor)
    return digest(tensor)


def shares() -> list[int]:
    info = pccl.run_info()
    assert info.direct == (0, None), "all sizes"
    assert all(link.rate is None for link in info.links), "on one machine none is measured"
    return list(info.shares)
