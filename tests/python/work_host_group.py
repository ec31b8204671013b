"""Run by test_host_group.py: a host whose processes do not agree."""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import Any

import torch
import torch.distributed as dist
import world
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, distribute_tensor
from world import expected

import pccl_backend as pccl
from pccl_backend.trainers import DDP, DiLoCo, Observer

URL = "pccl://127.0.0.1:1/run"


def enter() -> int:
    """Make the group of the host of the ranks of this test."""
    job = world.current
    dist.init_process_group("gloo", init_method=job.init_method, rank=job.rank, world_size=job.size)
    return job.rank


def cut(mesh: DeviceMesh | None = None) -> torch.nn.Module:
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 4)
    return fully_shard(model, mesh=mesh or init_device_mesh("cpu", (dist.get_world_size(),)))


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.5)


def refused(model: torch.nn.Module, *says: str, **options: Any) -> None:
    with expected(ValueError, *says):
        DiLoCo(model, **options)


def refusals(url: str) -> None:
    rank = enter()
    host = dist.group.WORLD
    assert host is not None
    refused(cut(), "DTensor over the 3 processes [0, 1, 2]", "host_group=", url=URL)
    refused(
        cut(), "host_group is DeviceMesh", "mesh.get_group()", host_group=cut().weight.device_mesh
    )
    refused(cut(), "shared has ['more']", host_group=host, url=URL, shared={"more": torch.ones(1)})
    if rank == 0:
        refused(cut(), "rank 0 of host_group", "give url=", host_group=host)
    else:
        refused(cut(), f"rank {rank} of host_group", host_group=host, group=object())
    pair = dist.new_group([0, 1])
    if rank < 2:
        refused(cut(), "[0, 1, 2], and host_group has [0, 1]", host_group=pair, url=URL)
    else:
        refused(
            cut(),
            "host_group is -100",
            "of which this process is a member",
            host_group=pair,
            url=URL,
        )
    model = torch.nn.Linear(4, 4)
    mesh = init_device_mesh("cpu", (3,))
    partial = distribute_tensor(torch.ones(4, 4), mesh).to_local()
    whole = dist.tensor.DTensor.from_local(partial, mesh, [Partial()])
    model.weight = torch.nn.Parameter(whole)
    refused(model, "'weight' is placed as P", "Shard and Replicate", host_group=host, url=URL)
    with expected(ValueError, "DTensor over 3 processes, and this trainer moves whole models"):
        DDP(model, sgd(model))
    if rank == 0:
        group = pccl.join(url)
        refused(cut(), "host_group is a pccl group", host_group=group, url=URL)
        dist.destroy_process_group(group)


def trainers_differ(url: str, what: str) -> None:
    rank = enter()
    model = cut()
    every = 4 + rank if what == "every" else 4
    if what == "model" and rank == 1:
        model.bias.requires_grad_(False)
    outer = DiLoCo(model, sgd(model), every=every, url=url, host_group=dist.group.WORLD)
    says = ["every is 4", "and 5 in local rank 1"]
    if what == "model":
        says = ["parameter bias is 'torch.float32 (4,)'", "and None in local rank 1"]
    with expected(ValueError, *says):
        outer.__enter__()


def calls_differ(url: str) -> None:
    rank = enter()
    model = cut()
    with DiLoCo(model, url=url, host_group=dist.group.WORLD) as outer:
        outer.step()
        if rank == 0:
            outer.step()
        else:
            outer.meet()


def nobody_answers() -> None:
    enter()
    os.environ["PCCL_PEER_TIMEOUT"] = "1"
    model = cut()
    outer = DiLoCo(model, url=URL, host_group=dist.group.WORLD)
    with expected(pccl.MasterLostError, "127.0.0.1:1"):
        outer.__enter__()


def thaws(url: str) -> None:
    """Rank 1 thaws a parameter, all hear of it, and go on when it is frozen again."""
    rank = enter()
    model = cut()
    model.bias.requires_grad_(False)
    with DiLoCo(model, url=url, host_group=dist.group.WORLD) as outer:
        outer.step()
        if rank == 1:
            model.bias.requires_grad_(True)
        with expected(ValueError, "parameter 'bias' is trainable, and was frozen at start()"):
            outer.step()
        model.bias.requires_grad_(False)
        outer.step()
        assert outer.revision == 2


class Interrupts(Observer):
    """Sends this process a Ctrl-C, once, while it waits for other hosts."""

    def __init__(self) -> None:
        self.done = False

    def reduce_posted(self, trainer: Any, attempt: int) -> None:
        if not self.done:
            self.done = True
            os.kill(os.getpid(), signal.SIGINT)


def is_interrupted(url: str) -> None:
    rank = enter()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert threading.current_thread() is threading.main_thread()
    model = cut()
    observer = Interrupts()
    outer = DiLoCo(
        model,
        outer_lr=1.0,
        outer_momentum=0.0,
        url=url,
        host_group=dist.group.WORLD,
        observer=observer,
    )
    with outer:
        before = model.weight.full_tensor().detach()
        with torch.no_grad():
            model.weight.add_(1.0)
        if rank == 0:
            with expected(KeyboardInterrupt):
                outer.step()
        else:
            with expected(pccl.InvalidStateError, "ended in the leader", "KeyboardInterrupt"):
                outer.step()
        with torch.no_grad():
            model.weight.add_(2.0)  # counts in the next step, or in this one
        outer.step()
        outer.step()
        assert outer.revision == 2
        assert torch.equal(model.weight.full_tensor(), before + 3.0)


def has_joined_by_itself(url: str) -> None:
    """The group of the leader outlives the trainer, though the other process ends first."""
    rank = enter()
    group = pccl.join(url) if rank == 0 else None
    model = cut()
    outer = DiLoCo(model, group=group, host_group=dist.group.WORLD)
    pid = torch.tensor(os.getpid())
    dist.broadcast(pid, 1)
    other = os.pidfd_open(int(pid))
    outer.start()
    for revision in (1, 2):
        assert outer.step().revision == outer.revision == revision
    topology, info = outer.meet()
    assert (topology.world_size, info.rx_bytes) == (1, 0)
    outer.close()
    with expected(pccl.InvalidStateError, "closed"):
        outer.step()
    if group is None:
        os._exit(0)
    assert pccl.run_info(group).broken_by is None
    assert select.select([other], [], [], 20)[0], "the other process has not ended"
    assert pccl.update_topology(group).world_size == 1
    dist.destroy_process_group(group)
