"""The outer rule: how the mean pseudo-gradient moves the global parameters.

Peers may have different processors and must still get the same bits. Therefore each operation of
`Nesterov` rounds once: a multiply and an add are separate, never fused as on some processors. A
torch optimizer does not guarantee this: if its bits differ between peers, the next sync corrects
them, and warns in the logs of the corrected peer and of the master. `OuterStep.corrections` counts
this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from pccl_backend.trainers.optimizer_state import OptimizerState
from pccl_backend.trainers.optimizers import members_of

__all__ = ["Nesterov", "OuterOptimizer", "Rate", "Rule", "TorchRule"]

CHUNK = 1 << 18  # elements that an outer step processes at once, to avoid another full buffer

Rate = float | Callable[[int], float]
OuterOptimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


class Nesterov:
    """SGD with Nesterov momentum, like torch.optim.SGD with a momentum buffer of zeros.

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

    def adopt(self) -> None:
        """Do nothing: the sync has written the momentum in place."""

    def apply(
        self, theirs: torch.Tensor, step: torch.Tensor, *, start: int, outer_steps: int
    ) -> None:
        """Move the elements of `theirs`, which begin at `start`; `step` is overwritten.

        Nothing is allocated after the first change, so the method does not fail halfway.
        """
        lr = self._lr(outer_steps) if callable(self._lr) else self._lr
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
        ValueError: the optimizer is not over these tensors, or its state cannot be shared; see
            OptimizerState.
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
        self._names = {id(flat): str(number) for number, flat in enumerate(self._flats)}
        title = f"outer_optimizer ({type(self.optimizer).__name__})"
        moved = {id(tensor) for _, tensor in members_of([self.optimizer])}
        if moved != self._names.keys():
            raise ValueError(
                f"{title} moves {len(moved)} tensors, and {len(moved & self._names.keys())} of "
                f"them are among the {len(fragments)} that it was given: make it over the list "
                "that outer_optimizer receives"
            )
        self._state = OptimizerState(
            self.optimizer, self._names, title=title, prefix="outer", views=True
        )

    def state(self) -> dict[str, torch.Tensor]:
        """Return the rule's part of the shared state, by name."""
        return self._state.shared(self._names)

    def adopt(self) -> None:
        """Put the tensors of `state`, which the sync has written, into the optimizer."""
        self._state.adopt(self._names)

    def apply_fragment(self, number: int, step: torch.Tensor) -> None:
        """Move a fragment by its mean pseudo-gradient."""
        flat = self._flats[number]
        if self._state.has_spares:
            self._state.release(flat, self._names)
        flat.grad = step
        try:
            self.optimizer.step()
        finally:
            flat.grad = None


Rule = Nesterov | TorchRule
