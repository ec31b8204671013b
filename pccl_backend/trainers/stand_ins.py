"""Stand-ins: copies of an optimizer that step over copies of its parameters.

A trainer learns from them which state the optimizer makes in a step, before it has made any.
"""

from __future__ import annotations

import inspect
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["StandIn", "optimizers_in", "random", "small"]

SMALL = 3  # elements of a small copy's dimension, at most


class StandIn:
    """A copy of an optimizer without state, and of all that its step can change.

    Nothing that the original holds is written: its groups, tensors and other optimizers are copied.
    The hooks of the program stay with the original.

    Args:
        optimizer: the original.
        tensors: what stands for each of its parameters, by the parameter's id.
        gradients: makes the gradient of such a tensor; None: it has none.

    Attributes:
        optimizer: the copy.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        tensors: Mapping[int, torch.Tensor],
        gradients: Callable[[torch.Tensor], torch.Tensor | None],
    ) -> None:
        self._tensors = list(tensors.values())
        self._gradients = gradients
        self.optimizer: Optimizer = _copied(optimizer, dict(tensors))

    def step(self) -> None:
        """Take a step with new gradients. The random numbers of the program stay as they are."""
        on_cuda = {tensor.get_device() for tensor in self._tensors if tensor.is_cuda}
        ready = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        with torch.random.fork_rng(sorted(on_cuda) if ready else []):
            self._give()
            step = _without_hooks(type(self.optimizer).step)
            if "closure" in inspect.signature(step).parameters:
                step(self.optimizer, closure=self._closure)
            else:
                step(self.optimizer)

    def _give(self) -> None:
        for tensor in self._tensors:
            tensor.grad = self._gradients(tensor)

    def _closure(self) -> torch.Tensor:
        self._give()
        return torch.ones((), device="cpu")


def small(tensor: torch.Tensor) -> torch.Tensor:
    """Return random values of this dtype and number of dimensions, with a few elements."""
    shape = [min(size, SMALL) for size in tensor.shape]
    values = random(shape, tensor, torch.Generator(device="cpu").manual_seed(1))
    return values.requires_grad_(tensor.requires_grad)


def random(shape: Sequence[int], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random values of another tensor's dtype, on its device."""
    return (
        like.detach().new_empty(shape).copy_(torch.randn(shape, device="cpu", generator=generator))
    )


def optimizers_in(optimizer: Optimizer, prefix: str = "") -> Iterator[tuple[str, Optimizer]]:
    """Yield an optimizer and those that it wraps, each with a prefix for its names."""
    yield prefix, optimizer
    for name, value in vars(optimizer).items():
        if isinstance(value, Optimizer):
            yield from optimizers_in(value, f"{prefix}{name}.")


def _without_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step of a class as it was before torch has wrapped it to call hooks."""
    while getattr(step, "hooked", False):
        step = step.__wrapped__  # type: ignore[attr-defined]
    return step


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """Return a copy of containers, tensors and optimizers; anything else is returned itself.

    Args:
        value: the original.
        known: the copies so far, by the ids of the originals.
    """
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, torch.Tensor):
        known[id(value)] = value.detach().clone().requires_grad_(value.requires_grad)
    elif isinstance(value, Optimizer):
        known[id(value)] = object.__new__(type(value))
        _copy_attributes(value, known)
    elif isinstance(value, types.MethodType) and isinstance(value.__self__, Optimizer):
        return types.MethodType(value.__func__, _copied(value.__self__, known))
    elif type(value) in (dict, OrderedDict, defaultdict):
        copy = known[id(value)] = value.copy()
        copy.update({key: _copied(inner, known) for key, inner in value.items()})
    elif type(value) in (list, tuple, set):
        known[id(value)] = type(value)(_copied(inner, known) for inner in value)
    return known.get(id(value), value)


def _copy_attributes(optimizer: Optimizer, known: dict[int, Any]) -> None:
    copy = vars(known[id(optimizer)])
    for name, value in vars(optimizer).items():
        if name.startswith("_optimizer_") and name.endswith("_hooks"):
            copy[name] = OrderedDict()
        elif name == "state":
            copy[name] = known.setdefault(id(value), defaultdict(dict))
        elif (
            callable(value) and not isinstance(value, Optimizer) and hasattr(type(optimizer), name)
        ):
            continue  # a scheduler or a compiler has wrapped the original's method
        else:
            copy[name] = _copied(value, known)
