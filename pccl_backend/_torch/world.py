"""Updates torch.distributed's own tables of process groups where pccl must write to them.

The tables are private to torch; their layout was checked for torch 2.11 to 2.15. torch fills them
in when a group is created and treats them as constant. A pccl group changes its size, and it may
exist without a default group.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from pccl_backend._C import PcclBackend, PcclGroup
from pccl_backend._torch import devices
from pccl_backend.errors import InvalidStateError

__all__ = ["add_beside_default", "refresh", "resolve"]

_added = 0
_follows_membership: set[str] = set()


def refresh(group: PcclGroup, *, joined: bool) -> None:
    """Bring torch's table of ranks, and its flight recorder, up to the group's new members.

    Args:
        group: the group, whose members may be the same as before.
        joined: whether some of them are new.
    """
    books: Any = c10d._world
    if group is not dist.group.WORLD and group.group_name not in _follows_membership:
        return
    size, size_before = group.size(), len(books.pg_group_ranks[group])
    books.pg_group_ranks[group] = {rank: rank for rank in range(size)}
    if joined or size != size_before:  # without newcomers, no rank changes at the same size
        _record_anew(group, size, joined=joined)


def _record_anew(group: PcclGroup, size: int, *, joined: bool) -> None:
    """Attach the flight recorder again. It keeps the ranks that it was attached with.

    It also numbers the collectives, from 1, and torch's analyser compares the numbers of all ranks.
    The recorder of a newcomer begins at 1 now, so the records of the others have to do the same.
    Their earlier records go, unless the recorder has another group, too.
    """
    torch_c10d: Any = c10d
    hooks = getattr(torch_c10d._world, "pg_flight_recorder_hooks", {})  # torch 2.15 and newer
    if group not in hooks:
        return
    hooks.pop(group).remove()
    if joined and not hooks:
        torch._C._distributed_c10d._reset_fr_trace(backend="pccl")
    hooks[group] = torch_c10d.FlightRecorderHook.attach(group, list(range(size)))


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
        if _was_shrunk(group):
            raise ValueError(
                "shrink_group() has made this group, which is of torch's own class and keeps its "
                "members: make a group of pccl of the same ranks, "
                'dist.new_group(dist.get_process_group_ranks(group), backend="pccl"), and give it '
                "as group="
            )
        name = dist.get_backend(group) if isinstance(group, dist.ProcessGroup) else repr(group)
        if ":pccl" in name:
            raise ValueError(
                f"the group's backends are {name}, and those beside pccl cannot follow a change of "
                'membership: make a group of pccl alone, dist.new_group(backend="pccl"), and give '
                "it as group="
            )
        raise ValueError(f"the group's backend is {name}, not pccl: give a pccl group as group=")
    return group


def _was_shrunk(group: object) -> bool:
    """Return whether `dist.shrink_group` has made it of a group of pccl."""
    if not isinstance(group, dist.ProcessGroup):
        return False
    backends = [group._get_backend(device) for device in group._device_types]
    return any(isinstance(one, PcclBackend) and not one.in_composite for one in backends)
