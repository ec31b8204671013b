"""The argument host_group of a trainer: its checks, and the facts that the processes compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import torch
import torch.distributed as dist

from pccl_backend import _C
from pccl_backend.trainers.host.follower import Follower
from pccl_backend.trainers.host.leader import Leader
from pccl_backend.trainers.host.orders import Facts
from pccl_backend.trainers.layout import Layout
from pccl_backend.trainers.settings import Settings
from pccl_backend.trainers.shards import is_dtensor, reshard

__all__ = ["Host", "check_host", "facts_of"]

Host = Leader | Follower


def facts_of(layout: Layout, settings: Settings) -> Facts:
    """Return the facts that must be equal in all processes of a host, by name."""
    facts: dict[str, object] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        facts[field.name] = "a function" if callable(value) else value
    for name in layout.parameters:
        parameter = layout.tensor(name)
        facts[f"parameter {name}"] = f"{parameter.dtype} {tuple(parameter.shape)}"
    return facts


def check_host(
    model: torch.nn.Module,
    host_group: dist.ProcessGroup | None,
    *,
    group: dist.ProcessGroup | None,
    url: str | None,
    shared: Mapping[str, torch.Tensor] | None,
) -> None:
    """Check the arguments of a trainer that is given a host_group, or none.

    Raises:
        ValueError: an argument does not fit host_group, host_group is no such group, or the model
            is cut between other processes.
    """
    reshard(model)
    if host_group is None:
        _check_meshes(model, None)
        return
    if not isinstance(host_group, dist.ProcessGroup):
        raise ValueError(
            f"host_group is {host_group!r}; it must be a process group of torch, of which this "
            "process is a member, such as mesh.get_group() or dist.group.WORLD"
        )
    if isinstance(host_group, _C.PcclGroup):
        raise ValueError(
            "host_group is a pccl group, whose members change: give the group of this host's "
            "processes, over Gloo or NCCL, and the pccl group as group="
        )
    if shared:
        raise ValueError(
            f"shared has {sorted(shared)}, and host_group is given, too: keep these tensors equal "
            "by pccl.sync_shared_state in a group of their own"
        )
    if dist.get_rank(host_group) == 0:
        if group is None and url is None:
            raise ValueError(
                "this is rank 0 of host_group, which talks to the other hosts: give url=, or the "
                "group that it has joined as group="
            )
    elif group is not None:
        raise ValueError(
            f"group is given in rank {dist.get_rank(host_group)} of host_group, and only rank 0 of "
            "a host talks to the other hosts: do not join the run in the others"
        )
    _check_meshes(model, host_group)


def _check_meshes(model: torch.nn.Module, host_group: dist.ProcessGroup | None) -> None:
    """Check that the model's parameters are cut between exactly the processes of the host.

    Raises:
        ValueError: a parameter has another mesh, or a placement other than Shard and Replicate.
    """
    mine = [dist.get_rank()] if dist.is_initialized() else [0]
    if host_group is not None:
        mine = sorted(dist.get_process_group_ranks(host_group))
    for name, tensor in model.named_parameters():
        if not is_dtensor(tensor):
            continue
        theirs = sorted(tensor.device_mesh.mesh.flatten().tolist())
        if host_group is None and len(theirs) > 1:
            raise ValueError(
                f"{name!r} is a DTensor over the {len(theirs)} processes {theirs}: give their "
                "group as host_group="
            )
        if host_group is not None and theirs != mine:
            raise ValueError(
                f"{name!r} is a DTensor over the processes {theirs}, and host_group has {mine}: "
                "give the group of all processes that share the model, and shard over all of them"
            )
        for how in tensor.placements:
            if type(how).__name__ not in ("Shard", "Replicate"):
                raise ValueError(
                    f"{name!r} is placed as {how}; host_group takes Shard and Replicate. Shard "
                    "the dimensions of a mesh in their order"
                )
