"""Each kind of collective as a Call, with its result, for tests that end one in the middle.

A peer of a fleet runs them by name (`Peer.collective`). Inputs depend only on (rank, part, count),
and all sums of them are exact, so each rank knows the results of all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.quantization import MinMax, quantize_dequantize

ROOT = 1
Tensors = list[torch.Tensor]


@dataclass(kw_only=True)
class Call:
    """One collective of one rank, before it is called.

    Attributes:
        begin: calls it, without waiting for its end.
        inputs: tensors that it only reads.
        outputs: tensors that it may write.
        want: the outputs after success.
    """

    begin: Callable[[], dist.Work | list[dist.Work] | None]
    inputs: Tensors = field(default_factory=list)
    outputs: Tensors = field(default_factory=list)
    want: Tensors = field(default_factory=list)

    def wait(self, works: dist.Work | list[dist.Work] | None) -> None:
        for work in works if isinstance(works, list) else [works]:
            if work is not None:
                work.wait()

    def right(self) -> bool:
        pairs = zip(self.outputs, self.want, strict=True)
        return all(torch.equal(dense(output), dense(want)) for output, want in pairs)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_dense() if tensor.is_sparse else tensor


def data(rank: int, part: int, count: int) -> torch.Tensor:
    return (torch.arange(count, dtype=torch.float32) + 7 * rank + 3 * part).remainder_(64)


def blank(count: int) -> torch.Tensor:
    return torch.full((count,), -1.0)


def total(world: int, part: int, count: int) -> torch.Tensor:
    return torch.stack([data(rank, part, count) for rank in range(world)]).sum(0)


def all_reduce(rank: int, world: int, count: int) -> Call:
    tensor = data(rank, 0, count)
    return Call(
        begin=lambda: dist.all_reduce(tensor, async_op=True),
        outputs=[tensor],
        want=[total(world, 0, count)],
    )


def all_reduce_small(rank: int, world: int, count: int) -> Call:
    return all_reduce(rank, world, 100)


@functools.cache  # otherwise a kill at a random moment would come before the call
def quantized_total(world: int, count: int, bits: int) -> torch.Tensor:
    """Return the sum by the product's own codes, which test_quantize.py compares with numpy."""
    if world == 1:
        return data(0, 0, count)
    q = MinMax(bits=bits)
    decoded = [quantize_dequantize(data(one, 0, count), q) for one in range(world)]
    result = sum(decoded[1:], decoded[0])
    # Two members add both themselves.
    return result if world == 2 else quantize_dequantize(result, MinMax(bits=8))


def all_reduce_quantized(rank: int, world: int, count: int, *, bits: int) -> Call:
    tensor = data(rank, 0, count)
    return Call(
        begin=lambda: pccl.all_reduce(tensor, quantize=MinMax(bits=bits), async_op=True),
        outputs=[tensor],
        want=[quantized_total(world, count, bits)],
    )


def all_reduce_8_bits(rank: int, world: int, count: int) -> Call:
    return all_reduce_quantized(rank, world, count, bits=8)


def all_reduce_4_bits(rank: int, world: int, count: int) -> Call:
    return all_reduce_quantized(rank, world, count, bits=4)


def all_reduce_coalesced(rank: int, world: int, count: int) -> Call:
    tensors = [data(rank, part, count // 2) for part in range(2)]

    def begin() -> dist.Work:
        with dist._coalescing_manager(async_ops=True) as works:
            for tensor in tensors:
                dist.all_reduce(tensor)
        return works  # type: ignore[no-any-return]

    want = [total(world, part, count // 2) for part in range(2)]
    return Call(begin=begin, outputs=tensors, want=want)


def all_reduce_sparse(rank: int, world: int, count: int) -> Call:
    def rows(of: int) -> torch.Tensor:
        return torch.arange(of, count // 8, of + 1)[None]

    def of_rank(one: int) -> torch.Tensor:
        values = data(one, 0, rows(one).numel() * 4).view(-1, 4)
        return torch.sparse_coo_tensor(rows(one), values, (count // 8, 4))

    tensor = of_rank(rank)
    return Call(
        begin=lambda: dist.all_reduce(tensor, async_op=True),
        outputs=[tensor],
        want=[torch.stack([of_rank(one).to_dense() for one in range(world)]).sum(0)],
    )


def reduce(rank: int, world: int, count: int) -> Call:
    tensor = data(rank, 0, count)
    return Call(
        begin=lambda: dist.reduce(tensor, ROOT, async_op=True),
        outputs=[tensor],
        want=[total(world, 0, count) if rank == ROOT else data(rank, 0, count)],
    )


def reduce_scatter(rank: int, world: int, count: int) -> Call:
    inputs = [data(rank, part, count // world) for part in range(world)]
    output = blank(count // world)
    return Call(
        begin=lambda: dist.reduce_scatter(output, inputs, async_op=True),
        inputs=inputs,
        outputs=[output],
        want=[total(world, rank, count // world)],
    )


def reduce_scatter_tensor(rank: int, world: int, count: int) -> Call:
    part = count // world
    given = torch.cat([data(rank, to, part) for to in range(world)])
    output = blank(part)
    return Call(
        begin=lambda: dist.reduce_scatter_tensor(output, given, async_op=True),
        inputs=[given],
        outputs=[output],
        want=[total(world, rank, part)],
    )


def reduce_scatter_in_place(rank: int, world: int, count: int) -> Call:
    parts = [data(rank, part, count // world) for part in range(world)]
    want = [*parts[:rank], total(world, rank, count // world), *parts[rank + 1 :]]
    return Call(
        begin=lambda: dist.reduce_scatter(parts[rank], parts, async_op=True),
        outputs=parts,
        want=[tensor.clone() for tensor in want],
    )


def reduce_scatter_tensor_in_place(rank: int, world: int, count: int, *, tensors: int = 1) -> Call:
    part = count // world // tensors
    wholes = [
        torch.stack([data(rank, to + n, part) for to in range(world)]) for n in range(tensors)
    ]
    want = [whole.clone() for whole in wholes]
    for n, result in enumerate(want):
        result[rank] = total(world, rank + n, part)

    def begin() -> dist.Work:
        with dist._coalescing_manager(async_ops=True) as works:
            for whole in wholes:
                dist.reduce_scatter_tensor(whole[rank], whole)
        return works  # type: ignore[no-any-return]

    return Call(begin=begin, outputs=wholes, want=want)


def reduce_scatter_coalesced_in_place(rank: int, world: int, count: int) -> Call:
    return reduce_scatter_tensor_in_place(rank, world, count, tensors=2)


def broadcast(rank: int, world: int, count: int) -> Call:
    tensor = data(rank, 0, count)
    return Call(
        begin=lambda: dist.broadcast(tensor, ROOT, async_op=True),
        outputs=[tensor],
        want=[data(ROOT, 0, count)],
    )


def all_gather(rank: int, world: int, count: int) -> Call:
    given = data(rank, 0, count // world)
    outputs = [blank(count // world) for _ in range(world)]
    return Call(
        begin=lambda: dist.all_gather(outputs, given, async_op=True),
        inputs=[given],
        outputs=outputs,
        want=[data(one, 0, count // world) for one in range(world)],
    )


def all_gather_uneven(rank: int, world: int, count: int) -> Call:
    sizes = [count // world // (one + 1) for one in range(world)]
    given = data(rank, 0, sizes[rank])
    outputs = [blank(size) for size in sizes]
    return Call(
        begin=lambda: dist.all_gather(outputs, given, async_op=True),
        inputs=[given],
        outputs=outputs,
        want=[data(one, 0, size) for one, size in enumerate(sizes)],
    )


def all_gather_into_tensor(rank: int, world: int, count: int) -> Call:
    part = count // world
    given, output = data(rank, 0, part), blank(part * world)
    return Call(
        begin=lambda: dist.all_gather_into_tensor(output, given, async_op=True),
        inputs=[given],
        outputs=[output],
        want=[torch.cat([data(one, 0, part) for one in range(world)])],
    )


def all_gather_in_place(rank: int, world: int, count: int) -> Call:
    """The outputs lie in different ways; all of one that fails are as before."""
    part = count // world
    outputs = [blank(part) if one % 2 else blank(2 * part)[::2] for one in range(world)]
    outputs[rank].copy_(data(rank, 0, part))
    return Call(
        begin=lambda: dist.all_gather(outputs, outputs[rank], async_op=True),
        outputs=outputs,
        want=[data(one, 0, part) for one in range(world)],
    )


def gather_in_place(rank: int, world: int, count: int) -> Call:
    part = count // world
    outputs = [blank(part) for _ in range(world)]
    outputs[rank].copy_(data(rank, 0, part))
    want = [data(one, 0, part) if rank in (ROOT, one) else blank(part) for one in range(world)]
    return Call(
        begin=lambda: dist.gather(
            outputs[rank], outputs if rank == ROOT else None, ROOT, async_op=True
        ),
        outputs=outputs,
        want=want,
    )


def scatter_in_place(rank: int, world: int, count: int) -> Call:
    part = count // world
    given = [data(ROOT, to, part) for to in range(world)] if rank == ROOT else []
    output = given[rank] if rank == ROOT else blank(part)
    return Call(
        begin=lambda: dist.scatter(output, given or None, ROOT, async_op=True),
        outputs=[output, *given],
        want=[data(ROOT, rank, part), *[one.clone() for one in given]],
    )


def gather(rank: int, world: int, count: int) -> Call:
    part = count // world
    given = data(rank, 0, part)
    outputs = [blank(part) for _ in range(world)] if rank == ROOT else []
    return Call(
        begin=lambda: dist.gather(given, outputs or None, ROOT, async_op=True),
        inputs=[given],
        outputs=outputs,
        want=[data(one, 0, part) for one in range(world)] if rank == ROOT else [],
    )


def scatter(rank: int, world: int, count: int) -> Call:
    part = count // world
    given = [data(ROOT, to, part) for to in range(world)] if rank == ROOT else []
    output = blank(part)
    return Call(
        begin=lambda: dist.scatter(output, given or None, ROOT, async_op=True),
        inputs=given,
        outputs=[output],
        want=[data(ROOT, rank, part)],
    )


def all_to_all(rank: int, world: int, count: int) -> Call:
    part = count // world
    given = [data(rank, to, part) for to in range(world)]
    outputs = [blank(part) for _ in range(world)]
    return Call(
        begin=lambda: dist.all_to_all(outputs, given, async_op=True),
        inputs=given,
        outputs=outputs,
        want=[data(one, rank, part) for one in range(world)],
    )


def all_to_all_single(rank: int, world: int, count: int) -> Call:
    part = count // world
    given = torch.cat([data(rank, to, part) for to in range(world)])
    output = blank(part * world)
    return Call(
        begin=lambda: dist.all_to_all_single(output, given, async_op=True),
        inputs=[given],
        outputs=[output],
        want=[torch.cat([data(one, rank, part) for one in range(world)])],
    )


def all_to_all_uneven(rank: int, world: int, count: int) -> Call:
    def size(one: int, to: int) -> int:
        return count // world // (1 + (one + 2 * to) % 5)

    sends = [size(rank, to) for to in range(world)]
    receives = [size(one, rank) for one in range(world)]
    given = torch.cat([data(rank, to, size) for to, size in enumerate(sends)])
    output = blank(sum(receives))
    return Call(
        begin=lambda: dist.all_to_all_single(output, given, receives, sends, async_op=True),
        inputs=[given],
        outputs=[output],
        want=[torch.cat([data(one, rank, size) for one, size in enumerate(receives)])],
    )


def barrier(rank: int, world: int, count: int) -> Call:
    return Call(begin=lambda: dist.barrier(async_op=True))


def transfers(rank: int, world: int, count: int, *, any_source: bool = False) -> Call:
    """Each rank sends to the next one."""
    before, after = (rank - 1) % world, (rank + 1) % world
    given, output = data(rank, 0, count), blank(count)
    source = None if any_source else before

    def begin() -> list[dist.Work]:
        works = [dist.irecv(output, source), dist.isend(given, after)]
        return [work for work in works if work is not None]

    return Call(
        begin=begin,
        inputs=[given],
        outputs=[output],
        want=[data(before, 0, count)],
    )


def transfers_from_any(rank: int, world: int, count: int) -> Call:
    return transfers(rank, world, count, any_source=True)


COLLECTIVES: dict[str, Callable[[int, int, int], Call]] = {
    make.__name__: make
    for make in (
        all_reduce,
        all_reduce_small,
        all_reduce_8_bits,
        all_reduce_4_bits,
        all_reduce_coalesced,
        all_reduce_sparse,
        reduce,
        reduce_scatter,
        reduce_scatter_tensor,
        reduce_scatter_in_place,
        reduce_scatter_tensor_in_place,
        reduce_scatter_coalesced_in_place,
        broadcast,
        all_gather,
        all_gather_uneven,
        all_gather_into_tensor,
        all_gather_in_place,
        gather,
        gather_in_place,
        scatter,
        scatter_in_place,
        all_to_all,
        all_to_all_single,
        all_to_all_uneven,
        barrier,
    )
}
# The ranks of a transfer agree on its outcome, and the other ranks do not know it.
TRANSFERS: dict[str, Callable[[int, int, int], Call]] = {
    make.__name__: make for make in (transfers, transfers_from_any)
}
