"""Run by test_beside_gloo.py: the same training over pccl and over Gloo, and through a loss.

Each way to train is a function of a Mesh, which has the groups of one backend. It returns the
losses of this rank, step by step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import work_fsdp
import world
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from work_ddp import Net
from work_membership import assemble

import pccl_backend as pccl

STEPS = 5
BATCH = 6
LOST_AT = 2  # the step that loses a replica


@dataclass(frozen=True)
class Mesh:
    """The groups of one backend: of all ranks, and of the rows and columns of a square."""

    backend: str
    whole: dist.ProcessGroup
    replicas: dist.ProcessGroup
    shards: dist.ProcessGroup
    square: torch.Tensor

    @staticmethod
    def of(backend: str) -> Mesh:
        size, rank = dist.get_world_size(), dist.get_rank()
        square = torch.arange(size).view(2, size // 2)  # replicas by shards
        groups = {}
        for name, lists in (("shards", square.tolist()), ("replicas", square.T.tolist())):
            for ranks in lists:
                group = dist.new_group(ranks, backend=backend)
                if rank in ranks:
                    groups[name] = group
        whole = dist.new_group(backend=backend)
        return Mesh(backend=backend, whole=whole, square=square, **groups)

    def flat(self) -> DeviceMesh:
        return DeviceMesh.from_group(self.whole, "cpu")

    def hybrid(self) -> DeviceMesh:
        return DeviceMesh.from_group(
            [self.replicas, self.shards],
            "cpu",
            mesh=self.square,
            mesh_dim_names=("replicate", "shard"),
        )


class Words(nn.Module):
    """A model whose embedding has sparse gradients: rows of the words of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(200, 16, sparse=True)
        self.last = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = (x.abs() * 50).long().clamp_max(199)
        return self.last(self.table(words).mean(1))  # type: ignore[no-any-return]


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(BATCH, 20, generator=chance), torch.randn(BATCH, 3, generator=chance)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: Iterable[int] = range(STEPS)
) -> list[float]:
    losses = []
    for step in steps:
        inputs, targets = batch(dist.get_rank(), step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def seeded(make: Callable[[], nn.Module] = Net) -> nn.Module:
    torch.manual_seed(0)
    return make()


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


# --- Ways to train --------------------------------------------------------------------------------


def ddp_one_bucket(mesh: Mesh) -> list[float]:
    model = DistributedDataParallel(seeded(), process_group=mesh.whole)
    return train(model, momentum(model))


def ddp_several_buckets(mesh: Mesh) -> list[float]:
    model = DistributedDataParallel(seeded(), process_group=mesh.whole, bucket_cap_mb=0.05)
    return train(model, momentum(model))


def ddp_sparse(mesh: Mesh) -> list[float]:
    model = DistributedDataParallel(seeded(Words), process_group=mesh.whole)
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1))


def zero(mesh: Mesh) -> list[float]:
    model = DistributedDataParallel(seeded(), process_group=mesh.whole)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.Adam, process_group=mesh.whole, lr=0.01
    )
    return train(model, optimizer)


def sharded(mesh: DeviceMesh) -> Net:
    model = seeded()
    assert isinstance(model, Net)
    for layer in (model.first, model.second):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp(mesh: Mesh) -> list[float]:
    model = sharded(mesh.flat())
    return train(model, momentum(model))


def hsdp(mesh: Mesh) -> list[float]:
    model = sharded(mesh.hybrid())
    return train(model, momentum(model))


def checkpointed(mesh: Mesh) -> list[float]:
    """Save in the middle, load into a fresh model with other numbers, and go on."""
    model = sharded(mesh.flat())
    before = train(model, torch.optim.SGD(model.parameters(), lr=0.1), range(3))
    path = Path(world.current.log).parent / f"checkpoint-{mesh.backend}"
    dcp.save({"model": model.state_dict()}, checkpoint_id=path, process_group=mesh.whole)
    fresh = sharded(mesh.flat())
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    state = {"model": fresh.state_dict()}
    dcp.load(state, checkpoint_id=path, process_group=mesh.whole)
    fresh.load_state_dict(state["model"])
    after = train(fresh, torch.optim.SGD(fresh.parameters(), lr=0.1), range(3, STEPS))
    straight = sharded(mesh.flat())
    whole = train(straight, torch.optim.SGD(straight.parameters(), lr=0.1))
    assert before + after == whole, "what was loaded trains as what was saved"
    return whole


WAYS = {
    way.__name__: way
    for way in (ddp_one_bucket, ddp_several_buckets, ddp_sparse, zero, fsdp, hsdp, checkpointed)
}


def same_losses(name: str) -> None:
    """Two terms have the same sum in each order. Beyond two ranks the orders differ."""
    ours, theirs = (WAYS[name](Mesh.of(backend)) for backend in ("pccl", "gloo"))
    assert len(ours) == STEPS
    assert ours[-1] != ours[0]
    if dist.get_world_size() == 2:
        assert ours == theirs, (ours, theirs)
    else:
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-6, atol=1e-7)


# --- Through a loss -------------------------------------------------------------------------------


def alone(ranks_by_step: list[list[int]]) -> list[torch.Tensor]:
    """Train on the batches of these ranks in this process: the run that nothing disturbs."""
    model = seeded()
    optimizer = momentum(model)
    for step, ranks in enumerate(ranks_by_step):
        parts = [batch(rank, step) for rank in ranks]
        inputs, targets = (torch.cat(side) for side in zip(*parts, strict=True))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def check(model: nn.Module, ranks_by_step: list[list[int]]) -> None:
    for parameter, want in zip(model.parameters(), alone(ranks_by_step), strict=True):
        got = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        torch.testing.assert_close(got.detach(), want, rtol=1e-5, atol=1e-6)


def ddp_loses_a_replica(policy: str) -> int:
    """The highest rank dies before its backward pass of a step."""
    size = 3
    assemble(size)
    rank = dist.get_rank()
    model = DistributedDataParallel(seeded(), bucket_cap_mb=0.05)
    model.register_comm_hook(None, pccl.hooks.ddp_hook)
    optimizer = momentum(model)
    for step in range(STEPS):
        inputs, targets = batch(rank, step)
        if step == LOST_AT and rank == size - 1:
            os._exit(9)
        while True:
            optimizer.zero_grad()
            try:
                nn.functional.mse_loss(model(inputs), targets).backward()
                break
            except pccl.PeerLostError:
                assert policy == "raise"
                assert step == LOST_AT
                assert pccl.update_topology().world_size == size - 1
        optimizer.step()
    everybody, survivors = list(range(size)), list(range(size - 1))
    check(model, [everybody if step < LOST_AT else survivors for step in range(STEPS)])
    return dist.get_world_size()


def hsdp_loses_a_replica(url: str, folder: str, policy: str, way: str) -> int:
    """Two hosts of two ranks: FSDP2 within a host over Gloo, and pccl between them.

    Either both are dimensions of one mesh, or a hook of FSDP2 averages between the hosts.
    """
    host, _, inner, group = work_fsdp.enter(url, folder)
    rank = world.current.rank
    errors: list[pccl.PcclError] = []
    if way == "mesh":
        mesh = DeviceMesh.from_group(
            [group, inner.get_group()],
            "cpu",
            mesh=inner.mesh.unsqueeze(0),
            mesh_dim_names=("replicate", "shard"),
        )
        model = sharded(mesh)
    else:
        model = sharded(inner)

        def average(gradient: torch.Tensor) -> None:
            try:
                pccl.all_reduce(gradient, "avg", group=group)
            except pccl.PcclError as error:
                errors.append(error)

        for part in (model.first, model.second, model):
            part.set_all_reduce_hook(average)  # type: ignore[operator]
    optimizer = momentum(model)
    for step in range(STEPS):
        if step == LOST_AT and host == work_fsdp.HOSTS - 1:
            os._exit(9)
        inputs, targets = batch(rank, step)
        while True:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            failed = torch.tensor(len(errors))
            dist.all_reduce(failed, dist.ReduceOp.MAX)  # within the host
            if failed == 0:
                break
            assert policy == "raise"
            assert pccl.update_topology(group).world_size == work_fsdp.HOSTS - 1
            errors.clear()
        optimizer.step()
    everybody, survivors = [0, 1, 2, 3], [0, 1]
    check(model, [everybody if step < LOST_AT else survivors for step in range(STEPS)])
    return group.size()
