"""Layout: names, shapes and dtypes of a model at `start`, and its present tensors by these names.

All peers of a run have one layout. Messages contain no names, so an added or removed tensor on one
peer would shift all tensors after it. Therefore the layout of `start` is valid to the end, and a
model is compared with it at each boundary, before this peer sends anything.

Freezing a parameter changes nothing: it keeps its place. Another tensor of the same name, shape and
dtype, on any device, changes nothing either, because tensors are looked up by name each time.

A complex number travels as a pair of reals; a layout contains the shapes of the reals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch.nn.parameter import is_lazy

from pccl_backend import _C
from pccl_backend.quantization import Format
from pccl_backend.trainers.optimizers import members_of
from pccl_backend.trainers.shards import is_dtensor, local_of, reshard

__all__ = ["Layout", "difference", "reals", "views_of"]

FLOATS = {
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
}
INTEGERS = {  # an int64 holds their values, or their 64 bits
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
}
REMEDY = (
    "All peers keep the layout of start(). Undo the change, or make it before start(), on all "
    "peers alike"
)
SIGN = -(1 << 63)  # flipping this bit maps the order of unsigned numbers to signed ones
APART = ', or keep buffers apart by DiLoCo(buffers="own")'


class Slot(NamedTuple):
    """A parameter or buffer, as it was at the start."""

    shape: torch.Size
    local: torch.Size  # of the shard in this process
    dtype: torch.dtype

    @staticmethod
    def of(tensor: torch.Tensor) -> Slot:
        local = local_of(tensor).shape if is_dtensor(tensor) else tensor.shape
        return Slot(tensor.shape, local, tensor.dtype)

    def __str__(self) -> str:
        shard = f", of which {tuple(self.local)} is here" if self.local != self.shape else ""
        return f"{self.dtype} of shape {tuple(self.shape)}{shard}"


class Layout:
    """The present layout of a model, for later comparisons.

    Args:
        model: the model.
        optimizers: the optimizers that move it; empty: the program does.
        buffers: whether the model's buffers take part.
        frozen: whether the frozen parameters are shared, too.

    Attributes:
        parameters: shapes of the trainable parameters, by name, in the model's order.
        floats: shapes of the float and complex buffers that take part.
        counters: shapes of the integer and bool buffers; peers take the greatest of each element.
        sparse: the trainable parameters whose gradients may be sparse.
        dtype: float32, or float64 if one of these tensors is as wide.
        on_cuda: whether a trainable parameter is on a CUDA device.

    Raises:
        ValueError: no trainable parameter, a tensor that cannot take part, or a trainable parameter
            that none of the optimizers moves.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        buffers: bool,
        frozen: bool,
    ) -> None:
        self._model = model
        self._optimizers = optimizers
        self._has_buffers = buffers
        self._has_frozen = frozen
        named, others = self.named_parameters(), self._named_buffers()
        trained = {name: p for name, p in named.items() if p.requires_grad}
        if not trained:
            raise ValueError("the model has no trainable parameter")
        for name, parameter in named.items():
            if name in trained or frozen:
                _require_able(f"parameter {name!r}", parameter, moves=name in trained)
        for name, buffer in others.items():
            _require_able(f"buffer {name!r}", buffer, moves=buffer.dtype not in INTEGERS)
        floats = {name: b for name, b in others.items() if b.dtype not in INTEGERS}
        self.parameters = {name: _shape(tensor) for name, tensor in trained.items()}
        self.floats = {name: _shape(tensor) for name, tensor in floats.items()}
        self.counters = {name: b.shape for name, b in others.items() if name not in floats}
        self._unsigned = {n for n in self.counters if others[n].dtype is torch.uint64}
        moving = {**trained, **floats}
        self._wide = [n for n, tensor in moving.items() if _real(tensor.dtype) == torch.float64]
        self.dtype = torch.float64 if self._wide else torch.float32
        rows = {
            id(parameter)
            for module in model.modules()
            if getattr(module, "sparse", False) is True
            for parameter in module.parameters(recurse=False)
        }
        self.sparse = tuple(name for name, parameter in trained.items() if id(parameter) in rows)
        self.on_cuda = any(tensor.is_cuda for tensor in trained.values())
        self._cut = {name for name, tensor in trained.items() if is_dtensor(tensor)}
        self._parameters = {name: Slot.of(tensor) for name, tensor in named.items()}
        self._buffers = {name: Slot.of(tensor) for name, tensor in others.items()}
        self._check_moved(named)

    def check(self) -> None:
        """Compare the model with the layout.

        Raises:
            ValueError: it has changed; the message names the first tensor.
        """
        named = self.named_parameters()
        self._compare("parameter", named, self._parameters)
        if self._has_buffers:
            self._compare("buffer", self._named_buffers(), self._buffers)
        self._check_moved(named)

    def require_quantizable(self, format: Format | None) -> None:
        """Raise ValueError if a float64 tensor takes part: the format cannot quantize it."""
        if format is not None and self._wide:
            raise ValueError(
                f"quantize={format} needs parameters and buffers of float32 or smaller, and "
                f"{self._wide[0]!r} is of float64: call model.float(), or leave quantize out"
            )

    def named_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return all present parameters of the model; tied ones once."""
        reshard(self._model)
        return dict(self._model.named_parameters())

    def tensor(self, name: str) -> torch.Tensor:
        """Return the present trainable parameter or buffer of a name."""
        if name not in self.parameters:
            return self._model.get_buffer(name)
        found = self._model.get_parameter(name)
        if name in self._cut and not is_dtensor(found):
            reshard(self._model)
            found = self._model.get_parameter(name)
        return found

    def local(self, name: str) -> torch.Tensor:
        """Return this process's shard of the tensor, to read or to write."""
        return reals(local_of(self.tensor(name)))

    def read_counters(self, *, out: torch.Tensor) -> None:
        """Copy the integer and bool buffers to a flat tensor of int64, which wraps uint64."""
        for name, view in views_of(out, self.counters):
            view.copy_(self._signed(name))

    def flip_counters(self, flat: torch.Tensor) -> None:
        """Map uint64 to int64 in the same order; a second call restores the values."""
        for name, view in views_of(flat, self.counters):
            if name in self._unsigned:
                view.bitwise_xor_(SIGN)

    def write_counters(self, flat: torch.Tensor) -> None:
        """Set the integer and bool buffers to a copy made by `read_counters`."""
        for name, view in views_of(flat, self.counters):
            self._signed(name).copy_(view)

    def _signed(self, name: str) -> torch.Tensor:
        """Return this process's shard of a counter; uint64 is viewed as int64."""
        local = self.local(name)
        return local.view(torch.int64) if local.dtype is torch.uint64 else local

    # --- The comparison ---------------------------------------------------------------------------

    def _named_buffers(self) -> dict[str, torch.Tensor]:
        return dict(self._model.named_buffers()) if self._has_buffers else {}

    def _compare(
        self, kind: str, now: Mapping[str, torch.Tensor], before: Mapping[str, Slot]
    ) -> None:
        remedy = REMEDY + (APART if kind == "buffer" else "")
        for name, slot in before.items():
            if name not in now:
                fate = self._fate(name, now)
                raise ValueError(f"{kind} {name!r} {fate}, and was {slot} at start(). {remedy}")
        for name, tensor in now.items():
            slot, was = Slot.of(tensor), before.get(name)
            if slot != was:
                raise ValueError(
                    f"{kind} {name!r} is {slot}, and was {was or 'not there'} at start(). {remedy}"
                )
            if kind == "buffer" or name in self.parameters or self._has_frozen:
                _require_plain(f"{kind} {name!r}", tensor)

    def _fate(self, name: str, now: Mapping[str, torch.Tensor]) -> str:
        """Return the fate of a tensor that has lost its name."""
        owner, _, leaf = name.rpartition(".")
        try:
            found = getattr(self._model.get_submodule(owner), leaf)
        except AttributeError:
            found = None
        twins = (other for other, tensor in now.items() if tensor is found)
        return f"is tied to {twin!r} now" if (twin := next(twins, None)) else "is gone"

    def _check_moved(self, named: Mapping[str, torch.Tensor]) -> None:
        """Check that each trainable parameter is averaged, and is moved by an optimizer."""
        moved = {id(parameter) for _, parameter in members_of(self._optimizers)}
        for name, parameter in named.items():
            if not parameter.requires_grad:
                continue
            if name not in self.parameters:
                raise ValueError(
                    f"parameter {name!r} is trainable, and was frozen at start(), so the other "
                    f"peers do not average it. {REMEDY}"
                )
            if self._optimizers and id(parameter) not in moved:
                theirs = ", ".join(type(optimizer).__name__ for optimizer in self._optimizers)
                raise ValueError(
                    f"parameter {name!r} is trainable, and none of the trainer's optimizers "
                    f"({theirs}, of {len(moved)} parameters) moves it. If it was replaced after "
                    "the optimizer was made, the optimizer still moves the old one: replace it "
                    "before. If it is not to be trained, call requires_grad_(False)"
                )


def views_of(
    flat: torch.Tensor, shapes: Mapping[str, torch.Size]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield consecutive parts of a flat tensor in these shapes, by name."""
    start = 0
    for name, shape in shapes.items():
        yield name, flat[start : start + shape.numel()].view(shape)
        start += shape.numel()


def reals(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with complex numbers as pairs of reals, over the same memory if possible."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def difference(before: torch.Tensor, now: torch.Tensor, *, out: torch.Tensor) -> None:
    """Set `out` to before - now. Unchanged elements give zero, even infinities and NaNs."""
    before, now = (tensor.to(out.device, out.dtype) for tensor in (before, now))
    torch.sub(before, now, out=out)
    if out.isnan().any():
        unchanged = (before == now) | (before.isnan() & now.isnan())
        out.masked_fill_(unchanged, 0)


def _shape(tensor: torch.Tensor) -> torch.Size:
    return torch.Size([*tensor.shape, 2]) if tensor.is_complex() else tensor.shape


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def _require_able(what: str, tensor: torch.Tensor, *, moves: bool) -> None:
    """Raise ValueError if a tensor cannot be shared, or with `moves`, cannot be averaged."""
    if is_lazy(tensor):
        raise ValueError(f"{what} has no shape yet: run the model once before its trainer is made")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = " nested" if tensor.is_nested else ""
        raise ValueError(
            f"{what} is{kind} {tensor.dtype} in the layout {tensor.layout}, and a trainer takes "
            "dense tensors: use .to_dense(), .to_padded_tensor() or .dequantize() before the "
            "trainer is made"
        )
    if moves and _real(tensor.dtype) not in FLOATS:
        raise ValueError(
            f"{what} is {tensor.dtype}, which a trainer cannot average: convert it to a dtype such "
            "as torch.float32 or torch.int64 before the trainer is made, freeze a parameter by "
            'requires_grad_(False), or keep buffers apart by DiLoCo(buffers="own")'
        )
    _require_plain(what, tensor)


def _require_plain(what: str, tensor: torch.Tensor) -> None:
    if tensor.is_inference():
        raise ValueError(
            f"{what} was made in inference mode, in which nothing is trained: make the model "
            "outside of torch.inference_mode()"
        )
    if tensor.is_conj():
        raise ValueError(f"{what} is the conjugate of other memory: give it .resolve_conj()")
    _C.check_storage(what, local_of(tensor))
    if not tensor.is_contiguous() and _C.shares_with_itself(local_of(tensor)):
        raise ValueError(
            f"elements of {what} share memory (shape {tuple(tensor.shape)}, strides "
            f"{tensor.stride()}), so they cannot be written one by one: give it .clone()"
        )
