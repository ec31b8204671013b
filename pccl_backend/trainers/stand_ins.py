"""Stand-ins: copies of an optimizer that step over copies of its parameters.

They show a trainer the state that the optimizer will make, before its first step.
"""

from __future__ import annotations

import inspect
import random as python_random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from pccl_backend.trainers.object_graph import copied, like, optimizers_in

__all__ = ["StandIn", "aside", "random", "small"]

SMALL = 3  # maximum elements of a small copy in each dimension
_aside = threading.Lock()
RATE = 1e-3  # instead of 0: at a rate of 0, some optimizers do not change their numbers


class StandIn:
    """A copy of an optimizer without state, and of all that its step can change.

    A step of the copy writes nothing of the original: its groups, tensors, objects and other
    optimizers are copied. The hooks of the program stay with the original.

    Args:
        optimizer: the original.
        tensors: the stand-in of each of its parameters, by the parameter's id.
        gradients: returns the gradient of a stand-in; None: it has none.
        closure: whether a step gets a closure, if it takes one.

    Attributes:
        optimizer: the copy.
        optimizers: the copy and all optimizers in it, each with a prefix; see `optimizers_in`.
        parts: these optimizers, their states and groups, and the stand-ins, by id.

    Raises:
        TypeError, ValueError: the optimizer refers to an object that cannot be copied.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        tensors: Mapping[int, torch.Tensor],
        gradients: Callable[[torch.Tensor], torch.Tensor | None],
        *,
        closure: bool,
    ) -> None:
        self._tensors = list(tensors.values())
        self._takes_closure = closure
        self._gradients = gradients
        known: dict[int, Any] = dict(tensors)
        self.optimizer: Optimizer = copied(optimizer, known)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                for name, value in getattr(parameter, "__dict__", {}).items():
                    setattr(tensors[id(parameter)], name, copied(value, known))
        self.optimizers = list(optimizers_in(self.optimizer))
        self.parts: dict[int, object] = {}
        for _, each in self.optimizers:
            parts = [each, each.state, each.param_groups, *each.param_groups]
            # A tensor in `defaults` is the same object as in the groups.
            self.parts |= {id(part): part for part in [*parts, each.defaults]}
            for group in each.param_groups:
                self.parts |= {id(parameter): parameter for parameter in group["params"]}
                _give_rate(group)

    def step(self) -> None:
        """Take a step with new gradients."""
        self._give()
        step = type(self.optimizer).step
        if self._takes_closure and "closure" in inspect.signature(step).parameters:
            step(self.optimizer, closure=self._closure)  # type: ignore[arg-type]
        else:
            step(self.optimizer)

    def places(self) -> list[int]:
        """Return the addresses of the stand-ins."""
        return [tensor.data_ptr() for tensor in self._tensors]

    def _give(self) -> None:
        for tensor in self._tensors:
            tensor.grad = self._gradients(tensor)

    def _closure(self) -> torch.Tensor:
        self._give()
        return torch.ones((), device="cpu")


def small(tensor: torch.Tensor) -> torch.Tensor:
    """Return random values of this dtype and number of dimensions, with a few elements."""
    shape = [min(size, SMALL) for size in tensor.shape]
    return like(tensor, random(shape, tensor, torch.Generator(device="cpu").manual_seed(1)))


def random(shape: Sequence[int], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random values of another tensor's dtype, on its device."""
    values = torch.randn(shape, device="cpu", generator=generator)
    return like.detach().new_empty(shape).copy_(values)


def _give_rate(group: dict[str, Any]) -> None:
    """Replace a learning rate of 0; many schedules begin with it."""
    rate = group.get("lr")
    if isinstance(rate, torch.Tensor):
        if not rate.any():
            rate.fill_(RATE)
    elif rate == 0:
        group["lr"] = RATE


@contextmanager
def aside(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """A `with` block that restores all random states, and calls no global optimizer hooks.

    The random states are torch's, Python's and numpy's. The hooks of all optimizers still run for
    steps of other threads.

    Args:
        tensors: tensors on all devices that the block uses.
    """
    on_cuda = {tensor.get_device() for tensor in tensors if tensor.is_cuda}
    ready = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    numpy = sys.modules.get("numpy")
    # Two threads that save the state of torch at the same time deadlock.
    with _aside, _without_hooks():
        state = python_random.getstate()
        numpy_state = numpy.random.get_state() if numpy is not None else None
        try:
            with torch.random.fork_rng(sorted(on_cuda) if ready else []):
                yield
        finally:
            python_random.setstate(state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)


@contextmanager
def _without_hooks() -> Iterator[None]:
    """Stop global optimizer hooks in this thread: a step may call the step of its base class."""
    me = threading.get_ident()
    tables: list[dict[int, Any]] = [_global_optimizer_pre_hooks, _global_optimizer_post_hooks]

    def elsewhere(hook: Callable[..., Any], *arguments: Any) -> Any:
        return hook(*arguments) if threading.get_ident() != me else None

    before = [dict(table) for table in tables]
    for table in tables:
        for number, hook in list(table.items()):
            table[number] = partial(elsewhere, hook)
    try:
        yield
    finally:
        for table, hooks in zip(tables, before, strict=True):
            for number in hooks.keys() & table.keys():
                table[number] = hooks[number]
