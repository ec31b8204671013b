"""Run by test_ddp.py: DistributedDataParallel over pccl, against training in one process."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from work_membership import assemble
from world import expected

import pccl_backend as pccl

STEPS = 4
BATCH = 6


class Net(nn.Module):
    """A model with several gradient buckets; `rare` adds a layer that every other step skips."""

    def __init__(self, *, rare: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(20, 300)
        self.second = nn.Linear(300, 300)
        self.last = nn.Linear(300, 3)
        self.rare = nn.Linear(300, 300) if rare else None
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        self.calls += 1
        layer = self.rare if self.rare and self.calls % 2 == 0 else self.second
        return self.last(torch.relu(layer(x)))  # type: ignore[no-any-return]


def batches(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(100 + rank)
    return [
        (torch.randn(BATCH, 20, generator=generator), torch.randn(BATCH, 3, generator=generator))
        for _ in range(STEPS)
    ]


def alone(world: int, *, rare: bool) -> dict[str, torch.Tensor]:
    """Train on the batches of all ranks in this process."""
    torch.manual_seed(0)
    model = Net(rare=rare)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        parts = [batches(rank)[step] for rank in range(world)]
        inputs, targets = (torch.cat(side) for side in zip(*parts, strict=True))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return model.state_dict()


def together(**options: Any) -> None:
    """Train with DDP, and compare with training in one process."""
    world, rank = dist.get_world_size(), dist.get_rank()
    rare = bool(options.get("find_unused_parameters"))
    hook = options.pop("hook", None)
    # With init_sync, all ranks start with rank 0's parameters. Without it, they need equal seeds.
    torch.manual_seed(rank if options.get("init_sync", True) else 0)
    model = Net(rare=rare)
    # PowerSGD calls collectives in callbacks. With one bucket their order is the same on all ranks.
    bucket_mb = 25.0 if hook == "power_sgd" else 0.2
    ddp = DistributedDataParallel(model, bucket_cap_mb=bucket_mb, **options)
    if hook == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "power_sgd":
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for inputs, targets in batches(rank):
        optimizer.zero_grad()
        nn.functional.mse_loss(ddp(inputs), targets).backward()
        optimizer.step()
    tolerance = {None: 1e-5, "fp16": 2e-2, "power_sgd": float("inf")}[hook]
    for name, want in alone(world, rare=rare).items():
        assert torch.allclose(model.state_dict()[name], want, rtol=tolerance, atol=tolerance), name
        mine = model.state_dict()[name].clone()
        theirs = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(theirs, mine)
        assert all(other.equal(mine) for other in theirs), f"{name} differs between ranks"


def all_of_it() -> None:
    together()
    together(find_unused_parameters=True, init_sync=False)
    together(hook="fp16")
    together(hook="power_sgd")


def loses_a_peer_in_backward() -> str:
    """backward() raises a loss as PeerLostError, and training continues after it."""
    assemble(3)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(), init_sync=False, find_unused_parameters=True)
    rank = dist.get_rank()
    inputs, targets = batches(rank)[0]

    def step() -> None:
        model.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()

    step()
    if rank == 2:
        os._exit(9)
    with expected(pccl.PeerLostError) as raised:
        step()
    pccl.update_topology()
    assert dist.get_world_size() == 2
    step()
    return str(raised[0])
