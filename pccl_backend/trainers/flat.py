"""Flat buffers: a trainer's copies of the model in host memory, and their slices.

The global parameters are one flat tensor, cut into fragments; each fragment is a run of whole
parameters. The pseudo-gradient has one buffer of the size of the largest fragment, because only one
fragment travels at a time. The buffers are float32, or wider if a parameter is wider. The local
copy is the model itself, each parameter in its own dtype and on its own device. A complex number
is a pair of reals in the buffers.

The model's float buffers (for example a batch norm's running statistics) follow the parameters
of the first fragment. They travel as a difference, too, so an unchanged buffer keeps its bits.
Integer and bool buffers have a flat tensor of their own.

If several processes of a host share the model, each has such buffers over the same memory. Each
process writes its own shards of the model (shards.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from pccl_backend._memory import take
from pccl_backend.trainers.exchange import HEAD
from pccl_backend.trainers.layout import Layout, difference
from pccl_backend.trainers.pieces import Piece, cut
from pccl_backend.trainers.settings import Settings
from pccl_backend.trainers.shards import shard_of

__all__ = ["Buffers", "Make", "Plan"]

Plan = Mapping[str, tuple[int, torch.dtype]]  # number of elements and dtype of each tensor
Make = Callable[[Plan, bool], dict[str, torch.Tensor]]  # the flag: pinned, for copies to a GPU


def _private(plan: Plan, pinned: bool) -> dict[str, torch.Tensor]:
    """Return tensors of zeros that belong to this process alone."""
    return {
        name: torch.zeros(count, dtype=dtype, device="cpu", pin_memory=pinned)
        for name, (count, dtype) in plan.items()
    }


class Buffers:
    """Global parameters and pseudo-gradient; all zeros before `fill`.

    A peer that took no inner step has a pseudo-gradient of exactly zero. For this, the
    pseudo-gradient is measured from the initial values of the local copy: the globals rounded to
    the parameter's dtype.

    Args:
        layout: the layout of the present model.
        settings: the settings of the trainer.
        make: makes the tensors.
        leads: whether this process is the first of its host. The first process checks the host's
            free memory, and writes the tensors that are equal in all processes of the host.

    Raises:
        ValueError: the model has fewer trainable parameters than fragments, or cannot be quantized.
        MemoryError: the host does not have the memory.
    """

    def __init__(
        self, layout: Layout, settings: Settings, *, make: Make = _private, leads: bool = True
    ) -> None:
        layout.require_quantizable(settings.quantize)
        self._layout = layout
        self.fragments = cut(layout.parameters, layout.floats, settings.fragments)
        self.spans = [(pieces[0].start, pieces[-1].stop) for pieces in self.fragments]
        count = self.spans[-1][1]
        largest = max(stop - start for start, stop in self.spans)
        dtype, keeps_local = layout.dtype, settings.mix == "carry"
        # An all-reduce keeps a copy of the overwritten elements until it is committed.
        self.bytes = dtype.itemsize * (2 * count + (3 if keeps_local else 2) * (largest + HEAD))
        if settings.error_feedback and leads:
            self.bytes += 4 * (count + largest)
        if leads:
            take(self.bytes, parameters=sum(s.numel() for s in layout.parameters.values()))
        counters = sum(shape.numel() for shape in layout.counters.values())
        plan = {
            "global": (count, dtype),
            "storage": (HEAD + largest, dtype),
            "kept": (largest if keeps_local else 0, dtype),
            "counters": (counters, torch.int64),
        }
        tensors = make(plan, layout.on_cuda)
        self.global_, self._storage = tensors["global"], tensors["storage"]
        self._kept, self.counters = tensors["kept"], tensors["counters"]
        self._leads = leads
        self._parts = {
            piece.name: shard_of(layout.tensor(piece.name), leads=leads) for piece in self.pieces()
        }
        self._remembered: list[torch.Tensor] = []
        self._scratch: torch.Tensor | None = None

    def check(self) -> None:
        """Raise ValueError if the model's layout has changed since the start."""
        self._layout.check()

    def fill(self) -> None:
        """Set the globals to the present model."""
        for piece in self.pieces():
            if self._parts[piece.name].writes:
                self._global(piece).copy_(self._local(piece))
        if self._leads:
            self.read_counters(out=self.counters)

    def pieces(self) -> Iterator[Piece]:
        for pieces in self.fragments:
            yield from pieces

    def shared(self) -> dict[str, torch.Tensor]:
        """Return views of the tensors that are equal on all peers, by name."""
        views = {}
        for piece in self.pieces():
            kind = "buffer" if piece.is_buffer else "global"
            whole = self.global_[piece.start : piece.stop].view(piece.shape)
            views[f"{kind}/{piece.name}"] = whole
        if self._layout.counters:
            views["buffer/counters"] = self.counters
        return views

    def by_parameter(self, flat: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the views of a flat tensor that is cut like the globals, without buffers."""
        for piece in self.pieces():
            if not piece.is_buffer:
                yield piece.name, flat[piece.start : piece.stop].view(piece.shape)

    def delta(self, fragment: int) -> torch.Tensor:
        """Return the pseudo-gradient of a fragment."""
        start, stop = self.spans[fragment]
        return self._storage[HEAD : HEAD + stop - start]

    def body(self, fragment: int, *, head: int) -> torch.Tensor:
        """Return the pseudo-gradient with `head` elements before it."""
        start, stop = self.spans[fragment]
        return self._storage[HEAD - head : HEAD + stop - start]

    # --- Between the globals and the local copy ---------------------------------------------------

    def measure(self, fragment: int) -> None:
        """Set the pseudo-gradient to the initial values of the local copy, minus the local copy."""
        for piece in self._written(fragment):
            self._measure_piece(piece, out=self._delta_piece(fragment, piece))

    def remember(self, fragment: int) -> None:
        """Copy the local parameters of a fragment, to host memory."""
        pieces = self._written(fragment)
        self._remembered = [self._local(piece).to("cpu", copy=True) for piece in pieces]

    def measure_since(self, fragment: int) -> None:
        """Set the pseudo-gradient to the copy made by `remember`, minus the local copy."""
        for piece, before in zip(self._written(fragment), self._remembered, strict=True):
            difference(before, self._local(piece), out=self._delta_piece(fragment, piece))
        self._remembered = []

    def load(self, fragment: int) -> None:
        """Set the local copy to the rounded globals minus the pseudo-gradient (later learning).

        The pseudo-gradient has the learning since the outer step was sent. The method reads nothing
        that it writes. If it raised, repeating it gives the same result.
        """
        for piece in self.fragments[fragment]:
            local, theirs = self._local(piece), self._global(piece)
            if piece.is_buffer:
                local.copy_(theirs)
            else:
                delta = self._delta_piece(fragment, piece)
                local.copy_(_rounded(theirs, local.dtype).sub(delta).to(local.dtype))

    def adopt(self, *, fragment: int | None = None) -> None:
        """Set the local copy to the rounded globals."""
        chosen = self.fragments if fragment is None else [self.fragments[fragment]]
        for pieces in chosen:
            for piece in pieces:
                self._local(piece).copy_(self._global(piece))
        self._layout.write_counters(self.counters)

    def mix(self, fragment: int, alpha: float) -> None:
        """Set the local copy to alpha * local + (1 - alpha) * global; buffers to the global."""
        for piece in self.fragments[fragment]:
            self._mix_piece(piece, alpha)

    def keep(self, fragment: int) -> None:
        """Save the present values of the local copy, for `carry`."""
        for piece in self._written(fragment):
            self._kept_piece(fragment, piece).copy_(self._local(piece))

    def carry(self, fragment: int) -> None:
        """Set the local copy to the rounded globals plus the learning since `keep`."""
        for piece in self.fragments[fragment]:
            self._carry_piece(piece, self._kept_piece(fragment, piece))

    def swap_out(self, fragment: int, first: int, stop: int, *, kept: bool) -> None:
        """Measure the next pseudo-gradient of some pieces of a fragment, in scratch memory.

        The caller then moves the globals of these pieces by the present pseudo-gradient, and calls
        `swap_in`. With a few pieces at a time it needs no further buffer of the size of the model.

        Args:
            fragment: the fragment.
            first, stop: the range of its pieces.
            kept: whether `keep` was called since the last `adopt`.
        """
        pieces = self.fragments[fragment][first:stop]
        count = sum(self._local(piece).numel() for piece in pieces)
        if self._scratch is None or len(self._scratch) < count:
            self._scratch = torch.empty(count, dtype=self.global_.dtype, device="cpu")
        for piece, out in self._aside(pieces):
            if kept and not piece.is_buffer:
                difference(self._kept_piece(fragment, piece), self._local(piece), out=out)
            else:
                self._measure_piece(piece, out=out)

    def swap_in(self, fragment: int, first: int, stop: int, *, alpha: float | None) -> None:
        """Load the pieces of `swap_out`, and make its measurement their pseudo-gradient.

        Args:
            fragment, first, stop: as in `swap_out`.
            alpha: as for `mix`; None: carry the learning since `keep`.
        """
        for piece, out in self._aside(self.fragments[fragment][first:stop]):
            if alpha is not None or piece.is_buffer:
                self._mix_piece(piece, alpha or 0.0)
            else:
                local = self._local(piece)
                theirs = _rounded(self._global(piece), local.dtype)
                local.copy_(theirs.sub(out).to(local.dtype))
            if self._parts[piece.name].writes:
                self._delta_piece(fragment, piece).copy_(out)
        if stop == len(self.fragments[fragment]):
            self._scratch = None

    def _aside(self, pieces: list[Piece]) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Yield the pieces with their parts of the scratch."""
        assert self._scratch is not None, "swap_out has made it"
        start = 0
        for piece in pieces:
            local = self._local(piece)
            yield piece, self._scratch[start : start + local.numel()].view(local.shape)
            start += local.numel()

    # --- Integer buffers --------------------------------------------------------------------------

    def read_counters(self, *, out: torch.Tensor) -> None:
        """Copy the model's integer buffers."""
        self._layout.read_counters(out=out)

    def flip_counters(self, flat: torch.Tensor) -> None:
        """See `Layout.flip_counters`."""
        self._layout.flip_counters(flat)

    def write_counters(self) -> None:
        """Set the model's integer buffers to the shared ones."""
        self._layout.write_counters(self.counters)

    # --- Pieces -----------------------------------------------------------------------------------

    def _measure_piece(self, piece: Piece, *, out: torch.Tensor) -> None:
        local = self._local(piece)
        difference(_rounded(self._global(piece), local.dtype), local, out=out)

    def _mix_piece(self, piece: Piece, alpha: float) -> None:
        local, theirs = self._local(piece), self._global(piece)
        if alpha == 0 or piece.is_buffer:
            local.copy_(theirs)
        else:
            mine = local.to(theirs.device, theirs.dtype, copy=True)
            local.copy_(mine.sub_(theirs).mul_(alpha).add_(theirs))

    def _carry_piece(self, piece: Piece, kept: torch.Tensor) -> None:
        local, theirs = self._local(piece), self._global(piece)
        if piece.is_buffer:
            local.copy_(theirs)
            return
        since = local.to(theirs.device, theirs.dtype, copy=True).sub_(kept)
        local.copy_(since.add_(_rounded(theirs, local.dtype)))

    def _local(self, piece: Piece) -> torch.Tensor:
        return self._layout.local(piece.name)

    def _global(self, piece: Piece) -> torch.Tensor:
        return self._shard(piece, self.global_[piece.start : piece.stop])

    def _delta_piece(self, fragment: int, piece: Piece) -> torch.Tensor:
        start = self.spans[fragment][0]
        return self._shard(piece, self.delta(fragment)[piece.start - start : piece.stop - start])

    def _kept_piece(self, fragment: int, piece: Piece) -> torch.Tensor:
        start = self.spans[fragment][0]
        return self._shard(piece, self._kept[piece.start - start : piece.stop - start])

    def _shard(self, piece: Piece, flat: torch.Tensor) -> torch.Tensor:
        """Return this process's shard of one whole parameter or buffer."""
        return self._parts[piece.name].of(flat.view(piece.shape))

    def _written(self, fragment: int) -> list[Piece]:
        """Return the pieces that this process writes into the buffers."""
        return [piece for piece in self.fragments[fragment] if self._parts[piece.name].writes]


def _rounded(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the values rounded to a narrower dtype, in the wide dtype."""
    return wide.to(dtype).to(wide.dtype)
