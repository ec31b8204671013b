"""Optimizers: their parameters, their names in errors, and the callers of a step."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import FrameType

import torch

__all__ = ["called_by", "members_of", "names_of", "within_step"]


def members_of(
    optimizers: Sequence[torch.optim.Optimizer],
) -> Iterator[tuple[int, torch.nn.Parameter]]:
    """Yield the parameters of optimizers, each with the index of its optimizer."""
    for index, optimizer in enumerate(optimizers):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield index, parameter


def names_of(optimizers: Sequence[torch.optim.Optimizer], which: int) -> str:
    """Return the names of the optimizers in a sum of 1 << index."""
    return " and ".join(
        f"optimizer {index} ({type(optimizer).__name__})"
        for index, optimizer in enumerate(optimizers)
        if which & 1 << index
    )


def within_step(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a step of the optimizer has called this: some optimizers wrap others."""
    return any(caller is optimizer and "step" in name for caller, name in _callers())


def called_by(kind: type) -> bool:
    """Return whether a method of an object of this class has called this."""
    return any(isinstance(caller, kind) for caller, _ in _callers())


def _callers() -> Iterator[tuple[object, str]]:
    """Yield `self` and the function's name for each method that is under way in this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if "self" in frame.f_locals:
            yield frame.f_locals["self"], frame.f_code.co_name
        frame = frame.f_back
