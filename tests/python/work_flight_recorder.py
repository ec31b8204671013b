"""Run by test_flight_recorder.py: torch's flight recorder at failures of pccl."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

import pccl_backend as pccl


def _dump(folder: Path) -> None:
    trace = _distributed_c10d._dump_fr_trace(backend="pccl")
    (folder / f"trace_{dist.get_rank()}").write_bytes(trace)


def after_a_mismatch(folder: Path) -> None:
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(8))
    try:
        dist.all_reduce(torch.ones(9 if rank == 1 else 8))
    except pccl.CollectiveMismatchError:
        _dump(folder)


def after_a_loss(folder: Path, dumped_before: bool) -> None:
    """`dumped_before`: whether the lost member has written a dump earlier."""
    dist.all_reduce(torch.ones(8))
    if dist.get_rank() == 2:
        if dumped_before:
            _dump(folder)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(8))
    except pccl.PeerLostError:
        _dump(folder)
