"""Smaller groups of a fixed world, for `dist.split_group` and `dist.shrink_group`.

Each is a world like those of `new_group`, with a run that its rank 0 hosts. torch finds out which
ranks form it. It then calls the method of the parent group that the extension forwards to `split`,
or the method of the parent's backend that the extension forwards to `shrink`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, _DistributedBackendOptions

from pccl_backend import _C
from pccl_backend._torch.groups import no_groups_in_open_runs
from pccl_backend._torch.hosted_world import join_hosted_world

__all__ = ["shrink", "split"]

_SHRINK_ABORT = 1  # torch.distributed's SHRINK_ABORT, which torch 2.11 has too


def split(
    parent: _C.PcclGroup,
    ranks: Sequence[int],
    *,
    timeout: timedelta | None = None,
    opts: object | None = None,
    group_name: str | None = None,
    group_desc: str | None = None,
    device_types: Sequence[torch.device] | None = None,
) -> _C.PcclGroup | None:
    """Return the group of these ranks of the parent; None if this process is none of them.

    All ranks of the parent call it. The arguments have torch's names.

    Raises:
        NotImplementedError: the ranks of the parent change: it belongs to an open run, or it is
            reconfigurable.
        TypeError: `opts` is given.
    """
    _refuse_options(opts)
    if parent.open_run:
        raise no_groups_in_open_runs("split_group()")
    if parent.backend.reconfigurable:
        raise NotImplementedError(
            "split_group() names ranks, and in a reconfigurable group they change: let each part "
            "call dist._reconfigure with the handles of its own processes"
        )
    # An earlier group may have had the same name, and its keys are in the store for ever.
    name = f"split {parent.count_split()} {group_name or ''}"
    if parent.rank() not in ranks:
        return None
    options: Any = _DistributedBackendOptions()
    options.store = PrefixStore(f"{name}/", parent.get_group_store())
    options.group_rank = list(ranks).index(parent.rank())
    options.group_size = len(ranks)
    options.timeout = dist.default_pg_timeout if timeout is None else timeout
    options.group_id = name
    options.global_ranks_in_group = list(ranks)
    group: Any = join_hosted_world(options)
    served = parent._device_types if device_types is None else device_types
    group.serve([device.type for device in served])
    group._set_group_name(group_name or name)
    group._set_group_desc(group_desc or name)
    part: _C.PcclGroup = group
    return part


def shrink(
    parent: _C.PcclBackend,
    ranks_to_exclude: Sequence[int],
    shrink_flags: int = 0,
    opts_override: object | None = None,
) -> _C.PcclBackend:
    """Return the backend of a group of all other ranks. All of these call it, and no other rank.

    They meet in the store of the parent. The excluded ranks may be lost, or silent. The parent is
    as before, except with the flag for an abort. The arguments have torch's names.

    Raises:
        NotImplementedError: the ranks of the parent change: it belongs to an open run, or it is
            reconfigurable. Or other backends serve other devices of the parent.
        TypeError: `opts_override` is given.
        ValueError: this rank is excluded.
        PcclError: not all other ranks called it within the timeout of the parent, or one failed.
    """
    _refuse_options(opts_override)
    _refuse_changing_ranks(parent)
    rank, size = parent.place()
    ranks = [one for one in range(size) if one not in ranks_to_exclude]
    if rank not in ranks:
        raise ValueError(
            f"shrink_group() excludes rank {rank}, which is this process: only the other ranks "
            "call it"
        )
    options: Any = _DistributedBackendOptions()
    options.store = PrefixStore(f"shrink {ranks}/", parent.store)
    options.group_rank = ranks.index(rank)
    options.group_size = len(ranks)
    options.timeout = timedelta(seconds=parent.timeout_s)
    options.group_id = "shrunk"
    options.global_ranks_in_group = ranks
    if shrink_flags & _SHRINK_ABORT:
        parent.abort()
    return join_hosted_world(options).backend


def _refuse_options(options: object | None) -> None:
    if options is not None:
        raise TypeError(f"pccl takes no pg_options, got {type(options).__name__}")


def _refuse_changing_ranks(parent: _C.PcclBackend) -> None:
    if parent.open_run:
        raise NotImplementedError(
            "shrink_group() names ranks, and in an open run they change: let these ranks leave "
            "(dist.destroy_process_group), and let all others call pccl_backend.update_topology()"
        )
    if parent.reconfigurable:
        raise NotImplementedError(
            "shrink_group() names ranks, and in a reconfigurable group they change: call "
            "dist._reconfigure with the handles of the other processes"
        )
    if parent.in_composite:
        raise NotImplementedError(
            "shrink_group() does not shrink a group in which pccl is one of several backends: use "
            "dist.new_group(ranks, backend=...)"
        )
