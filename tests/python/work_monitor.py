"""The actions of a rank whose scalars are written."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.monitor import Scalars

Line = tuple[str, float, int]


class Board:
    """A writer as TensorBoard has it."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.lines.append((name, value, step))


def scalars_of_steps(every: int, steps: int) -> list[Line]:
    """Return the scalars of steps with two all-reduces each: a large one and a small one."""
    board = Board()
    scalars = Scalars(board, every=every)
    for step in range(steps):
        dist.all_reduce(torch.ones(1 << 18))
        dist.all_reduce(torch.ones(1))
        scalars.write(step)
    dist.barrier()
    return board.lines


def scalars_in_files(folder: Path) -> set[str]:
    """Write the scalars of two steps with the writer of TensorBoard; return the names in its files.

    The folder is only for this rank.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    own = folder / str(dist.get_rank())
    with SummaryWriter(str(own)) as writer:
        scalars = Scalars(writer)
        for step in range(2):
            dist.all_reduce(torch.ones(1 << 18))
            scalars.write(step)
    dist.barrier()
    read = EventAccumulator(str(own))
    read.Reload()
    for name in read.Tags()["scalars"]:
        assert [event.step for event in read.Scalars(name)] == [0, 1], name
    return set(read.Tags()["scalars"])


def scalars_after_a_leave() -> str:
    """Return the error of a record after the group is gone."""
    scalars = Scalars(Board())
    dist.destroy_process_group()
    try:
        scalars.write(0)
    except (pccl.InvalidStateError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
