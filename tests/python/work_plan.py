"""The rank side of test_plan.py."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.info import RunInfo


def plans(budgets: list[float]) -> list[dict[str, Any]]:
    """Return the plan after one optimize_topology for each budget."""
    return [dataclasses.asdict(pccl.optimize_topology(budget=budget)) for budget in budgets]


def refusal(budget: float, max_bytes: int | None = None) -> str:
    """Return the text of the ValueError for this budget."""
    try:
        pccl.optimize_topology(budget=budget, max_bytes=max_bytes)
    except ValueError as error:
        return str(error)
    return "accepted"


def budgets_that_differ() -> tuple[str, str]:
    """Return class and text of the error, and show that all goes on after it."""
    try:
        pccl.optimize_topology(budget=float(dist.get_rank()))
    except pccl.CollectiveMismatchError as error:
        outcome = (type(error).__name__, str(error))
    pccl.optimize_topology(budget=0)
    return outcome


def limits_that_differ() -> tuple[str, str]:
    """Return class and text of the error, and show that all goes on after it."""
    try:
        pccl.optimize_topology(max_bytes=(2 + dist.get_rank()) * 2**20)
    except pccl.CollectiveMismatchError as error:
        outcome = (type(error).__name__, str(error))
    pccl.optimize_topology(budget=0)
    return outcome


def bytes_of_a_call(max_bytes: int) -> tuple[dict[str, Any], int]:
    """Return the plan, and the bytes that the call has sent and received at this rank."""
    dist.barrier()

    def carried() -> int:
        info = pccl.run_info()
        return int(info.bytes_sent + info.bytes_received)

    before = carried()
    plan = pccl.optimize_topology(max_bytes=max_bytes)
    return dataclasses.asdict(plan), carried() - before


def all_reduces_around_it(calls: int) -> list[str]:
    """Return the hashes of all-reduces that were in flight when the topology was optimized."""
    hashes = []
    for call in range(calls):
        tensor = torch.full((300_000,), float(dist.get_rank() + call))
        work = dist.all_reduce(tensor, async_op=True)
        pccl.optimize_topology(budget=0)
        work.wait()
        expected = sum(rank + call for rank in range(dist.get_world_size()))
        assert torch.equal(tensor, torch.full_like(tensor, float(expected)))
        hashes.append(str(float(tensor.sum())))
    return hashes


def info_after(budget: float) -> RunInfo:
    """Return run_info after a large all-reduce and an optimize_topology."""
    dist.all_reduce(torch.ones(1 << 20))
    before = pccl.run_info()
    assert before.plan is None
    plan = pccl.optimize_topology(budget=budget)
    info = pccl.run_info()
    assert info.plan is not None
    assert (info.plan.epoch, info.plan.ring) == (plan.epoch, plan.ring)
    assert info.ring == plan.ring
    return info


def adoptions(calls: int) -> dict[str, Any]:
    """Return the sums of all-reduces that were in flight when other plans were adopted.

    Sums of random numbers have other last bits in another order of the ring.
    """
    random = torch.Generator().manual_seed(dist.get_rank())
    sums = hashlib.sha256()
    adopted = 0
    rings = set()
    for _ in range(calls):
        tensors = [torch.rand(size, generator=random) for size in (300_000, 1000, 70_000)]
        totals = torch.tensor([float(tensor.double().sum()) for tensor in tensors])
        works = [dist.all_reduce(tensor, async_op=True) for tensor in (*tensors, totals)]
        plan = pccl.optimize_topology(budget=0)
        for work in works:
            work.wait()
        for tensor, total in zip(tensors, totals.tolist(), strict=True):
            assert abs(float(tensor.double().sum()) - total) < 1e-4 * total
            sums.update(tensor.numpy().tobytes())
        adopted += plan.adopted
        rings.add(plan.ring)
    return {"sums": sums.hexdigest(), "adopted": adopted, "rings": sorted(rings)}
