"""Run by test_fsdp.py: FSDP2 within a host over Gloo, and pccl between two hosts of two ranks.

Ranks 2 and 3 of the test are host 1. Ranks of equal number within their hosts form a peer group.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import world
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import pccl_backend as pccl

HOSTS = 2
LOCAL_RANKS = 2
BATCH = 4


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def batch(host: int, local_rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(10 * host + local_rank)
    return torch.randn(BATCH, 6, generator=generator)


def mean_gradients(hosts: range) -> list[torch.Tensor]:
    """Return the mean gradients of all ranks of these hosts, computed in this process."""
    model = net()
    inputs = [batch(host, local_rank) for host in hosts for local_rank in range(LOCAL_RANKS)]
    model(torch.cat(inputs)).square().mean().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def sharded(mesh: DeviceMesh) -> nn.Sequential:
    model = net()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def check(model: nn.Module, hosts: range) -> None:
    for parameter, mean in zip(model.parameters(), mean_gradients(hosts), strict=True):
        assert isinstance(parameter.grad, DTensor)
        torch.testing.assert_close(parameter.grad.full_tensor(), mean)


def enter(url: str, folder: str) -> tuple[int, int, DeviceMesh, dist.ProcessGroup]:
    """Return host, local rank, the mesh of the host and the group between hosts."""
    host, local_rank = divmod(world.current.rank, LOCAL_RANKS)
    place = f"file://{folder}/host-{host}"
    dist.init_process_group("gloo", init_method=place, rank=local_rank, world_size=LOCAL_RANKS)
    group = pccl.join(url, peer_group=local_rank)
    return host, local_rank, init_device_mesh("cpu", (LOCAL_RANKS,)), group


def backward(model: nn.Module, host: int, local_rank: int) -> None:
    model.zero_grad()
    model(batch(host, local_rank)).square().mean().backward()


def replicated(url: str, folder: str) -> None:
    """Both dimensions are in one mesh. Under retry, no error disturbs the backward pass."""
    host, local_rank, inner, group = enter(url, folder)
    mesh = DeviceMesh.from_group(
        [group, inner.get_group()],
        "cpu",
        mesh=inner.mesh.unsqueeze(0),
        mesh_dim_names=("replicate", "shard"),
    )
    model = sharded(mesh)
    for _ in range(2):
        backward(model, host, local_rank)
        check(model, range(HOSTS))
    if host == HOSTS - 1:
        os._exit(9)
    for _ in range(2):
        backward(model, host, local_rank)
        check(model, range(HOSTS - 1))


def hooked(url: str, folder: str) -> None:
    """A hook averages between hosts. It keeps an error until the backward pass has ended."""
    host, local_rank, inner, group = enter(url, folder)
    model = sharded(inner)
    errors: list[pccl.PcclError] = []

    def average(gradient: torch.Tensor) -> None:
        try:
            pccl.all_reduce(gradient, "avg", group=group)
        except pccl.PcclError as error:
            errors.append(error)

    for layer in (model[0], model[2]):
        layer.set_all_reduce_hook(average)
    for _ in range(2):
        backward(model, host, local_rank)
        check(model, range(HOSTS))
    if host == HOSTS - 1:
        os._exit(9)
    backward(model, host, local_rank)
    assert [type(error) for error in errors] == [pccl.PeerLostError] * 2, errors
    assert pccl.update_topology(group).world_size == HOSTS - 1
    for _ in range(2):
        backward(model, host, local_rank)
        check(model, range(HOSTS - 1))
    assert len(errors) == 2
