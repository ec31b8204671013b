"""Run by test_call_sites.py: the ranks make their calls at different lines."""

from __future__ import annotations

import torch
import torch.distributed as dist

import pccl_backend as pccl


def first(tensor: torch.Tensor) -> None:
    dist.all_reduce(tensor)


def second(tensor: torch.Tensor) -> None:
    pccl.all_reduce(tensor)


def lines() -> tuple[str, str]:
    """Return the call sites of `first` and `second`."""
    at = [function.__code__.co_firstlineno + 1 for function in (first, second)]
    return f"work_call_sites.py:{at[0]} in first", f"work_call_sites.py:{at[1]} in second"


def in_opposite_orders() -> None:
    for call in (first, second) * 2 if dist.get_rank() == 0 else (second, first) * 2:
        call(torch.ones(8))


def of_two_shapes() -> str:
    rank = dist.get_rank()
    call = first if rank == 0 else second
    try:
        call(torch.ones(8 + rank))
    except pccl.CollectiveMismatchError as error:
        return str(error)
    return "no error"
