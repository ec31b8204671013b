"""The actions of a rank that fill every field of run_info."""

from __future__ import annotations

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.info import RunInfo


def info_of_two() -> RunInfo:
    with pccl.tag("layer.3"):
        dist.all_reduce(torch.ones(1 << 18))
    pccl.optimize_topology(budget=0)
    info = pccl.run_info()
    dist.barrier()  # otherwise the other one may see this one leave
    return info
