"""Run by test_collectives.py in every process of a world: each function checks one rank's part.

Inputs depend only on (rank, dtype, size), so every rank knows the inputs of the others and can
compute the expected result by itself, in numpy.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from world import expected

import pccl_backend as pccl

Array = np.ndarray[Any, Any]

INTEGERS = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ALL = [*INTEGERS, *FLOATS, torch.bool]
MOVED_ONLY = [torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]

COMBINE = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
COMBINE_BOOL = {
    "sum": np.logical_or,
    "product": np.logical_and,
    "min": np.logical_and,
    "max": np.logical_or,
    "band": np.logical_and,
    "bor": np.logical_or,
    "bxor": np.logical_xor,
}
BITWISE = ("band", "bor", "bxor")


def ops_of(dtype: torch.dtype) -> list[str]:
    if dtype.is_floating_point:
        return ["sum", "avg", "product", "min", "max"]
    return list(COMBINE) if dtype == torch.bool else [*COMBINE, "avg"]


def values(rank: int, dtype: torch.dtype, size: int, op: str = "sum") -> Array:
    """Return one rank's input; float sums and products are exact, so their order has no effect."""
    random = np.random.default_rng([rank, size, ALL.index(dtype)])
    if dtype == torch.bool:
        return random.integers(0, 2, size).astype(bool)
    if dtype.is_floating_point:
        choices = [-2.0, -1.0, 1.0, 2.0] if op == "product" else [-3.0, -1.0, 0.0, 2.0, 3.0]
        return random.choice(np.array(choices), size)
    info = torch.iinfo(dtype)
    name = str(dtype).removeprefix("torch.")
    return random.integers(int(info.min), int(info.max), size, dtype=name, endpoint=True)


def to_tensor(array: Array, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(array.copy()).to(dtype)


def reference(dtype: torch.dtype, size: int, op: str) -> torch.Tensor:
    world = dist.get_world_size()
    inputs = [values(rank, dtype, size, op) for rank in range(world)]
    if op == "avg" and dtype.is_floating_point:
        return to_tensor(sum(inputs) / world, dtype)
    with np.errstate(over="ignore"):
        if op == "avg":
            return to_tensor(quotient(reduce(np.add, inputs), world), dtype)
        table = COMBINE_BOOL if dtype == torch.bool else COMBINE
        return to_tensor(reduce(table[op], inputs), dtype)


def quotient(total: Array, count: int) -> Array:
    """Divide integers towards zero; numpy divides towards minus infinity."""
    by = total.dtype.type(count)
    return (total // by + ((total < 0) & (total % by != 0))).astype(total.dtype)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return left.numel() == 0 or bytes_of(left) == bytes_of(right)


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def assert_same(got: torch.Tensor, want: torch.Tensor, about: object) -> None:
    assert same_bits(got, want), f"{about}: got {got.flatten()[:8]}, want {want.flatten()[:8]}"


def assert_close(got: torch.Tensor, want: torch.Tensor, about: object) -> None:
    tolerance = 2 * torch.finfo(got.dtype).eps
    assert torch.allclose(got.double(), want.double(), rtol=tolerance, atol=0), (
        f"{about}: got {got.flatten()[:8]}, want {want.flatten()[:8]}"
    )


def everybody_has_the_same(tensor: torch.Tensor) -> None:
    digest = hashlib.sha256(bytes_of(tensor)).hexdigest()
    digests: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest)
    assert set(digests) == {digest}


# --- All-reduce -----------------------------------------------------------------------------------


def reductions(sizes: Iterable[int]) -> None:
    """Reduce every dtype with every operation, all in flight at once."""
    rank = dist.get_rank()
    running = []
    for size in sizes:
        for dtype in ALL:
            for op in ops_of(dtype):
                tensor = to_tensor(values(rank, dtype, size, op), dtype)
                work = pccl.all_reduce(tensor, op=op, async_op=True)
                running.append((work, tensor, dtype, op, size))
    for work, tensor, dtype, op, size in running:
        work.wait()
        check = assert_close if op == "avg" and dtype.is_floating_point else assert_same
        check(tensor, reference(dtype, size, op), (dtype, op, size))


def many_elements(size: int) -> None:
    """Reduce a large tensor and check all of it."""
    world, rank = dist.get_world_size(), dist.get_rank()
    base = torch.arange(size).remainder_(97).to(torch.float32)
    tensor = base * (rank + 1)
    dist.all_reduce(tensor)
    assert tensor.equal(base.mul_(sum(range(1, world + 1))))


def rounded_sums(size: int) -> None:
    """Compare sums that are not exact: close to the true value, and the same bits on all ranks."""
    parts = [
        torch.randn(size, generator=torch.Generator().manual_seed(rank))
        for rank in range(dist.get_world_size())
    ]
    tensor = parts[dist.get_rank()].clone()
    dist.all_reduce(tensor)
    want = torch.stack(parts).double().sum(0)
    assert torch.allclose(tensor.double(), want, rtol=1e-5, atol=1e-5)
    everybody_has_the_same(tensor)


def averages_of_16_bit_floats() -> None:
    """Average numbers that are too large to be added: as finite as the numbers themselves."""
    world, rank = dist.get_world_size(), dist.get_rank()
    for dtype in (torch.float16, torch.bfloat16):
        limits = torch.finfo(dtype)
        numbers = torch.tensor([40000.0, -40000.0, limits.max, limits.min, limits.tiny])
        for size in (numbers.numel(), 1 << 18):  # one-shot, then around the ring
            want = numbers.repeat(size)[:size].to(dtype)
            tensor = want.clone()
            pccl.all_reduce(tensor, op="avg")
            assert torch.isfinite(tensor).all(), (dtype, size)
            error_max = want.double().abs() * world * limits.eps / 2
            assert ((tensor.double() - want.double()).abs() <= error_max).all(), (dtype, size)
            everybody_has_the_same(tensor)
        tensor = torch.ones(3, dtype=dtype)
        if rank == world - 1:
            tensor = torch.tensor([torch.inf, -torch.inf, torch.nan], dtype=dtype)
        pccl.all_reduce(tensor, op="avg")
        want = torch.tensor([torch.inf, -torch.inf, torch.nan], dtype=dtype)
        assert torch.equal(tensor.nan_to_num(1), want.nan_to_num(1)), tensor


def complex_numbers() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    tensor = torch.full((5,), complex(rank + 1, -rank))
    dist.all_reduce(tensor)
    total = complex(sum(range(1, world + 1)), -sum(range(world)))
    assert_same(tensor, torch.full((5,), total), "complex sum")
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    with expected(ValueError, "not defined for complex tensors"):
        dist.group.WORLD.allreduce([tensor], options)


def coalesced_reductions() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    tensors = [torch.full((n,), float(rank + n)) for n in (3, 0, 1, 65)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor, n in zip(tensors, (3, 0, 1, 65), strict=True):
        want = torch.full((n,), float(sum(r + n for r in range(world))))
        assert_same(tensor, want, n)


def eight_ranks() -> None:
    reductions([0, 1, 7])
    rounded_sums(1 << 18)


# --- Others ---------------------------------------------------------------------------------------


def broadcasts() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    for dtype in [*ALL, *MOVED_ONLY]:
        for root in range(world):
            for size in (0, 1, 7, 1000):
                source = torch.arange(size).remainder(100).add(root).to(torch.float32).to(dtype)
                tensor = source.clone() if rank == root else torch.zeros(size).to(dtype)
                dist.broadcast(tensor, src=root)
                assert_same(tensor, source, (dtype, root, size))


def gathers() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    for dtype in [*ALL, *MOVED_ONLY]:
        for size in (0, 1, 7, 1000):
            inputs = [torch.full((size,), float(r + 1)).to(dtype) for r in range(world)]
            outputs = [torch.zeros(size).to(dtype) for _ in range(world)]
            dist.all_gather(outputs, inputs[rank])
            for got, want in zip(outputs, inputs, strict=True):
                assert_same(got, want, (dtype, size))
            whole = torch.zeros(world * size).to(dtype)
            dist.all_gather_into_tensor(whole, inputs[rank])
            assert_same(whole, torch.cat(inputs), (dtype, size))


def gathers_of_many() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    inputs = [torch.full(shape, float(rank)) for shape in ((2, 3), (0,), (5,))]
    outputs = [torch.empty(world * t.shape[0], *t.shape[1:]) for t in inputs]
    with dist._coalescing_manager():
        for output, tensor in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output, tensor)
    for output, tensor in zip(outputs, inputs, strict=True):
        want = torch.cat([torch.full_like(tensor, float(r)) for r in range(world)])
        assert_same(output, want, tensor.shape)


def gather_in_place() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    whole = torch.full((world, 3), -1.0)
    whole[rank] = float(rank)
    dist.all_gather_into_tensor(whole, whole[rank])
    assert_same(whole, torch.arange(float(world))[:, None].expand(world, 3), "in place")


def messages() -> None:
    """Send between all ranks: blocking, non-blocking, batched, with tags out of order."""
    world, rank = dist.get_world_size(), dist.get_rank()
    others = [other for other in range(world) if other != rank]
    sends = [dist.isend(torch.full((9,), float(10 * rank + to)), to) for to in others]
    for source in others:
        tensor = torch.zeros(9)
        dist.recv(tensor, source)
        assert_same(tensor, torch.full((9,), float(10 * source + rank)), (source, "recv"))
    for work in sends:
        work.wait()

    ahead, behind = (rank + 1) % world, (rank - 1) % world
    out = [torch.full((n,), float(rank), dtype=torch.int64) for n in (0, 1, 100_000)]
    into = [torch.zeros_like(t) for t in out]
    batch = [dist.P2POp(dist.isend, t, ahead) for t in out]
    batch += [dist.P2POp(dist.irecv, t, behind) for t in into]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    for got in into:
        assert_same(got, torch.full_like(got, behind), "batch")

    first, second = torch.zeros(3), torch.zeros(3)
    works = [dist.isend(torch.full((3,), 1.0), ahead, tag=1)]
    works += [dist.isend(torch.full((3,), 2.0), ahead, tag=2)]
    works += [dist.irecv(second, behind, tag=2), dist.irecv(first, behind, tag=1)]
    for work in works:
        work.wait()
    assert (first[0], second[0]) == (1.0, 2.0)


def barriers() -> None:
    for _ in range(20):
        dist.barrier()


def objects() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    everything: list[Any] = [None] * world
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * rank})
    assert everything == [{"rank": r, "text": "x" * r} for r in range(world)]
    said = [["from", 1], None] if rank == world - 1 else [None, None]
    dist.broadcast_object_list(said, src=world - 1)
    assert said == [["from", 1], None]


def staged() -> None:
    """Tensors that are not contiguous get the same results; memory beside them is untouched."""
    world, rank = dist.get_world_size(), dist.get_rank()
    total = float(sum(range(world)))
    whole = torch.full((6, 8), -1.0)
    whole[:, ::2] = float(rank)
    dist.all_reduce(whole[:, ::2])
    want = torch.full((6, 8), -1.0)
    want[:, ::2] = total
    assert_same(whole, want, "strided all_reduce")

    square = torch.arange(9.0).view(3, 3) * (rank + 1)
    dist.all_reduce(square.t())
    assert_same(square, torch.arange(9.0).view(3, 3) * sum(range(1, world + 1)), "transposed")

    picture = torch.full((2, 3, 4, 5), float(rank)).to(memory_format=torch.channels_last)
    dist.broadcast(picture, src=world - 1)
    assert (picture == world - 1).all()

    outputs = [torch.zeros(4, 2).t() for _ in range(world)]
    dist.all_gather(outputs, torch.full((4, 2), float(rank)).t())
    for source, output in enumerate(outputs):
        assert (output == source).all()

    parameter = torch.nn.Parameter(torch.full((4, 4), float(rank)))
    dist.all_reduce(parameter.t())
    assert (parameter == total).all()
    with torch.inference_mode():
        frozen = torch.full((4, 4), float(rank))
    dist.all_reduce(frozen.t())
    assert (frozen == total).all()


def functional() -> None:
    import torch.distributed._functional_collectives as funcol

    world, rank = dist.get_world_size(), dist.get_rank()
    tensor = torch.full((4,), float(rank))
    total = funcol.all_reduce(tensor, "sum", dist.group.WORLD)
    assert_same(total + 0, torch.full((4,), float(sum(range(world)))), "funcol sum")
    gathered = funcol.all_gather_tensor(tensor, 0, dist.group.WORLD)
    assert gathered.shape == (4 * world,)


def everything_else() -> None:
    """Run all quick checks above on one world."""
    broadcasts()
    gathers()
    gathers_of_many()
    gather_in_place()
    coalesced_reductions()
    complex_numbers()
    if dist.get_world_size() > 1:
        messages()
    barriers()
    objects()
    staged()
    functional()


# --- Tags -----------------------------------------------------------------------------------------


def tags_in_any_order(count: int) -> None:
    """Each rank calls in its own order; the tags match the calls."""
    world, rank = dist.get_world_size(), dist.get_rank()
    order = np.random.default_rng(rank).permutation(count)
    tensors = {int(i): torch.full((1000 * (int(i) % 3) + 1,), float(rank + i)) for i in order}
    works = [pccl.all_reduce(tensors[int(i)], tag=f"layer.{i}", async_op=True) for i in order]
    for work in works:
        work.wait()
    for i, tensor in tensors.items():
        assert (tensor == sum(r + i for r in range(world))).all(), i


def tags_of_threads(count: int) -> None:
    """Threads of a rank run at their own pace, each with its own tag, and wait in between."""
    world, rank = dist.get_world_size(), dist.get_rank()
    wrong: list[object] = []

    def work(name: str) -> None:
        with pccl.tag(name):
            for step in range(count):
                tensor = torch.full((17,), float(rank + step))
                dist.all_reduce(tensor)
                if not (tensor == sum(r + step for r in range(world))).all():
                    wrong.append((name, step))

    names = [f"thread {i}" for i in range(4)]
    threads = [threading.Thread(target=work, args=(n,)) for n in names[:: 1 if rank % 2 else -1]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- Missing calls --------------------------------------------------------------------------------


def not_there_yet() -> list[str]:
    """Return the messages of the calls that pccl does not have."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # torch itself refuses most
    calls = [
        lambda: backend.broadcast([torch.eye(3).to_sparse()], dist.BroadcastOptions()),
        lambda: backend.allreduce([torch.eye(3).to_sparse_csr()], dist.AllreduceOptions()),
    ]
    messages = []
    for call in calls:
        try:
            call()
        except NotImplementedError as error:
            messages.append(str(error))
    assert len(messages) == len(calls), messages
    return messages
