"""Quantization written out in numpy, element by element, as the wire format is defined."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from pccl_backend.quantization import Format, MinMax

Floats = npt.NDArray[np.float32]


def decoded(x: Floats, bits: int, block: int) -> Floats:
    """Return the decoded values of the codes of x."""
    if bits == 16:
        return torch.from_numpy(x.copy()).bfloat16().float().numpy()
    out = np.empty_like(x)
    for at in range(0, len(x), block):
        b = x[at : at + block]
        lo, hi = np.float32(min(0, b.min())), np.float32(max(0, b.max()))
        part = np.float32(1) / np.float32(2**bits - 2)
        step = np.array([hi * part - lo * part], np.float32).view(np.uint32)
        step = (step + 0xFFFF & 0xFFFF0000).astype(np.uint32).view(np.float32)[0]  # rounded up
        if not np.isfinite(b).all():
            out[at : at + block] = np.nan
        elif step < np.finfo(np.float32).tiny:
            out[at : at + block] = 0
        else:
            inverse = np.float32(1) / step
            out[at : at + block] = np.rint(b * inverse) * step + np.float32(0)
    return out


def all_reduced(tensors: list[torch.Tensor], op: str, q: Format) -> torch.Tensor:
    """Return the result at all ranks of an all-reduce of these tensors."""
    bits, block, result = 16, 0, 16
    if isinstance(q, MinMax):
        bits, block, result = q.bits, q.block or 0, q.result_bits
    total = decoded(tensors[0].float().numpy(), bits, block)
    for tensor in tensors[1:]:
        total = total + decoded(tensor.float().numpy(), bits, block)
    if op == "avg":
        total = total / np.float32(len(tensors))
    if len(tensors) > 2:  # two members add both themselves
        total = decoded(total, result, block if bits == 8 else 256)
    return torch.from_numpy(total).to(tensors[0].dtype)


def steps(x: torch.Tensor, bits: int, block: int) -> torch.Tensor:
    """Return the largest step that the block of each element may have."""
    padded = torch.nn.functional.pad(x.double(), (0, -len(x) % block)).view(-1, block)
    width = padded.clamp(min=0).amax(1) - padded.clamp(max=0).amin(1)
    step = width / (2**bits - 2) * (1 + 2**-7)
    return step.repeat_interleave(block)[: len(x)]


def bound_around_a_ring(tensors: list[torch.Tensor], op: str, q: MinMax) -> torch.Tensor:
    """Return the largest error that each element may have after the hops of a ring, in float64.

    A partial sum is within the ranges of all tensors together, and the errors so far.
    """
    count, block = len(tensors), q.block or 0
    off = (0.5 if q.rounding == "nearest" else 1) * (1 + 2**-14)
    own = [steps(x, 8, block) for x in tensors]
    widest = torch.stack(own).sum(0)
    error = off * widest + (count - 1) * 2**-23 * sum(x.double().abs() for x in tensors)
    for hop in range(count - 1):  # the last one is the result
        if hop + 2 == count and q.result_bits == 16:
            exact = torch.stack([x.double() for x in tensors]).sum(0)
            error = error + 2**-8 * (exact.abs() + error)
            continue
        # the error is the same in a whole block, except for rounding float32, and that is little
        error = error + off * (widest + 2 * error / 254 * (1 + 2**-7)) * (1 + 2**-10)
    return error / (count if op == "avg" else 1) * (1 + 2**-20)


def bound(tensors: list[torch.Tensor], op: str, q: MinMax) -> torch.Tensor:
    """Return the largest error that each element may have, in float64; of float32 tensors."""
    count, block = len(tensors), q.block or 0
    half = 0.5 * (1 + 2**-14)
    sizes = sum(x.double().abs() for x in tensors) * (1 + 2**-6)
    error = half * sum(steps(x, q.bits, block) for x in tensors)
    error = error + (count - 1) * 2**-24 * (sizes + error)
    if op == "avg":
        error = error / count
    if count > 2:
        exact = sum(x.double() for x in tensors) / (count if op == "avg" else 1)
        result_block = block if q.bits == 8 else 256
        if q.result_bits == 16:
            return error + 2**-8 * (exact.abs() + error)
        widest = torch.nn.functional.pad(error, (0, -len(error) % result_block))
        most = widest.view(-1, result_block).amax(1).repeat_interleave(result_block)[: len(error)]
        more = half * steps(exact, 8, result_block) + half * 2 * most / 254 * (1 + 2**-7)
        error = error + more
    return error * (1 + 2**-20)
