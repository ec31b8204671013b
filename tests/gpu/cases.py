"""Collectives on device tensors, compared with the same calls on CPU tensors.

The GPU checks use it with CUDA, and the tests of the package with a device that stands in for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

Tensors = list[torch.Tensor]
Collective = Callable[["Case"], Tensors]

REDUCED = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
]
MOVED = [*REDUCED, torch.complex64, torch.float8_e4m3fn]
COUNTS = (0, 1, 1000, 300_000)


@dataclass(frozen=True)
class Place:
    """How tensors come to a device and back."""

    put: Callable[[torch.Tensor], torch.Tensor]
    fetch: Callable[[torch.Tensor], torch.Tensor]
    computes: bool = True  # torch can compute with its tensors


CPU = Place(put=lambda tensor: tensor, fetch=lambda tensor: tensor)


class Case:
    """One call: its group, and the tensors that it makes from the same seed in either place."""

    def __init__(
        self,
        *,
        group: dist.ProcessGroup,
        dtype: torch.dtype,
        count: int,
        strided: bool,
        place: Place,
    ) -> None:
        self.group, self.dtype, self.count, self.strided = group, dtype, count, strided
        self.place = place
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._made = 0

    def tensor(self, count: int | None = None) -> torch.Tensor:
        """Return a tensor with random values of this rank."""
        count = self.count if count is None else count
        self._made += 1
        generator = torch.Generator().manual_seed(1000 * self._made + self.rank)
        small_float = self.dtype.itemsize == 1 and self.dtype.is_floating_point
        if self.dtype.is_complex or small_float:
            raw = torch.randint(0, 100, (2 * count * self.dtype.itemsize,), generator=generator)
            values = raw.to(torch.float32)[:count].to(self.dtype)
        elif self.dtype.is_floating_point:
            values = torch.randn(count, generator=generator).to(self.dtype)
        else:
            values = torch.randint(0, 100, (count,), generator=generator).to(self.dtype)
        if not self.strided:
            return self.place.put(values)
        wide = torch.zeros(count, 3, dtype=self.dtype)
        wide[:, 1] = values
        return self.place.put(wide).select(1, 1)


def all_reduce(op: dist.ReduceOp.RedOpType) -> Collective:
    def call(case: Case) -> Tensors:
        tensor = case.tensor()
        dist.all_reduce(tensor, op, group=case.group)
        return [tensor]

    return call


def broadcast(case: Case) -> Tensors:
    tensor = case.tensor()
    dist.broadcast(tensor, group_src=case.size - 1, group=case.group)
    return [tensor]


def all_gather(case: Case) -> Tensors:
    outputs = [case.tensor() for _ in range(case.size)]
    dist.all_gather(outputs, case.tensor(), group=case.group)
    return outputs


def all_gather_into_tensor(case: Case) -> Tensors:
    output = case.tensor(case.count * case.size)
    dist.all_gather_into_tensor(output, case.tensor(), group=case.group)
    return [output]


def in_place(case: Case) -> Tensors:
    output = case.tensor(case.count * case.size)
    own = output.narrow(0, case.rank * case.count, case.count)
    dist.all_gather_into_tensor(output, own, group=case.group)
    return [output]


def list_in_place(case: Case) -> Tensors:
    outputs = [case.tensor() for _ in range(case.size)]
    dist.all_gather(outputs, outputs[case.rank], group=case.group)
    return outputs


def reduce_scatter_in_place(case: Case) -> Tensors:
    whole = case.tensor(case.count * case.size)
    own = whole.narrow(0, case.rank * case.count, case.count)
    dist.reduce_scatter_tensor(own, whole, group=case.group)
    parts = [case.tensor() for _ in range(case.size)]
    dist.reduce_scatter(parts[case.rank], parts, group=case.group)
    return [whole, *parts]


def coalesced(case: Case) -> Tensors:
    outputs = [case.tensor(count * case.size) for count in (case.count, 7)]
    inputs = [case.tensor(count) for count in (case.count, 7)]
    case.group.allgather_into_tensor_coalesced(outputs, inputs).wait()
    return outputs


def all_reduce_coalesced(case: Case) -> Tensors:
    tensors = [case.tensor(), case.tensor(5), case.tensor(0)]
    case.group.allreduce_coalesced(tensors).wait()
    return tensors


def ring(case: Case) -> Tensors:
    """Each rank sends to the next one and receives from the one before."""
    if case.size == 1:
        return []
    sent, received = case.tensor(), case.tensor()
    work = dist.isend(sent, group_dst=(case.rank + 1) % case.size, group=case.group)
    dist.recv(received, group_src=(case.rank - 1) % case.size, group=case.group)
    assert work is not None
    work.wait()
    return [received]


def uneven_all_gather(case: Case) -> Tensors:
    outputs = [case.tensor(case.count + source) for source in range(case.size)]
    dist.all_gather(outputs, case.tensor(case.count + case.rank), group=case.group)
    return outputs


def gather(case: Case) -> Tensors:
    root = case.size - 1
    outputs = [case.tensor() for _ in range(case.size)] if case.rank == root else None
    dist.gather(case.tensor(), outputs, group_dst=root, group=case.group)
    return outputs or []


def scatter(case: Case) -> Tensors:
    inputs = [case.tensor() for _ in range(case.size)] if case.rank == 0 else None
    output = case.tensor()
    dist.scatter(output, inputs, group_src=0, group=case.group)
    return [output]


def all_to_all_single(case: Case) -> Tensors:
    output = case.tensor(case.count * case.size)
    dist.all_to_all_single(output, case.tensor(case.count * case.size), group=case.group)
    return [output]


def all_to_all(case: Case) -> Tensors:
    outputs = [case.tensor(case.count + case.rank + source) for source in range(case.size)]
    inputs = [case.tensor(case.count + case.rank + target) for target in range(case.size)]
    dist.all_to_all(outputs, inputs, group=case.group)
    return outputs


def reduce(case: Case) -> Tensors:
    tensor = case.tensor()
    dist.reduce(tensor, group_dst=case.size - 1, group=case.group)
    return [tensor]


def reduce_scatter(case: Case) -> Tensors:
    output = case.tensor()
    inputs = [case.tensor() for _ in range(case.size)]
    dist.reduce_scatter(output, inputs, group=case.group)
    return [output]


def reduce_scatter_tensor(case: Case) -> Tensors:
    output = case.tensor()
    dist.reduce_scatter_tensor(output, case.tensor(case.count * case.size), group=case.group)
    return [output]


def reduce_scatter_coalesced(case: Case) -> Tensors:
    outputs = [case.tensor(count) for count in (case.count, 7)]
    inputs = [case.tensor(count * case.size) for count in (case.count, 7)]
    case.group.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    return outputs


def premultiplied(case: Case) -> Tensors:
    tensor, output = case.tensor(), case.tensor()
    half = dist._make_nccl_premul_sum(0.5)
    dist.all_reduce(tensor, half, group=case.group)
    whole = case.tensor(case.count * case.size)
    dist.reduce_scatter_tensor(output, whole, half, group=case.group)
    return [tensor, output]


MOVING: dict[str, Collective] = {
    "broadcast": broadcast,
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather_into_tensor,
    "in_place": in_place,
    "list_in_place": list_in_place,
    "coalesced": coalesced,
    "ring": ring,
    "uneven_all_gather": uneven_all_gather,
    "gather": gather,
    "scatter": scatter,
    "all_to_all_single": all_to_all_single,
    "all_to_all": all_to_all,
}
REDUCING: dict[str, Collective] = {
    "sum": all_reduce(dist.ReduceOp.SUM),
    "max": all_reduce(dist.ReduceOp.MAX),
    "all_reduce_coalesced": all_reduce_coalesced,
    "reduce": reduce,
    "reduce_scatter": reduce_scatter,
    "reduce_scatter_tensor": reduce_scatter_tensor,
    "reduce_scatter_coalesced": reduce_scatter_coalesced,
    "reduce_scatter_in_place": reduce_scatter_in_place,
}


def calls(dtype: torch.dtype, place: Place) -> Iterator[tuple[str, Collective]]:
    yield from MOVING.items()
    if dtype not in REDUCED:
        return
    yield from REDUCING.items()
    if dtype != torch.bool:
        yield "avg", all_reduce(dist.ReduceOp.AVG)
    # Device and host may round the product of small floats in different ways.
    if dtype.is_floating_point and place.computes and dtype.itemsize >= 4:
        yield "premultiplied", premultiplied


def bits(tensors: Tensors, place: Place) -> list[bytes]:
    plain = [
        torch.empty(one.numel(), dtype=one.dtype).copy_(place.fetch(one).flatten())
        for one in tensors
    ]
    return [one.view(torch.uint8).numpy().tobytes() for one in plain]


def compare(
    group: dist.ProcessGroup,
    place: Place,
    *,
    dtypes: Iterable[torch.dtype] = MOVED,
    counts: Iterable[int] = COUNTS,
) -> tuple[int, set[str], list[str]]:
    """Return how many calls were compared, which collectives do not exist, and what differs."""
    compared, missing, wrong = 0, set(), []
    for dtype, count, strided in itertools.product(dtypes, counts, (False, True)):
        for name, collective in calls(dtype, place):
            found = []
            for where in (CPU, place):
                case = Case(group=group, dtype=dtype, count=count, strided=strided, place=where)
                try:
                    found.append(bits(collective(case), where))
                except NotImplementedError:
                    missing.add(name)
            compared += 1
            if found and found[0] != found[-1]:
                wrong.append(f"{name} {dtype} {count} strided={strided}")
    return compared, missing, wrong
