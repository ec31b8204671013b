"""Updates torch.distributed's own tables of process groups where pccl must write to them.

The tables are private to torch; their layout was checked for torch 2.11 to 2.15. torch fills them
in when a group is created and treats them as constant. A pccl group changes its size, and it may
exist without a default group.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from pccl_backend._C import PcclGroup
from pccl_backend._torch import devices
from pccl_backend.errors import InvalidStateError

__all__ = ["add_beside_default", "refresh", "resolve"]

_added = 0
_follows_membership: set[str] = set()


def refresh(group: PcclGroup) -> None:
    """Bring torch's table of ranks up to the group's new size."""
    books: Any = c10d._world
    if group is dist.group.WORLD or group.group_name in _follows_membership:
        books.pg_group_ranks[group] = {rank: rank for rank in range(group.size())}


def add_beside_default(group: PcclGroup) -> None:
    """Register a group that init_process_group did not create, so that dist's functions accept it.

    If there is a default group, torch needs to know which of its ranks are members. The answer is
    this process alone, because ranks of the default group mean nothing to other peers. Without a
    default group, the group's own ranks are entered.
    """
    global _added  # noqa: PLW0603
    _added += 1
    name = f"pccl-{_added}"
    group.serve(devices.ALL)
    torch_group: Any = group
    torch_group._set_group_name(name)
    torch_group._set_group_desc(name)
    torch_c10d: Any = c10d
    torch_c10d._register_process_group(name, group)

    books: Any = c10d._world
    books.pg_map[group] = ("pccl", group.get_group_store())
    books.pg_names[group] = name
    books.pg_backend_config[group] = ",".join(f"{device}:pccl" for device in devices.ALL)
    tag = f"ptd:{name}"
    books.pg_to_tag[group] = tag
    books.tags_to_pg.setdefault(tag, []).append(group)
    books.tags_to_pg.setdefault("", []).append(group)
    if dist.is_initialized():
        books.pg_group_ranks[group] = {dist.get_rank(): 0}
    else:
        _follows_membership.add(name)
        books.pg_group_ranks[group] = {rank: rank for rank in range(group.size())}


def resolve(group: dist.ProcessGroup | None) -> PcclGroup:
    """Return the group of a call, or the default group.

    Raises:
        InvalidStateError: there is no default group.
        ValueError: it is no group of pccl alone.
    """
    if group is None:
        if not dist.is_initialized():
            raise InvalidStateError(
                'there is no default group: call init_process_group("pccl") first, or give group='
            )
        group = dist.group.WORLD
    if not isinstance(group, PcclGroup):
        name = dist.get_backend(group) if isinstance(group, dist.ProcessGroup) else repr(group)
        if ":pccl" in name:
            raise ValueError(
                f"the group's backends are {name}, and those beside pccl cannot follow a change of "
                'membership: make a group of pccl alone, dist.new_group(backend="pccl"), and give '
                "it as group="
            )
        raise ValueError(f"the group's backend is {name}, not pccl: give a pccl group as group=")
    return group
