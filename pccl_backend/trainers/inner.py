"""Inner: detects complete inner steps of a trainer's optimizers.

An inner step is complete when all optimizers have stepped, or when one of them steps again: the
others may step less often, or have no gradient this time. If optimizers step within a backward, the
outer step waits for the end of the backward: it moves the parameters, and the rest of the backward
needs their present values. All steps within one backward belong together.

    for _ in data: loss.backward() ┬ optimizer of a parameter steps ┐
                                   ├ optimizer of the next one      ├ an inner step, counted at the
                                   └ ...                            ┘ end of the backward

A backward may run within another one, for example with re-entrant checkpoints. If no optimizer
steps directly in the outer backward, autograd calls no hook at its end. Then the model's next
forward counts the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from pccl_backend.trainers.backward import within_backward
from pccl_backend.trainers.foreign import untraced
from pccl_backend.trainers.optimizers import within_step

__all__ = ["Depth", "InnerSteps"]


class Depth:
    """The depth of nested steps: torch calls the hooks for a base class's step, too."""

    def __init__(self) -> None:
        self._depth = 0

    def enter(self, optimizer: torch.optim.Optimizer) -> bool:
        """Note the begin of a step. Return whether it is an outermost step of the optimizer."""
        within = self._depth > 0 and within_step(optimizer)  # otherwise, a step has raised
        self._depth = self._depth + 1 if within else 1
        return not within

    def leave(self) -> bool:
        """Note the end of a step. Return whether it was an outermost step."""
        self._depth -= 1
        return self._depth == 0


class InnerSteps:
    """Watches the optimizers of a trainer until `remove` is called.

    Args:
        model: the model that they move.
        optimizers: the optimizers.
        count: is called for each inner step that is complete, outside of backwards.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        count: Callable[[], None],
    ) -> None:
        self._model = model
        self._count = count
        self._all = (1 << len(optimizers)) - 1
        self._stepped = 0  # optimizers that have stepped in this inner step, a sum of 1 << index
        self._held = 0  # likewise, in this backward
        self._task = -1  # the backward with a callback at its end
        self._due = 0  # complete steps that are not counted yet
        self._nested = False  # whether a backward has run within another one
        self._handles: list[Any] = []
        for index, optimizer in enumerate(optimizers):
            depth = Depth()
            before, after = partial(self._before, depth), partial(self._after, depth, 1 << index)
            self._handles.append(optimizer.register_step_pre_hook(untraced(before)))
            self._handles.append(optimizer.register_step_post_hook(untraced(after)))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._held, self._due = [], 0, 0

    def settle(self) -> None:
        """Count the steps within ended backwards, unless one is under way."""
        if within_backward():
            return
        self._end_backward()

    def _before(self, depth: Depth, optimizer: torch.optim.Optimizer, *_: object) -> None:
        depth.enter(optimizer)

    def _after(self, depth: Depth, which: int, *_: object) -> None:
        if not depth.leave():
            return
        if not within_backward():
            self._add(self._held)
            self._add(which)
            self._held = 0
            self._count_due()
            return
        if self._held & which:  # its step before was in a backward that has ended, or raised
            self._add(self._held)
            self._held = 0
        self._held |= which
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._backward_ends)

    def _backward_ends(self) -> None:
        """Count at the end of a backward, or, if it ran within another one, in the next forward."""
        if torch._C._current_autograd_node() is None:
            self._end_backward()
        elif not self._nested:
            self._nested = True
            hook = untraced(lambda *_: self.settle())
            self._handles.append(self._model.register_forward_pre_hook(hook))

    def _end_backward(self) -> None:
        held, self._held = self._held, 0
        self._add(held)
        self._count_due()

    def _add(self, which: int) -> None:
        """Add optimizers that have stepped together."""
        if self._stepped & which:
            self._due += 1
            self._stepped = 0
        self._stepped |= which
        if self._stepped == self._all:
            self._due += 1
            self._stepped = 0

    def _count_due(self) -> None:
        while self._due > 0:
            self._due -= 1
            self._count()
