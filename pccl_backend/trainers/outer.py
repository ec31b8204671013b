"""The outer rule: how the mean pseudo-gradient moves the global parameters.

Peers may have different processors and must still get the same bits. Therefore each operation of
`Nesterov` rounds once: a multiply and an add are separate, never fused as some processors do. A
torch optimizer promises no such thing: if its bits differ between peers, the next sync corrects
them, and the trainer warns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import torch

__all__ = ["Nesterov", "OuterOptimizer", "Rate", "Rule", "TorchRule", "make_state"]

CHUNK = 1 << 18  # elements that an outer step processes at once, to avoid another full buffer

Rate = float | Callable[[int], float]
OuterOptimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


class Nesterov:
    """SGD with Nesterov momentum, as torch.optim.SGD from a zero buffer.

    Args:
        lr: the learning rate, or a function of the number of outer steps so far.
        momentum: 0 for none.
        count: number of elements of the global parameters.
        dtype: their dtype.
    """

    elementwise = True

    def __init__(self, *, lr: Rate, momentum: float, count: int, dtype: torch.dtype) -> None:
        self._lr = lr
        self._mu = momentum
        self.momentum = torch.zeros(count, dtype=dtype, device="cpu")

    def state(self) -> dict[str, torch.Tensor]:
        """Return the rule's part of the shared state, by name; flat, like the parameters."""
        return {"momentum": self.momentum}

    def apply(self, theirs: torch.Tensor, step: torch.Tensor, *, start: int, rounds: int) -> None:
        """Move the elements of `theirs`, which begin at `start`; `step` is used up.

        Nothing is allocated after the first change, so the method does not fail halfway.
        """
        lr = self._lr(rounds) if callable(self._lr) else self._lr
        scratch = torch.empty(min(CHUNK, len(theirs)), dtype=theirs.dtype, device="cpu")
        momentum = self.momentum[start : start + len(theirs)]
        flats = theirs, momentum, step
        chunks = list(zip(*(torch.split(flat, CHUNK) for flat in flats), strict=True))
        aheads = [scratch[: len(part)] for part, _, _ in chunks]
        for (part, velocity, g), ahead in zip(chunks, aheads, strict=True):
            velocity.mul_(self._mu).add_(g)
            torch.mul(velocity, self._mu, out=ahead)
            part.sub_(g.add_(ahead).mul_(lr))


class TorchRule:
    """Any torch optimizer, over one flat tensor for each fragment.

    Raises:
        ValueError: its state cannot be made in this way, or cannot be shared.
    """

    elementwise = False

    def __init__(self, make: OuterOptimizer, fragments: Sequence[torch.Tensor]) -> None:
        self._flats = [flat.detach() for flat in fragments]
        self.optimizer = make(self._flats)
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise ValueError(
                "outer_optimizer must be a function that takes a list of flat tensors and returns "
                f"a torch optimizer over them, not {type(self.optimizer).__name__}"
            )
        make_state(self.optimizer)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the rule's part of the shared state, by name."""
        return {
            f"outer/{number}/{name}": value
            for number, flat in enumerate(self._flats)
            for name, value in self.optimizer.state[flat].items()
            if isinstance(value, torch.Tensor)
        }

    def apply_fragment(self, number: int, step: torch.Tensor) -> None:
        """Move a fragment by its mean pseudo-gradient."""
        flat = self._flats[number]
        flat.grad = step
        try:
            self.optimizer.step()
        finally:
            flat.grad = None


def make_state(optimizer: torch.optim.Optimizer, *, sparse: Sequence[torch.Tensor] = ()) -> None:
    """Make an optimizer's state before its first step, as if there had been none.

    The state of a newcomer must have the same names and shapes. Therefore one step is taken with
    zero gradients, a learning rate of zero and no weight decay, and each `step` is set back.

    Args:
        optimizer: the optimizer.
        sparse: parameters that have sparse gradients.

    Raises:
        ValueError: its state cannot be made in this way, or cannot be shared.
    """
    if optimizer.state:  # the user has loaded it
        _require_tensors(optimizer)
        return
    still = {"lr": 0.0, "weight_decay": 0.0}
    groups = optimizer.param_groups
    settings = [{name: group[name] for name in still if name in group} for group in groups]
    tensors = [tensor for group in groups for tensor in group["params"]]
    before = [(tensor.grad, tensor.detach().clone()) for tensor in tensors]
    for group in groups:
        if group.get("dampening"):
            raise ValueError(
                f"the optimizer has dampening={group['dampening']}; its first step differs from a "
                "later one, so a newcomer could not get the same state: use 0"
            )
        group.update({name: still[name] for name in still if name in group})
    try:
        for tensor in tensors:
            layout = torch.sparse_coo if any(tensor is other for other in sparse) else None
            tensor.grad = torch.zeros_like(tensor, layout=layout)
        takes_closure = "closure" in inspect.signature(optimizer.step).parameters
        optimizer.step(*[lambda: 0.0] * takes_closure)
    finally:
        with torch.no_grad():
            for tensor, (gradient, value) in zip(tensors, before, strict=True):
                tensor.grad = gradient
                tensor.copy_(value)
        for group, kept in zip(groups, settings, strict=True):
            group.update(kept)
    for state in optimizer.state.values():
        if isinstance(step := state.get("step"), torch.Tensor):
            step.zero_()
    _require_tensors(optimizer)


def _require_tensors(optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError if the state has something that cannot be shared."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if not isinstance(value, torch.Tensor) and value is not None:
                raise ValueError(
                    f"the optimizer keeps {name!r} as {type(value).__name__}; only tensors can be "
                    "shared with the other peers"
                )


Rule = Nesterov | TorchRule
