"""Residuals: the rounding errors of each fragment, for the error feedback of a trainer.

A failed outer step may be measured again, with a different pseudo-gradient. Therefore the rounding
error of an outer step counts only once the outer step has landed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pccl_backend.quantization import Format, loss_of

__all__ = ["Residuals"]


class Residuals:
    """A residual for each element of the model, of one peer.

    Args:
        format: the format of the all-reduces.
        spans: first and last element (exclusive) of each fragment.
    """

    def __init__(self, format: Format, spans: Sequence[tuple[int, int]]) -> None:
        self._format = format
        self._spans = spans
        self._lost = torch.zeros(spans[-1][1], device="cpu")
        self._pending: torch.Tensor | None = None  # of the outer step under way

    @property
    def lost(self) -> torch.Tensor:
        """The rounding error of each element, not sent yet; in the order of the fragments."""
        return self._lost

    def compensate(self, fragment: int, delta: torch.Tensor) -> None:
        """Add the residual of this fragment to `delta`, and note the rounding error of the sum."""
        delta.add_(self._of(fragment))
        self._pending = loss_of(delta, self._format)

    def drop(self) -> None:
        """Forget the rounding error of this outer step: it is measured again or sends nothing."""
        self._pending = None

    def landed(self, fragment: int, *, quantized: bool) -> None:
        """Count the rounding error of a landed outer step. Without quantization it is zero."""
        if self._pending is not None:
            self._of(fragment).copy_(self._pending if quantized else torch.zeros((), device="cpu"))
        self._pending = None

    def reset(self) -> None:
        """Begin anew."""
        self._lost.zero_()
        self._pending = None

    def _of(self, fragment: int) -> torch.Tensor:
        start, stop = self._spans[fragment]
        return self._lost[start:stop]
