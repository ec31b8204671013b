"""Groups: what torch gets for `init_process_group`, `new_group` and `split_group`.

A pccl:// URL and PCCL_MASTER lead to an open run (open_run.py). All other starts (env://, tcp://,
file://, a store, `new_group`, `split_group`) give rank and world size, and rank 0 hosts the run
(hosted_world.py).
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from pccl_backend import _C
from pccl_backend._torch import devices
from pccl_backend._torch.hosted_world import base_store, join_hosted_world
from pccl_backend._torch.open_run import (
    belongs_to_open_run,
    join_world_at_master,
    take_admitted,
)
from pccl_backend._torch.reconfigurable import create_reconfigurable

__all__ = ["create_group", "no_groups_in_open_runs"]


def create_group(options: Any, pg_options: object) -> _C.PcclGroup | _C.PcclBackend:
    """Create the group, or pccl's part of it, for `init_process_group` or `new_group`."""
    asked = devices.asked_for()
    if pg_options is not None and not asked.is_composite:  # a composite's options may be another's
        raise TypeError(f"pccl takes no pg_options, got {type(pg_options).__name__}")
    backend = asked.made_before()
    if backend is not None:
        return backend
    reconfigurable = getattr(options, "enable_reconfigure", False)  # torch 2.14 and newer
    create = create_reconfigurable if reconfigurable else _group_for
    group = create(options, asked)
    if asked.is_composite:
        group.backend.join_composite(serves_cuda="cuda" in asked.devices)
        return group.backend
    group.serve(asked.devices)
    return group


def _group_for(options: Any, asked: devices.Asked) -> _C.PcclGroup:
    store = base_store(options.store)
    if belongs_to_open_run(store):
        group = take_admitted(store)
        if group is None:
            raise no_groups_in_open_runs("new_group()")
        asked.check(open_run=True)
        return group
    is_default = not options.global_ranks_in_group
    if is_default and os.environ.get("PCCL_MASTER"):
        asked.check(open_run=True)
        return join_world_at_master(options)
    default = dist.group.WORLD
    if isinstance(default, _C.PcclGroup) and default.open_run:
        raise no_groups_in_open_runs("new_group()")
    asked.check(open_run=False)
    return join_hosted_world(options)


def no_groups_in_open_runs(call: str) -> NotImplementedError:
    """Return the error of a call that makes a group of some ranks of an open run."""
    return NotImplementedError(
        f"{call} names ranks, and in an open run they change as peers come and go: use "
        "pccl_backend.join(url, peer_group=N) for another group of the run"
    )
