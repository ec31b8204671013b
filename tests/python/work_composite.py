"""Run by test_composite.py: groups of several backends, which torch combines by device."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import world
from work_misuse import error_of

import pccl_backend as pccl
from pccl_backend import _C


def init(backend: str | None, **settings: Any) -> None:
    place = world.current.place()
    dist.init_process_group(backend, timeout=timedelta(seconds=20), **{**place, **settings})


def backends_of(group: Any = None) -> dict[str, Any]:
    """Return the backend that serves each device, and torch's description of the group."""
    group = group or dist.group.WORLD
    return {
        "serve": {
            device.type: group._get_backend(device).name()
            for device in sorted(group._device_types, key=str)
        },
        "config": dist.get_backend_config(group),
        "backend": dist.get_backend(group),
        "group": type(group).__name__,
    }


def check_collectives(group: dist.ProcessGroup | None = None) -> None:
    """Check that CPU tensors get the right results."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    tensor = torch.full((5,), float(rank))
    dist.all_reduce(tensor, group=group)
    assert (tensor == sum(range(size))).all(), tensor
    outputs = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(outputs, torch.full((2,), float(rank)), group=group)
    assert [output[0] for output in outputs] == list(range(size))
    said: list[Any] = [None] * size
    dist.all_gather_object(said, rank, group=group)
    assert said == list(range(size))


def serves(backend: str) -> dict[str, Any]:
    """Make the default group; run CPU collectives if it has them; end it; do it all twice."""
    joins = count_joins()
    for _ in range(2):  # each with its own store, which Gloo needs
        init(backend)
        found = backends_of()
        if "cpu" in found["serve"]:
            check_collectives()
            dist.barrier()
        if found["group"] == "PcclGroup":
            assert pccl.run_info().world_size == dist.get_world_size()
        dist.destroy_process_group()
    assert len(joins) == 2, "one backend serves all of pccl's devices"
    return found


def count_joins() -> list[None]:
    """Return a list that grows with each group that pccl joins."""
    joins: list[None] = []
    join = _C.join

    def counting(*arguments: Any, **named: Any) -> _C.PcclGroup:
        joins.append(None)
        return join(*arguments, **named)

    _C.join = counting
    return joins


def pccl_moved_it(backend: str) -> bool:
    """Return whether CPU tensors go through pccl, which refuses a call that Gloo accepts."""
    init(backend)
    check_collectives()  # so that no rank leaves while Gloo still connects
    mine = torch.ones(3)
    found = error_of(lambda: dist.all_gather([mine] * dist.get_world_size(), mine.clone()))
    dist.destroy_process_group()
    return found["type"] == "ValueError" and "share memory" in found["text"]


def options_of_another() -> dict[str, Any]:
    """pg_options are for another backend, but torch passes them to all. Plain pccl accepts none."""
    found = error_of(lambda: init("pccl", pg_options=object()))
    init("cpu:pccl,cuda:gloo", pg_options=object())
    check_collectives()
    dist.destroy_process_group()
    return found


def groups_beside() -> dict[str, Any]:
    """Make new groups below a composite default group."""
    init("cpu:pccl,cuda:gloo")
    ranks = list(range(dist.get_world_size()))
    groups = {
        "as the default": dist.new_group(ranks),
        "pccl": dist.new_group(ranks, backend="pccl"),
        "gloo": dist.new_group(ranks, backend="gloo"),
        "the other way": dist.new_group(ranks, backend="cpu:gloo,cuda:pccl"),
        "of one": dist.new_group([0], backend="cpu:pccl,cuda:gloo"),
    }
    found = {}
    for name, group in groups.items():
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            continue
        check_collectives(group)
        found[name] = backends_of(group)
    found["topology"] = error_of(pccl.update_topology)
    pccl.update_topology(groups["pccl"])
    dist.destroy_process_group(groups["as the default"])
    check_collectives(groups["pccl"])
    check_collectives()
    dist.destroy_process_group()
    return found


def below_plain() -> dict[str, Any]:
    """Make a composite group below a plain default group."""
    init("pccl")
    group = dist.new_group(backend="cpu:pccl,cuda:gloo")
    check_collectives(group)
    check_collectives()
    found = backends_of(group)
    dist.destroy_process_group()
    return found


def a_peer_is_lost() -> dict[str, Any]:
    """The other backend cannot continue with fewer ranks, so pccl does not either."""
    init("cpu:pccl,cuda:gloo")
    dist.barrier()
    if dist.get_rank():
        os.kill(os.getpid(), signal.SIGKILL)
    found = error_of(lambda: dist.all_reduce(torch.ones(3)))
    found["size"] = dist.get_world_size()
    found["next"] = error_of(lambda: dist.all_reduce(torch.ones(3)))
    return found


def refusal(backend: str | None, **settings: Any) -> dict[str, Any]:
    """Return the error of init_process_group; it leaves nothing behind, so a right call works."""
    return error_of(lambda: init(backend, **settings))


def refused_then_right(backend: str) -> dict[str, Any]:
    import torch.testing._internal.distributed.fake_pg  # noqa: F401 - it registers "fake"

    found = refusal(backend)
    init("pccl")
    check_collectives()
    dist.destroy_process_group()
    return found


def refused_at_a_url(backend: str | None) -> dict[str, Any]:
    return refusal(backend, rank=-1, world_size=-1)


def joins_url(backend: str) -> dict[str, Any]:
    init(backend, rank=-1, world_size=-1)
    found = backends_of()
    if "cpu" in found["serve"]:
        check_collectives()
    dist.destroy_process_group()
    return found


def store_of_a_url(url: str) -> dict[str, Any]:
    """torch's rendezvous, called directly, joins before the use of the store is known."""
    store, rank, size = next(dist.rendezvous(url))
    found = error_of(
        lambda: dist.init_process_group(
            "cpu:pccl,cuda:gloo", store=store, rank=rank, world_size=size
        )
    )
    assert not dist.is_initialized()
    return found
