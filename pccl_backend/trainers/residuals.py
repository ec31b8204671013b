"""Residuals: what the format of a trainer has lost of each fragment, for its error feedback.

A round that fails may be measured again, and its pseudo-gradient is then another one. Therefore
what a round loses counts only when the round has landed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pccl_backend.quantization import Format, loss_of

__all__ = ["Residuals"]


class Residuals:
    """A residual for each element of the model, of one peer.

    Args:
        format: of the all-reduces.
        spans: the elements of each fragment.
    """

    def __init__(self, format: Format, spans: Sequence[tuple[int, int]]) -> None:
        self._format = format
        self._spans = spans
        self._lost = torch.zeros(spans[-1][1], device="cpu")
        self._pending: torch.Tensor | None = None  # of the round under way

    @property
    def lost(self) -> torch.Tensor:
        """The lost part of each element that was not sent yet, in the order of the fragments."""
        return self._lost

    def compensate(self, fragment: int, delta: torch.Tensor) -> None:
        """Add what was lost of this fragment before, and note what this round loses."""
        delta.add_(self._of(fragment))
        self._pending = loss_of(delta, self._format)

    def drop(self) -> None:
        """The round is measured again, or sends nothing of this peer."""
        self._pending = None

    def landed(self, fragment: int, *, quantized: bool) -> None:
        """The round has landed. If it was not quantized, nothing was lost."""
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
