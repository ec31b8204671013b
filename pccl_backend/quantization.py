"""Formats that make an all-reduce travel with fewer bytes: `MinMax` and `BFloat16`.

Each member quantizes its own tensor once, block by block. The decoded tensors are added in rank
order in float32, and the result is quantized once more (not between two members, which add both
tensors themselves). All members hold the same bits afterwards: the decoded values of the quantized
result. No member holds a more exact one.

Error feedback adds the loss of a format in one round to the tensor of the next round, so
the errors of many rounds do not add up. Its state belongs to one member: it never travels, it stays
with its member when another one is lost, and a newcomer begins with zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from pccl_backend import _C
from pccl_backend._limits import QUANTIZED_BLOCK_MAX as BLOCK_MAX
from pccl_backend._limits import QUANTIZED_BLOCK_MIN as BLOCK_MIN
from pccl_backend._torch import world

__all__ = ["BFloat16", "ErrorFeedback", "Format", "MinMax", "quantize", "quantize_dequantize"]

SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BLOCKS = {8: 256, 4: 64}
ROUNDINGS = ("nearest", "stochastic")


@dataclass(frozen=True)
class MinMax:
    """8 or 4 bits an element. Neighbouring elements share a scale.

    The codes of a block stand for evenly spaced numbers, which span 0 and all its elements. The
    error of an element is at most half a scale, and zero stays zero. A block with an infinity or a
    NaN, or whose sum overflows, becomes NaN as a whole.

    Attributes:
        bits: the bits of an element as its member sends it: 8, or 4.
        block: number of elements that share a scale: a power of two from 32 to 1024. None: 256 for
            8 bits, 64 for 4.
        rounding: "nearest", or "stochastic": up or down at random, so that the mean of many sums of
            the same tensors has no bias. The error of an element is then at most a scale. Use it
            for means over many steps without error feedback. Error feedback is better, and needs
            "nearest".
        result_bits: the bits of an element of the result: 8, or 16 (bfloat16).

    Raises:
        ValueError: a value is not among these.

    Example:
        >>> from pccl_backend.quantization import MinMax
        >>> pccl.all_reduce(gradient, op="avg", quantize=MinMax(bits=8))
    """

    bits: int = 8
    block: int | None = None
    rounding: str = "nearest"
    result_bits: int = 8

    def __post_init__(self) -> None:
        if type(self.bits) is not int or self.bits not in BLOCKS:
            raise ValueError(f"bits is {self.bits!r}; it can be 8 or 4 (BFloat16() has 16)")
        if self.block is None:
            object.__setattr__(self, "block", BLOCKS[self.bits])
        if not _is_block(self.block):
            raise ValueError(
                f"block is {self.block!r}; it can be a power of two from {BLOCK_MIN} to {BLOCK_MAX}"
            )
        if self.rounding not in ROUNDINGS:
            raise ValueError(f'rounding is {self.rounding!r}; it can be "nearest" or "stochastic"')
        if type(self.result_bits) is not int or self.result_bits not in (8, 16):
            raise ValueError(f"result_bits is {self.result_bits!r}; it can be 8 or 16")


@dataclass(frozen=True)
class BFloat16:
    """16 bits an element: each is rounded to a bfloat16, and so is the result.

    Example:
        >>> from pccl_backend.quantization import BFloat16
        >>> pccl.all_reduce(gradient, op="avg", quantize=BFloat16())
    """


Format = MinMax | BFloat16


def _is_block(block: object) -> bool:
    return (
        isinstance(block, int)
        and not isinstance(block, bool)
        and BLOCK_MIN <= block <= BLOCK_MAX
        and block & (block - 1) == 0
    )


Numbers = tuple[int, int, int, int]


def numbers_of(format: Format | None) -> Numbers:
    """Return a format as csrc/base/wire_format.h has it.

    Raises:
        TypeError: it is no format.
    """
    if format is None:
        return (0, 0, 0, 0)
    if isinstance(format, BFloat16):
        return (16, 0, 16, 0)
    if not isinstance(format, MinMax):
        raise TypeError(
            "quantize must be MinMax(...) or BFloat16() of pccl.quantization, or None, not "
            f"{format!r}"
        )
    assert format.block is not None, "__post_init__ has chosen it"
    return (format.bits, format.block, format.result_bits, int(is_random(format)))


def is_random(format: Format) -> bool:
    """Return whether codes of this format are rounded at random."""
    return isinstance(format, MinMax) and format.rounding == "stochastic"


def check_feedback(format: Format) -> None:
    """Raise an error for a format that is unfit for error feedback.

    Raises:
        ValueError: it rounds at random.
        TypeError: it is no format.
    """
    required_numbers(format)
    if is_random(format):
        raise ValueError(
            f"error feedback is not for {format}: it has to know what an all-reduce loses, and "
            'random bits differ in each; use rounding="nearest", which has no bias with feedback'
        )


def required_numbers(format: Format) -> Numbers:
    """Return the numbers of a format that must not be None.

    Raises:
        TypeError: it is no format.
    """
    if not isinstance(format, (MinMax, BFloat16)):
        raise TypeError(
            f"format must be MinMax(...) or BFloat16() of pccl.quantization, not {format!r}"
        )
    return numbers_of(format)


def check_tensor(tensor: torch.Tensor, format: Format) -> None:
    """Raise ValueError for a tensor that cannot be quantized, TypeError for anything else."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"tensor must be a torch.Tensor, not {type(tensor).__name__}")
    if tensor.dtype not in DTYPES or tensor.layout != torch.strided:
        kind = tensor.dtype if tensor.layout == torch.strided else f"sparse {tensor.dtype}"
        raise ValueError(
            f"quantize={format} is for dense tensors of float32, float16 and bfloat16, not for "
            f"{kind}"
        )
    _C.check_storage("the tensor to quantize", tensor)


def numbers_for(
    tensor: torch.Tensor, op: str | dist.ReduceOp.RedOpType, format: Format | None
) -> Numbers | None:
    """Return the format of an all-reduce as numbers; `op` is as its user gave it.

    Raises:
        ValueError: the all-reduce cannot be quantized.
        TypeError: it is no format.
    """
    if format is None:
        return None
    numbers = numbers_of(format)
    check_tensor(tensor, format)
    name = op if isinstance(op, str) else getattr(op, "name", "another operation").lower()
    # Some ReduceOps have no name. They equal SUM or AVG only if they stand on the left.
    sums = name in ("sum", "avg") or any(op == one for one in (SUM, AVG))
    if not sums:
        raise ValueError(f"quantize={format} is for op sum and avg, not for {name}")
    return numbers


@contextmanager
def quantize(format: Format | None) -> Iterator[None]:
    """Quantize this thread's all-reduces that sum or average floats, also those of `dist`.

    It does not reach the buckets of DistributedDataParallel if the model is on a GPU: torch sends
    these from threads of its own. Use `pccl.hooks.quantize_hook` there.

    All members use the same format, or the operation fails on all of them. Tensors up to
    `run_info().one_shot_bytes` travel as they are: they take one message anyway. So do other
    operations, and all-reduces of other dtypes. The argument `quantize` of a call overrides the
    format of a block.

    Args:
        format: `MinMax(...)` or `BFloat16()`; None: nothing is quantized in this block.

    Raises:
        TypeError: it is no format.

    Example:
        >>> with quantize(MinMax(bits=8)):
        ...     dist.all_reduce(gradient)
    """
    numbers = numbers_of(format)
    before = _C.set_call_options(tag=None, keep=None, quantize=numbers, priority=None)[2]
    try:
        yield
    finally:
        _C.set_call_options(tag=None, keep=None, quantize=before, priority=None)


def quantize_dequantize(tensor: torch.Tensor, format: Format, *, seed: int = 0) -> torch.Tensor:
    """Return the values that all members decode if this tensor is contributed in this format.

    The result has the dtype, the shape and the device of `tensor`. Error feedback needs it. With
    stochastic rounding it is one of the possible results, chosen by `seed`: each all-reduce takes
    random bits of its own.

    Args:
        tensor: float32, float16 or bfloat16, of any shape. Blocks are cut in the order of
            `tensor.flatten()`, as in an all-reduce.
        format: `MinMax(...)` or `BFloat16()`.
        seed: the seed of stochastic rounding, from 0 to 2**64 - 1.

    Raises:
        ValueError: a tensor of a different dtype, or one that is not dense; a seed out of range.
        TypeError: it is no format, or the seed is no int.

    Example:
        >>> error = tensor - quantize_dequantize(tensor, MinMax(bits=4))
    """
    numbers = required_numbers(format)
    check_tensor(tensor, format)
    if type(seed) is not int:
        raise TypeError(f"seed must be an int, not {type(seed).__name__}")
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed is {seed}; it can be from 0 to 2**64 - 1")
    tensor = tensor.detach()
    decoded = _C.quantize_dequantize(tensor.to("cpu").contiguous(), quantize=numbers, seed=seed)
    return torch.empty_like(tensor).copy_(decoded.view(tensor.shape))


# --- Error feedback -------------------------------------------------------------------------------


def is_quantized(tensor: torch.Tensor, group: dist.ProcessGroup | None) -> bool:
    """Return whether an all-reduce of this tensor in this group can be quantized. Not joint."""
    info = world.resolve(group).run_info()
    large = tensor.numel() * tensor.element_size() > info["one_shot_bytes"]
    return bool(info["world_size"] > 1 and large)


def loss_of(tensor: torch.Tensor, format: Format) -> torch.Tensor:
    """Return the loss of the format in each element, in float32; zero if it is not finite."""
    decoded = quantize_dequantize(tensor, format)
    lost = tensor.to(torch.float32, copy=True).sub_(decoded)
    return lost.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


class ErrorFeedback:
    """The error that quantizing one tensor has left at one member so far.

    Small tensors, and all tensors of a member that is alone, are not quantized and lose nothing.

    Args:
        format: `MinMax(...)` or `BFloat16()`, as in the all-reduces.
        group: the process group of the all-reduces.

    Raises:
        ValueError: the format rounds at random.
        TypeError: it is no format.

    Example:
        >>> q = MinMax(bits=4)
        >>> feedback = ErrorFeedback(q)
        >>> for gradient in gradients:
        ...     feedback.compensate(gradient)
        ...     pccl.all_reduce(gradient, op="avg", quantize=q)
    """

    def __init__(self, format: Format, *, group: dist.ProcessGroup | None = None) -> None:
        check_feedback(format)
        self.format = format
        self._group = group
        self._residual: torch.Tensor | None = None

    @torch.no_grad()
    def compensate(self, tensor: torch.Tensor) -> None:
        """Add the last residual, and keep the residual of the coming all-reduce.

        Call it once before each all-reduce of the tensor. If the all-reduce fails, the tensor is as
        this call has left it, so it can be reduced again.

        Args:
            tensor: float32, float16 or bfloat16, changed in place. All calls need the same shape.

        Raises:
            ValueError: a tensor of a different dtype, or of a different shape than before.
            TypeError: it is no tensor.
        """
        check_tensor(tensor, self.format)
        before = self._residual
        if before is not None:
            before = before.to(tensor.device)  # a checkpoint may be on a different device
            if before.shape != tensor.shape:
                raise ValueError(
                    f"a tensor of shape {tuple(tensor.shape)}, and before it was "
                    f"{tuple(before.shape)}: give each tensor an ErrorFeedback of its own, or call "
                    "reset()"
                )
            exact = before + tensor
            tensor.copy_(exact)
            rounded_off = exact.sub_(tensor).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        if is_quantized(tensor, self._group):
            self._residual = loss_of(tensor, self.format)
        elif before is not None:
            self._residual = torch.zeros_like(before)
        if before is not None:
            assert self._residual is not None, "it was set above"
            self._residual.add_(rounded_off)

    def reset(self) -> None:
        """Forget the residual, for example when the tensor is a different one now."""
        self._residual = None

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the residual, for a checkpoint of this member; empty before the first round."""
        return {} if self._residual is None else {"residual": self._residual}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from what `state_dict` has returned."""
        residual = state.get("residual")
        self._residual = None if residual is None else residual.to(torch.float32, copy=True)
