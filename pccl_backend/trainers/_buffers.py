"""Buffers: the copies of a model that DiLoCo keeps in host memory, and the arithmetic on them.

There are three flat buffers, each with one view per parameter. Thus one all-reduce carries the
whole pseudo-gradient, and shared state still has a name for every part. The buffers are float32, or
wider if a parameter is wider. The local copy is the model itself, each parameter in its own dtype.

Peers may have different processors and must still get the same bits. Therefore each operation
rounds once: a multiply and an add are separate, never fused as some processors do.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

__all__ = ["Buffers", "trainable"]

CHUNK = 1 << 18  # elements that an outer step processes at once, to avoid a fourth full buffer


class Buffers:
    """Global parameters, momentum and pseudo-gradient; the globals begin as the model is.

    A peer that took no inner step has a pseudo-gradient of exactly zero. For this, the
    pseudo-gradient is measured from the values that the local copy began with: the globals rounded
    to the parameter's dtype.

    Raises:
        ValueError: the model has no trainable parameter.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        named = trainable(model)
        self._model = model
        self._names = list(named)
        self._shapes = [parameter.shape for parameter in named.values()]
        dtype = torch.float32
        for parameter in named.values():
            dtype = torch.promote_types(dtype, parameter.dtype)
        count = sum(parameter.numel() for parameter in named.values())
        self.global_ = torch.zeros(count, dtype=dtype)
        self.momentum = torch.zeros(count, dtype=dtype)
        self.pseudo_gradient = torch.zeros(count, dtype=dtype)
        for theirs, mine in zip(self._views(self.global_), named.values(), strict=True):
            theirs.copy_(mine.detach())

    def shared(self) -> dict[str, torch.Tensor]:
        """Return views of the buffers that all peers hold alike, by name."""
        parts = {"global": self.global_, "momentum": self.momentum}
        return {
            f"{part}/{name}": view
            for part, flat in parts.items()
            for name, view in zip(self._names, self._views(flat), strict=True)
        }

    def measure(self) -> None:
        """Set pseudo_gradient to the local copy's start (rounded globals) minus the local copy."""
        for theirs, delta, mine in self._parts():
            _difference(theirs.to(mine.dtype), mine, out=delta)

    def measure_since(self, copies: list[torch.Tensor]) -> None:
        """Set pseudo_gradient to an earlier `copy_local()` minus the local copy."""
        for (_, delta, mine), before in zip(self._parts(), copies, strict=True):
            _difference(before, mine, out=delta)

    def copy_local(self) -> list[torch.Tensor]:
        """Return a copy of the local parameters, in host memory."""
        return [mine.to("cpu", copy=True) for _, _, mine in self._parts()]

    def load(self) -> None:
        """Set the local copy to the rounded globals minus pseudo_gradient, the learning since then.

        The method reads nothing that it writes. If it raised, repeating it gives the same result.
        """
        for theirs, delta, mine in self._parts():
            mine.copy_(theirs.to(mine.dtype).sub(delta).to(mine.dtype))

    def apply_outer_step(self, *, lr: float, momentum: float) -> None:
        """Apply SGD with Nesterov momentum, as torch.optim.SGD does; pseudo_gradient becomes zero.

        Nothing is allocated after the first change, so the method does not fail halfway.
        """
        scratch = torch.empty(min(CHUNK, len(self.global_)), dtype=self.global_.dtype)
        flats = self.global_, self.momentum, self.pseudo_gradient
        chunks = list(zip(*(torch.split(flat, CHUNK) for flat in flats), strict=True))
        aheads = [scratch[: len(theirs)] for theirs, _, _ in chunks]
        for (theirs, velocity, step), ahead in zip(chunks, aheads, strict=True):
            velocity.mul_(momentum).add_(step)
            torch.mul(velocity, momentum, out=ahead)
            theirs.sub_(step.add_(ahead).mul_(lr))
        self.pseudo_gradient.zero_()

    def _parts(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield global, pseudo-gradient and local tensor of each parameter.

        Parameters are looked up by name each time, because load_state_dict(assign=True) replaces
        them.
        """
        parameters = dict(self._model.named_parameters())
        views = zip(self._views(self.global_), self._views(self.pseudo_gradient), strict=True)
        for name, (theirs, delta) in zip(self._names, views, strict=True):
            yield theirs, delta, parameters[name].detach()

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        parts = torch.split(flat, [shape.numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the model's trainable parameters by name.

    Raises:
        ValueError: the model has none.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not named:
        raise ValueError("the model has no trainable parameter")
    return named


def _difference(before: torch.Tensor, now: torch.Tensor, *, out: torch.Tensor) -> None:
    """Set out to before - now; unchanged elements give zero, even if infinite or not a number."""
    now = now.to(out.device)
    out.copy_(before).sub_(now)
    if out.isnan().any():
        unchanged = (before == now) | (before.isnan() & now.isnan())
        out.masked_fill_(unchanged, 0)
