"""Flat buffers: the copies of a model that a trainer keeps in host memory, and their slices.

The global parameters are one flat tensor, cut into fragments; each fragment is a run of whole
parameters. The pseudo-gradient has one buffer of the size of the largest fragment, because only one
fragment travels at a time. The buffers are float32, or wider if a parameter is wider. The local
copy is the model itself, each parameter in its own dtype and on its own device.

The model's float buffers (for example a batch norm's running statistics) lie behind the parameters
of the first fragment. They travel as a difference, too, so a buffer that nobody changes keeps its
bits. Integer buffers have a flat tensor of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from pccl_backend.trainers._memory import take
from pccl_backend.trainers.exchange import HEAD
from pccl_backend.trainers.pieces import Piece, cut, is_counter, trainable

__all__ = ["Buffers"]


class Buffers:
    """Global parameters and pseudo-gradient; the globals begin as the model is.

    A peer that took no inner step has a pseudo-gradient of exactly zero. For this, the
    pseudo-gradient is measured from the values that the local copy began with: the globals rounded
    to the parameter's dtype.

    Args:
        model: the model; its trainable parameters take part.
        fragments: number of fragments.
        keeps_local: whether to keep the local copy as of the last `keep`, which costs one more
            buffer: for mix="carry".
        average: whether the model's buffers take part.

    Raises:
        ValueError: the model has no trainable parameter, or fewer than fragments.
        MemoryError: the host does not have the memory.
    """

    def __init__(
        self, model: torch.nn.Module, *, fragments: int, keeps_local: bool, average: bool
    ) -> None:
        named = trainable(model)
        self._model = model
        self._average = average
        buffers = dict(model.named_buffers()) if average else {}
        floats = {name: b for name, b in buffers.items() if b.is_floating_point()}
        self._counters = [n for n, b in buffers.items() if is_counter(b)]
        self.names = frozenset(named)
        dtype = torch.float32
        for tensor in [*named.values(), *floats.values()]:
            dtype = torch.promote_types(dtype, tensor.dtype)
        self.fragments = cut(named, floats, fragments)
        self.spans = [(pieces[0].start, pieces[-1].stop) for pieces in self.fragments]
        count = self.spans[-1][1]
        largest = max(stop - start for start, stop in self.spans)
        width = dtype.itemsize
        pinned = any(tensor.is_cuda for tensor in named.values())
        # An all-reduce keeps a copy of what it overwrites until it is committed.
        self.bytes = width * (2 * count + (3 if keeps_local else 2) * (largest + HEAD))
        take(self.bytes, parameters=sum(p.numel() for p in named.values()))

        self.global_ = torch.zeros(count, dtype=dtype, pin_memory=pinned)
        self._storage = torch.zeros(HEAD + largest, dtype=dtype, pin_memory=pinned)
        self._kept = torch.zeros(largest, dtype=dtype) if keeps_local else None
        self.counters = torch.zeros(
            sum(buffers[name].numel() for name in self._counters), dtype=torch.int64
        )
        for piece in self.pieces():
            self._global(piece).copy_(self._local(piece))
        self.read_counters(out=self.counters)

    def pieces(self) -> Iterator[Piece]:
        for pieces in self.fragments:
            yield from pieces

    def shared(self) -> dict[str, torch.Tensor]:
        """Return views of what all peers hold alike, by name."""
        views = {}
        for piece in self.pieces():
            kind = "buffer" if piece.is_buffer else "global"
            views[f"{kind}/{piece.name}"] = self._global(piece)
        if self._counters:
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
        """Set the pseudo-gradient to the local copy's start (rounded globals) minus the local copy.

        Raises:
            ValueError: the set of trainable parameters has changed.
        """
        self._check_trainable()
        for piece, delta in self._deltas(fragment):
            self._measure_piece(piece, out=delta)

    def measure_since(self, fragment: int, copies: list[torch.Tensor]) -> None:
        """Set the pseudo-gradient to an earlier `copy_local()` minus the local copy."""
        for (piece, delta), before in zip(self._deltas(fragment), copies, strict=True):
            _difference(before, self._local(piece), out=delta)

    def copy_local(self, fragment: int) -> list[torch.Tensor]:
        """Return a copy of the local parameters of a fragment, in host memory."""
        return [self._local(p).to("cpu", copy=True) for p in self.fragments[fragment]]

    def load(self, fragment: int) -> None:
        """Set the local copy to the rounded globals minus the pseudo-gradient, the learning since.

        The method reads nothing that it writes. If it raised, repeating it gives the same result.
        """
        for piece, delta in self._deltas(fragment):
            local, theirs = self._local(piece), self._global(piece)
            if piece.is_buffer:
                local.copy_(theirs)
            else:
                local.copy_(theirs.to(local.dtype).sub(delta).to(local.dtype))

    def adopt(self, *, fragment: int | None = None) -> None:
        """Set the local copy to the rounded globals."""
        chosen = self.fragments if fragment is None else [self.fragments[fragment]]
        for pieces in chosen:
            for piece in pieces:
                self._local(piece).copy_(self._global(piece))
        self.write_counters()

    def mix(self, fragment: int, alpha: float) -> None:
        """Set the local copy to alpha * local + (1 - alpha) * global; buffers to the global."""
        for piece in self.fragments[fragment]:
            self._mix_piece(piece, alpha)

    def keep(self, fragment: int) -> None:
        """Keep the local copy as it is now."""
        for piece in self.fragments[fragment]:
            self._kept_piece(fragment, piece).copy_(self._local(piece))

    def carry(self, fragment: int) -> None:
        """Set the local copy to the rounded globals plus what was learned since `keep`."""
        for piece in self.fragments[fragment]:
            self._carry_piece(piece, self._kept_piece(fragment, piece))

    def swap(
        self,
        fragment: int,
        move: Callable[[Sequence[Piece]], None],
        *,
        piecewise: bool,
        alpha: float | None,
        kept: bool,
    ) -> None:
        """Measure the next pseudo-gradient, move the globals by the present one, and load.

        This is done piece by piece, so that no further buffer of the size of the model is needed.

        Args:
            fragment: the fragment.
            move: moves the globals of some pieces by their mean pseudo-gradient.
            piecewise: whether `move` may be called for one piece at a time.
            alpha: as for `mix`; None: carry what was learned since `keep`.
            kept: whether `keep` was called since the last `adopt`.
        """
        self._check_trainable()
        pieces = self.fragments[fragment]
        groups = [[piece] for piece in pieces] if piecewise else [pieces]
        longest = max(group[-1].stop - group[0].start for group in groups)
        scratch = torch.empty(longest, dtype=self.global_.dtype)
        for group in groups:
            learned = [
                scratch[p.start - group[0].start : p.stop - group[0].start].view(p.shape)
                for p in group
            ]
            for piece, out in zip(group, learned, strict=True):
                if kept and not piece.is_buffer:
                    _difference(self._kept_piece(fragment, piece), self._local(piece), out=out)
                else:
                    self._measure_piece(piece, out=out)
            move(group)
            for piece, out in zip(group, learned, strict=True):
                if alpha is not None or piece.is_buffer:
                    self._mix_piece(piece, alpha or 0.0)
                else:
                    local = self._local(piece)
                    local.copy_(self._global(piece).to(local.dtype).sub(out).to(local.dtype))
                self._delta_piece(fragment, piece).copy_(out)
        if alpha is None:
            self.keep(fragment)

    # --- Integer buffers --------------------------------------------------------------------------

    def read_counters(self, *, out: torch.Tensor) -> None:
        """Copy the model's integer buffers."""
        for view, local in self._counter_views(out):
            view.copy_(local)

    def write_counters(self) -> None:
        """Set the model's integer buffers to the shared ones."""
        for view, local in self._counter_views(self.counters):
            local.copy_(view)

    # --- Pieces -----------------------------------------------------------------------------------

    def _measure_piece(self, piece: Piece, *, out: torch.Tensor) -> None:
        local = self._local(piece)
        _difference(self._global(piece).to(local.dtype), local, out=out)

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
        local.copy_(since.add_(theirs.to(local.dtype)))

    def _global(self, piece: Piece) -> torch.Tensor:
        return self.global_[piece.start : piece.stop].view(piece.shape)

    def _local(self, piece: Piece) -> torch.Tensor:
        """Return the model's tensor. Looked up each time: load_state_dict(assign=True) replaces."""
        model = self._model
        found = model.get_buffer(piece.name) if piece.is_buffer else model.get_parameter(piece.name)
        return found.detach()

    def _deltas(self, fragment: int) -> Iterator[tuple[Piece, torch.Tensor]]:
        for piece in self.fragments[fragment]:
            yield piece, self._delta_piece(fragment, piece)

    def _delta_piece(self, fragment: int, piece: Piece) -> torch.Tensor:
        start = self.spans[fragment][0]
        return self.delta(fragment)[piece.start - start : piece.stop - start].view(piece.shape)

    def _kept_piece(self, fragment: int, piece: Piece) -> torch.Tensor:
        assert self._kept is not None, "made for carry"
        start = self.spans[fragment][0]
        return self._kept[piece.start - start : piece.stop - start].view(piece.shape)

    def _counter_views(self, flat: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        start = 0
        for name in self._counters:
            local = self._model.get_buffer(name)
            yield flat[start : start + local.numel()].view(local.shape), local
            start += local.numel()

    def _check_trainable(self) -> None:
        thawed = sorted(trainable(self._model).keys() - self.names)
        if thawed:
            raise ValueError(
                f"{len(thawed)} parameters were thawed after start(), the first is {thawed[0]!r}, "
                "and the other peers do not average them: set requires_grad before start()"
            )


def _difference(before: torch.Tensor, now: torch.Tensor, *, out: torch.Tensor) -> None:
    """Set out to before - now; unchanged elements give zero, even if infinite or not a number."""
    now = now.to(out.device)
    out.copy_(before).sub_(now)
    if out.isnan().any():
        unchanged = (before == now) | (before.isnan() & now.isnan())
        out.masked_fill_(unchanged, 0)
