"""Every collective and dtype on CUDA tensors: the same bits as on CPU tensors.

Worlds of two and three ranks share the GPU. Tensors are contiguous and strided, and the calls come
on the default stream and on another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ranks
import torch
import torch.distributed as dist
from check import end, expect, report, skip

Tensors = list[torch.Tensor]
Make = Callable[[int, torch.dtype, str], torch.Tensor]
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


class Case:
    """One call: its group, and the tensors that it makes from the same seed on either device."""

    def __init__(
        self, *, group: dist.ProcessGroup, dtype: torch.dtype, count: int, strided: bool, device: str
    ) -> None:
        self.group, self.dtype, self.count, self.strided = group, dtype, count, strided
        self.device = device
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._made = 0

    def tensor(self, count: int | None = None) -> torch.Tensor:
        """Return a tensor with random values of this rank."""
        count = self.count if count is None else count
        self._made += 1
        generator = torch.Generator().manual_seed(1000 * self._made + self.rank)
        if self.dtype.is_complex or self.dtype.itemsize == 1 and self.dtype.is_floating_point:
            raw = torch.randint(0, 100, (2 * count * self.dtype.itemsize,), generator=generator)
            values = raw.to(torch.float32)[:count].to(self.dtype)
        elif self.dtype.is_floating_point:
            values = torch.randn(count, generator=generator).to(self.dtype)
        else:
            values = torch.randint(0, 100, (count,), generator=generator).to(self.dtype)
        values = values.to(self.device)
        if not self.strided:
            return values
        wide = torch.zeros(count, 3, dtype=self.dtype, device=self.device)
        wide[:, 1] = values
        return wide[:, 1]


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
    own = output[case.rank * case.count : (case.rank + 1) * case.count]
    dist.all_gather_into_tensor(output, own, group=case.group)
    return [output]


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
    sent, received = case.tensor(), case.tensor()
    work = dist.isend(sent, group_dst=(case.rank + 1) % case.size, group=case.group)
    dist.recv(received, group_src=(case.rank - 1) % case.size, group=case.group)
    assert work is not None
    work.wait()
    return [received]


def reduce_scatter_tensor(case: Case) -> Tensors:
    output = case.tensor()
    dist.reduce_scatter_tensor(output, case.tensor(case.count * case.size), group=case.group)
    return [output]


MOVING: dict[str, Collective] = {
    "broadcast": broadcast,
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather_into_tensor,
    "in_place": in_place,
    "coalesced": coalesced,
    "ring": ring,
}
REDUCING: dict[str, Collective] = {
    "sum": all_reduce(dist.ReduceOp.SUM),
    "max": all_reduce(dist.ReduceOp.MAX),
    "all_reduce_coalesced": all_reduce_coalesced,
    "reduce_scatter_tensor": reduce_scatter_tensor,
}


def calls(dtype: torch.dtype) -> Iterator[tuple[str, Collective]]:
    yield from MOVING.items()
    if dtype not in REDUCED:
        return
    yield from REDUCING.items()
    if dtype.is_floating_point:
        yield "avg", all_reduce(dist.ReduceOp.AVG)


def bits(tensors: Tensors) -> list[bytes]:
    plain = [torch.empty(one.numel(), dtype=one.dtype).copy_(one.flatten()) for one in tensors]
    return [one.view(torch.uint8).numpy().tobytes() for one in plain]


def compare(group: dist.ProcessGroup, *, side: bool) -> tuple[int, set[str], list[str]]:
    """Return how many calls were compared, which collectives do not exist, and what differs."""
    compared, missing, wrong = 0, set(), []
    for dtype in MOVED:
        for name, collective in calls(dtype):
            for count in COUNTS:
                for strided in (False, True):
                    what = f"{name} {dtype} {count} strided={strided} side={side}"
                    found = []
                    for device in ("cpu", ranks.DEVICE):
                        case = Case(
                            group=group, dtype=dtype, count=count, strided=strided, device=device
                        )
                        try:
                            found.append(bits(collective(case)))
                        except NotImplementedError:
                            missing.add(name)
                    compared += 1
                    if found and found[0] != found[-1]:
                        wrong.append(what)
    return compared, missing, wrong


def check(rank: int) -> tuple[int, set[str], list[str]]:
    pair = dist.new_group([0, 1])
    compared, missing, wrong = 0, set(), []
    world = dist.group.WORLD
    assert world is not None
    groups = [world, *([pair] if rank < 2 else [])]
    for group in groups:
        for side in (False, True):
            if side and ranks.DEVICE == "cuda":
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    result = compare(group, side=True)
                stream.synchronize()
            else:
                result = compare(group, side=side)
            compared += result[0]
            missing |= result[1]
            wrong += result[2]
    dist.barrier(device_ids=[0] if ranks.DEVICE == "cuda" else None)
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, rank)
    if objects != [0, 1, 2]:
        wrong.append(f"all_gather_object: {objects}")
    return compared, missing, wrong


def main() -> None:
    if not ranks.available():
        skip("torch sees no GPU")
    results = ranks.run(check, 3, limit_s=200)
    report(calls=sum(result[0] for result in results))
    report(not_there=",".join(sorted(set().union(*(result[1] for result in results)))))
    for rank, (_, _, wrong) in enumerate(results):
        for what in wrong:
            expect(False, f"rank {rank}: {what}")
    end()


if __name__ == "__main__":
    main()
