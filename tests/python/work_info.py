"""The actions of a rank that fill every field of run_info."""

from __future__ import annotations

import logging
import time

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.info import RunInfo, TimeSpent
from pccl_backend.trainers import DiLoCo, Observer, OuterStep


def info_of_two() -> RunInfo:
    with pccl.tag("layer.3"):
        dist.all_reduce(torch.ones(1 << 18))
    pccl.optimize_topology(budget=0)
    info = pccl.run_info()
    dist.barrier()  # otherwise the other one may see this one leave
    return info


def time_with_a_late_rank(late: float) -> tuple[TimeSpent, str]:
    """Return the time of one all_reduce that rank 1 calls late, and the id of rank 1."""
    dist.barrier()
    before = pccl.run_info().time
    if dist.get_rank() == 1:
        time.sleep(late)
    dist.all_reduce(torch.ones(1000))
    info = pccl.run_info()
    spent = info.time.since(before)
    dist.barrier()
    return spent, info.members[1].peer


def time_of_a_joint_call() -> TimeSpent:
    before = pccl.run_info().time
    pccl.update_topology()
    return pccl.run_info().time.since(before)


class Lines(logging.Handler):
    """Keeps the lines of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Steps(Observer):
    """Keeps the records of the outer steps."""

    def __init__(self) -> None:
        self.steps: list[OuterStep] = []

    def stepped(self, trainer: DiLoCo, done: OuterStep) -> None:
        self.steps.append(done)


def time_of_outer_steps(late: float) -> tuple[list[OuterStep], list[str]]:
    """Train two outer steps, the second one with a late rank 1; return their records and lines."""
    logger, lines = logging.getLogger("pccl"), Lines()
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    torch.manual_seed(0)
    model = torch.nn.Linear(50, 50)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = Steps()
    with DiLoCo(model, inner, every=2, observer=steps) as outer:
        for step in range(4):
            if step == 3 and dist.get_rank() == 1:
                time.sleep(late)
            model(torch.ones(1, 50)).sum().backward()
            inner.step()
    return steps.steps or [outer.last], [line for line in lines.lines if "outer step" in line]
