"""Splits a fixed world for `dist.split_group`: each part is a group like those of `new_group`.

torch finds out which ranks form the part of this process, and calls the method of the parent group
that the extension forwards to `split`. Rank 0 of the part hosts the part's run.
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

__all__ = ["split"]


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
        NotImplementedError: the parent belongs to an open run, whose ranks change.
        TypeError: `opts` is given.
    """
    if opts is not None:
        raise TypeError(f"pccl takes no pg_options, got {type(opts).__name__}")
    if parent.open_run:
        raise no_groups_in_open_runs("split_group()")
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
