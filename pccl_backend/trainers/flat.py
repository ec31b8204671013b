"""Flat buffers: the copies of a model that a trainer keeps in host memory, and their slices.

The global parameters are one flat tensor, cut into fragments; each fragment is a run of whole
parameters. The pseudo-gradient has one buffer of the size of the largest fragment, because only one
fragment travels at a time. The buffers are float32, or wider if a parameter is wider. The local
copy is the model itself, each parameter in its own dtype and on its own device.

The model's float buffers (for example a batch norm's running statistics) lie behind the parameters
of the first fragment. They travel as a difference, too, so a buffer that nobody changes keeps its
bits. Integer buffers have a flat tensor of their own.

If several processes of a host share the model, each has such buffers over the same memory. It
writes the parts of the model that it has (shards.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from pccl_backend._memory import take
from pccl_backend.quantization import Format
from pccl_backend.trainers.arena import Make, private
from pccl_backend.trainers.exchange import HEAD
from pccl_backend.trainers.pieces import Piece, cut, is_counter, trainable
from pccl_backend.trainers.settings import Settings
from pccl_backend.trainers.shards import is_dtensor, local_of, part_of, reshard

__all__ = ["Buffers"]


class Buffers:
    """Global parameters and pseudo-gradient; all zeros before `fill`.

    A peer that took no inner step has a pseudo-gradient of exactly zero. For this, the
    pseudo-gradient is measured from the values that the local copy began with: the globals rounded
    to the parameter's dtype.

    Args:
        model: the model; its trainable parameters take part.
        fragments: number of fragments.
        keeps_local: whether to keep the local copy as of the last `keep`, which costs one more
            buffer: for mix="carry".
        average: whether the model's buffers take part.
        make: makes the tensors.
        leads: whether this process is the first of its host. The first one looks whether the host
            has the memory, and writes what all processes of the host have.
        quantize: the format in which pseudo-gradients travel.
        error_feedback: whether a `Residuals` takes memory beside the buffers.

    Raises:
        ValueError: the model has no trainable parameter, or fewer than fragments, or it cannot be
            quantized.
        MemoryError: the host does not have the memory.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        fragments: int,
        keeps_local: bool,
        average: bool,
        make: Make = private,
        leads: bool = True,
        quantize: Format | None = None,
        error_feedback: bool = False,
    ) -> None:
        reshard(model)
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
        if quantize is not None and dtype != torch.float32:
            raise ValueError(
                f"quantize={quantize} needs parameters and buffers of float32 or smaller, and this "
                f"model has {dtype}: call model.float(), or leave quantize out"
            )
        self.fragments = cut(named, floats, fragments)
        self.spans = [(pieces[0].start, pieces[-1].stop) for pieces in self.fragments]
        count = self.spans[-1][1]
        largest = max(stop - start for start, stop in self.spans)
        width = dtype.itemsize
        pinned = any(tensor.is_cuda for tensor in named.values())
        # An all-reduce keeps a copy of what it overwrites until it is committed.
        self.bytes = width * (2 * count + (3 if keeps_local else 2) * (largest + HEAD))
        if error_feedback and leads:
            self.bytes += 4 * (count + largest)
        if leads:
            take(self.bytes, parameters=sum(p.numel() for p in named.values()))
        counters = sum(buffers[name].numel() for name in self._counters)
        plan = {
            "global": (count, dtype),
            "storage": (HEAD + largest, dtype),
            "kept": (largest if keeps_local else 0, dtype),
            "counters": (counters, torch.int64),
        }
        tensors = make(plan, pinned)
        self.global_, self._storage = tensors["global"], tensors["storage"]
        self._kept, self.counters = tensors["kept"], tensors["counters"]
        self._leads = leads
        self._parts = {
            name: part_of(tensor, leads=leads) for name, tensor in [*named.items(), *floats.items()]
        }
        self._remembered: list[torch.Tensor] = []
        self._scratch: torch.Tensor | None = None

    @staticmethod
    def of(
        model: torch.nn.Module, settings: Settings, *, make: Make, leads: bool = True
    ) -> Buffers:
        """Return the buffers for a trainer of these settings."""
        return Buffers(
            model,
            fragments=settings.fragments,
            keeps_local=settings.mix == "carry",
            average=settings.buffers == "average",
            make=make,
            leads=leads,
            quantize=settings.quantize,
            error_feedback=settings.error_feedback,
        )

    def fill(self) -> None:
        """Set the globals to the model as it is."""
        for piece in self.pieces():
            if self._parts[piece.name].writes:
                self._global(piece).copy_(self._local(piece))
        if self._leads:
            self.read_counters(out=self.counters)

    def pieces(self) -> Iterator[Piece]:
        for pieces in self.fragments:
            yield from pieces

    def shared(self) -> dict[str, torch.Tensor]:
        """Return views of what all peers hold alike, by name."""
        views = {}
        for piece in self.pieces():
            kind = "buffer" if piece.is_buffer else "global"
            whole = self.global_[piece.start : piece.stop].view(piece.shape)
            views[f"{kind}/{piece.name}"] = whole
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
        for piece in self._written(fragment):
            self._measure_piece(piece, out=self._delta_piece(fragment, piece))

    def remember(self, fragment: int) -> None:
        """Copy the local parameters of a fragment, to host memory."""
        pieces = self._written(fragment)
        self._remembered = [self._local(piece).to("cpu", copy=True) for piece in pieces]

    def measure_since(self, fragment: int) -> None:
        """Set the pseudo-gradient to what `remember` has copied minus the local copy."""
        for piece, before in zip(self._written(fragment), self._remembered, strict=True):
            _difference(before, self._local(piece), out=self._delta_piece(fragment, piece))
        self._remembered = []

    def load(self, fragment: int) -> None:
        """Set the local copy to the rounded globals minus the pseudo-gradient, the learning since.

        The method reads nothing that it writes. If it raised, repeating it gives the same result.
        """
        for piece in self.fragments[fragment]:
            local, theirs = self._local(piece), self._global(piece)
            if piece.is_buffer:
                local.copy_(theirs)
            else:
                delta = self._delta_piece(fragment, piece)
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
        for piece in self._written(fragment):
            self._kept_piece(fragment, piece).copy_(self._local(piece))

    def carry(self, fragment: int) -> None:
        """Set the local copy to the rounded globals plus what was learned since `keep`."""
        for piece in self.fragments[fragment]:
            self._carry_piece(piece, self._kept_piece(fragment, piece))

    def swap_out(self, fragment: int, first: int, stop: int, *, kept: bool) -> None:
        """Measure the next pseudo-gradient of some pieces of a fragment, aside.

        The caller then moves their globals by the present one, and calls `swap_in`. This is done
        for a few pieces at a time, so that no further buffer of the size of the model is needed.

        Args:
            fragment: the fragment.
            first, stop: numbers of its pieces.
            kept: whether `keep` was called since the last `adopt`.
        """
        self._check_trainable()
        pieces = self.fragments[fragment][first:stop]
        count = sum(self._local(piece).numel() for piece in pieces)
        if self._scratch is None or len(self._scratch) < count:
            self._scratch = torch.empty(count, dtype=self.global_.dtype)
        for piece, out in self._aside(pieces):
            if kept and not piece.is_buffer:
                _difference(self._kept_piece(fragment, piece), self._local(piece), out=out)
            else:
                self._measure_piece(piece, out=out)

    def swap_in(self, fragment: int, first: int, stop: int, *, alpha: float | None) -> None:
        """Load the pieces of `swap_out`, and take what it has measured for their pseudo-gradient.

        Args:
            fragment, first, stop: as in `swap_out`.
            alpha: as for `mix`; None: carry what was learned since `keep`.
        """
        for piece, out in self._aside(self.fragments[fragment][first:stop]):
            if alpha is not None or piece.is_buffer:
                self._mix_piece(piece, alpha or 0.0)
            else:
                local = self._local(piece)
                local.copy_(self._global(piece).to(local.dtype).sub(out).to(local.dtype))
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

    def _local(self, piece: Piece) -> torch.Tensor:
        """Return the model's tensor. Looked up each time: load_state_dict(assign=True) replaces."""
        model = self._model
        if piece.is_buffer:
            return local_of(model.get_buffer(piece.name))
        found = model.get_parameter(piece.name)
        if self._parts[piece.name].is_cut and not is_dtensor(found):
            reshard(model)
            found = model.get_parameter(piece.name)
        return local_of(found)

    def _global(self, piece: Piece) -> torch.Tensor:
        return self._part(piece, self.global_[piece.start : piece.stop])

    def _delta_piece(self, fragment: int, piece: Piece) -> torch.Tensor:
        start = self.spans[fragment][0]
        return self._part(piece, self.delta(fragment)[piece.start - start : piece.stop - start])

    def _kept_piece(self, fragment: int, piece: Piece) -> torch.Tensor:
        start = self.spans[fragment][0]
        return self._part(piece, self._kept[piece.start - start : piece.stop - start])

    def _part(self, piece: Piece, flat: torch.Tensor) -> torch.Tensor:
        """Return the part that this process has of one whole parameter or buffer."""
        return self._parts[piece.name].of(flat.view(piece.shape))

    def _written(self, fragment: int) -> list[Piece]:
        """Return the pieces that this process writes into the buffers."""
        return [piece for piece in self.fragments[fragment] if self._parts[piece.name].writes]

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
