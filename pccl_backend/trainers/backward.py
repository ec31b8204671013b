"""Backward: notices which gradients have changed since the peers averaged them.

A backward changes a gradient in place, or makes one; hooks of the parameters notice it. A program
may also set another gradient tensor. Changes in place by the program, for example by
clip_grad_norm_, are detected separately: after an average() they belong to the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

from pccl_backend.trainers.optimizers import members_of

__all__ = ["Backward", "within_backward"]


class Backward:
    """The gradients of several optimizers.

    Args:
        optimizers: the optimizers.
        parameters: the model's parameters; the trainable ones get hooks.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        parameters: Mapping[str, torch.nn.Parameter],
    ) -> None:
        self._optimizers = optimizers
        self._changed: set[int] = set()  # by id; the hooks keep the parameters alive
        self._given: dict[int, tuple[TensorWeakRef, int]] = {}  # the mean, and its version
        self.handles: list[Any] = []
        self._unhooked: set[int] = set()  # by id; they have no hook, so versions are compared
        for parameter in parameters.values():
            if not parameter.requires_grad:
                continue
            hook: Any = parameter.register_post_accumulate_grad_hook
            try:
                self.handles.append(hook(self._accumulated))
            except RuntimeError:  # a subclass of Parameter over tensors of its own
                self._unhooked.add(id(parameter))

    def _accumulated(self, parameter: torch.Tensor) -> None:
        self._changed.add(id(parameter))

    def changed(self) -> int:
        """Return the optimizers that have a new gradient, as a sum of 1 << index."""
        which = 0
        for index, parameter in members_of(self._optimizers):
            which |= int(self._has_changed(parameter)) << index
        return which

    def _has_changed(self, parameter: torch.Tensor) -> bool:
        gradient = parameter.grad
        if gradient is None:
            return False
        if id(parameter) in self._changed or id(parameter) not in self._given:
            return True
        if id(parameter) in self._unhooked:
            return self.changed_by_program(parameter)
        return self._given[id(parameter)][0]() is not gradient

    def written(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether the program has changed a mean of the optimizer in place."""
        return any(
            id(parameter) in self._given and self.changed_by_program(parameter)
            for _, parameter in members_of([optimizer])
            if parameter.grad is not None
        )

    def averaged(self, parameter: torch.Tensor) -> None:
        """Note that the parameter has its mean gradient, or none."""
        self._changed.discard(id(parameter))
        gradient = parameter.grad
        if gradient is None:
            self._given.pop(id(parameter), None)
        else:
            self._given[id(parameter)] = (TensorWeakRef(gradient), gradient._version)

    def changed_by_program(self, parameter: torch.Tensor) -> bool:
        """Return whether an operation that autograd knows has changed the mean, or replaced it."""
        gradient = parameter.grad
        reference, version = self._given.get(id(parameter), (None, 0))
        if gradient is None or reference is None:
            return True
        return reference() is not gradient or version != gradient._version


def within_backward() -> bool:
    """Return whether autograd runs a backward in this thread."""
    return bool(torch._C._current_graph_task_id() != -1)
