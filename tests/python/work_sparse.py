"""Run by test_sparse.py in every process of a world: all-reduces of sparse tensors.

The tensors depend only on (rank, number, dtype), so every rank knows the others' tensors.
"""

from __future__ import annotations

import itertools
import os
import resource
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from work_collectives import assert_same, everybody_has_the_same
from work_membership import assemble
from world import expected

import pccl_backend as pccl

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int16]
DTYPES += [torch.uint8, torch.bool]
ROWS = 50


def table(
    rank: int, number: int = 0, dtype: torch.dtype = torch.float32, dense: tuple[int, ...] = (3,)
) -> torch.Tensor:
    """Return a rank's tensor: some rows of a table. Some of them are there twice."""
    chance = torch.Generator().manual_seed(1000 * number + rank)
    entries = int(torch.randint(0, ROWS, (1,), generator=chance))
    rows = torch.randint(0, ROWS, (1, entries), generator=chance)
    values = torch.randn(entries, *dense, generator=chance, dtype=torch.float64) * 3
    return torch.sparse_coo_tensor(rows, values.to(dtype), (ROWS, *dense))


def check(tensor: torch.Tensor, number: int = 0, dense: tuple[int, ...] = (3,)) -> None:
    """Check the sum over all ranks, and that they hold the same bits."""
    inputs = [table(rank, number, tensor.dtype, dense) for rank in range(dist.get_world_size())]
    assert tensor.is_coalesced()
    assert tensor.shape == inputs[0].shape
    touched = torch.cat([one.indices()[0] for one in (each.coalesce() for each in inputs)])
    assert_same(tensor.indices()[0], touched.unique(), "the indices")
    if tensor.dtype is torch.bool:
        want = torch.stack([one.to_dense() for one in inputs]).any(0)
    else:
        want = sum(one.to_dense() for one in inputs)
    exact = not tensor.dtype.is_floating_point
    tolerance = 0.0 if exact else 4 * torch.finfo(tensor.dtype).eps
    got = tensor.to_dense()
    torch.testing.assert_close(got, want, rtol=tolerance, atol=10 * tolerance)
    everybody_has_the_same(tensor.indices())
    everybody_has_the_same(tensor.values())


def sums() -> None:
    rank = dist.get_rank()
    numbers = itertools.count()
    for dtype in DTYPES:
        for dense in ((), (3,), (2, 5)):
            number = next(numbers)
            tensor = table(rank, number, dtype, dense)
            dist.all_reduce(tensor)
            check(tensor, number, dense)
            again = tensor.clone()
            pccl.all_reduce(again, "sum")  # the coalesced tensor, and the other spelling
            world = dist.get_world_size()
            if dtype is not torch.bool:
                torch.testing.assert_close(again.to_dense(), tensor.to_dense() * world)


def corners() -> None:
    """Ranks without entries, a tensor without dense dimensions, many sparse ones, one of none."""
    rank, world = dist.get_rank(), dist.get_world_size()
    nobody = torch.sparse_coo_tensor(torch.empty(2, 0), torch.empty(0), (4, 5))
    dist.all_reduce(nobody)
    assert nobody._nnz() == 0
    one = torch.sparse_coo_tensor([[rank], [1]], [2.0], (world, 5)) if rank == world - 1 else None
    one = torch.sparse_coo_tensor(size=(world, 5)) if one is None else one
    dist.all_reduce(one)
    assert one.to_dense()[world - 1, 1] == 2
    assert one._nnz() == 1
    deep = torch.sparse_coo_tensor(torch.zeros(8, 1), [1.0], (2,) * 8)
    dist.all_reduce(deep)
    assert deep.values().tolist() == [float(world)]
    nothing_wide = torch.sparse_coo_tensor([[rank]], torch.empty(1, 0), (world, 0))
    dist.all_reduce(nothing_wide)
    assert nothing_wide.indices().tolist() == [list(range(world))]
    leaf = torch.sparse_coo_tensor([[0]], [1.0], (2,), requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf)
    assert leaf.coalesce().values().tolist() == [float(world)]
    with torch.inference_mode():
        made = torch.sparse_coo_tensor([[0]], [1.0], (2,))
        dist.all_reduce(made)
        assert made.values().tolist() == [float(world)]


def in_flight(count: int) -> None:
    """Many at once without a tag, of other sizes each, among dense ones, and waited for backwards.

    The second round of one begins while the first of the next is called, at another time on each
    rank.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    sparse = [table(rank, number) for number in range(count)]
    dense = [torch.full((number + 1,), float(rank)) for number in range(count)]
    works = []
    for number in range(count):
        if number % 7 == rank:
            time.sleep(0.002)  # puts the ranks at different calls; no result needs it
        works.append(dist.all_reduce(sparse[number], async_op=True))
        works.append(dist.all_reduce(dense[number], async_op=True))
    future = works[0].get_future()
    for work in reversed(works):
        work.wait()
    assert torch.equal(future.wait()[0].to_dense(), sparse[0].to_dense())
    for number in range(count):
        check(sparse[number], number)
        assert (dense[number] == sum(range(world))).all()


def threads(count: int) -> None:
    """Threads with a tag each, in another order on each rank."""
    rank = dist.get_rank()
    done: list[tuple[int, torch.Tensor]] = []

    def reduce(number: int) -> None:
        tensor = table(rank, number)
        with pccl.tag(f"thread {number % 4}"):
            dist.all_reduce(tensor)
        done.append((number, tensor))

    def run(first: int) -> None:
        for number in range(first, count, 4):
            reduce(number)

    order = range(4) if rank % 2 else range(3, -1, -1)
    workers = [threading.Thread(target=run, args=(first,)) for first in order]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(done) == count
    for number, tensor in sorted(done, key=lambda pair: pair[0]):
        check(tensor, number)


def same_entries(tensor: torch.Tensor, before: torch.Tensor) -> None:
    assert_same(tensor._indices(), before._indices(), "the indices")
    assert_same(tensor._values(), before._values(), "the values")
    assert tensor.is_coalesced() == before.is_coalesced()


def fails(make: Callable[[int], torch.Tensor], *says: str) -> None:
    """Check that all ranks get the same mismatch, that nothing has changed, and that it goes on."""
    tensor = make(dist.get_rank())
    before = tensor.clone()
    with expected(pccl.CollectiveMismatchError, *says) as raised:
        dist.all_reduce(tensor)
    texts = [""] * dist.get_world_size()
    dist.all_gather_object(texts, str(raised[0]))
    assert len(set(texts)) == 1, texts
    assert type(pccl.run_info().last_error) is pccl.CollectiveMismatchError
    same_entries(tensor, before)
    dist.all_reduce(tensor := table(dist.get_rank(), 5))
    check(tensor, 5)


def mismatches() -> None:
    last = dist.get_world_size() - 1
    fails(
        lambda rank: table(rank, 1, torch.float64 if rank == last else torch.float32),
        "rank 0 gave Float of sizes [50, 3], 1 sparse dimension",
        f"rank {last} gave Double",
    )
    fails(
        lambda rank: table(rank, 1, dense=(4,) if rank == last else (3,)),
        "[50, 3]",
        f"rank {last} gave Float of sizes [50, 4]",
    )
    fails(
        lambda rank: torch.eye(3).to_sparse(1 if rank == last else 2),
        "2 sparse dimensions",
        f"rank {last} gave Float of sizes [3, 3], 1 sparse dimension",
    )
    rank = dist.get_rank()
    tensor = torch.ones(3) if rank == last else table(rank)
    before = tensor.clone()
    with expected(pccl.CollectiveMismatchError, "all_reduce", "all_gather"):
        dist.all_reduce(tensor)
    assert rank < last or tensor.equal(before)
    if rank < last:
        same_entries(tensor, before)


def refused() -> None:
    """Arguments that have no meaning are refused before anything is sent."""
    tensor = table(dist.get_rank())
    before = tensor.clone()
    for op, name in ((dist.ReduceOp.AVG, "AVG"), (dist.ReduceOp.MAX, "MAX")):
        with expected(ValueError, "use ReduceOp.SUM", name):
            dist.all_reduce(tensor, op)
    with expected(ValueError, "PREMUL_SUM"):
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0))
    with expected(ValueError, "UInt16", "signed"):
        dist.all_reduce(torch.sparse_coo_tensor([[0]], torch.ones(1).to(torch.uint16), (2,)))
    with expected(ValueError, "33 dimensions", "at most 32"):
        dist.all_reduce(torch.sparse_coo_tensor(torch.zeros(33, 1), [1.0], (1,) * 33))
    with expected(ValueError, "keep"):
        pccl.all_reduce(tensor, "sum", on_loss="keep")
    with expected(ValueError, '"pccl:x" begins with "pccl:"'), pccl.tag("pccl:x"):
        pass
    same_entries(tensor, before)
    dist.all_reduce(tensor)
    check(tensor)


def late(timeout_s: float) -> str:
    """A rank never calls: the others get an error."""
    rank = dist.get_rank()
    if rank == 0:
        time.sleep(3 * timeout_s)  # the fault: the others must reach their timeout meanwhile
        return ""
    tensor = table(rank)
    before = tensor.clone()
    with expected(pccl.OperationTimeoutError, "all_reduce of sparse tensors", "rank 0") as raised:
        dist.all_reduce(tensor)
    same_entries(tensor, before)
    return str(raised[0])


def loses_one(calls: bool) -> str:
    """The last rank dies before its call, or while all of them run."""
    assemble(3)
    rank = dist.get_rank()
    for number in range(3):
        dist.all_reduce(tensor := table(rank, number))
        check(tensor, number)
    count = 40
    tensors = [table(rank, number) for number in range(count)]
    before = [tensor.clone() for tensor in tensors]
    if rank == 2 and not calls:
        os._exit(9)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    if rank == 2:
        works[count // 2].wait()
        os._exit(9)
    texts = []
    for number, work in enumerate(works):
        try:
            work.wait()
        except pccl.PeerLostError as error:
            texts.append(f"{number}: {error}")
            same_entries(tensors[number], before[number])
        else:
            assert calls
            texts.append(f"{number}: a sum of {tensors[number].to_dense().sum()}")
    assert "lost" in texts[-1] or calls
    assert pccl.update_topology().world_size == 2
    for number in range(3):
        dist.all_reduce(tensor := table(dist.get_rank(), number))
        check(tensor, number)
    return "\n".join(texts)


def without_memory() -> None:
    """A rank without memory for the others' data fails the call for all of them."""
    rank = dist.get_rank()
    rows = 40_000
    tensor = torch.sparse_coo_tensor(
        torch.arange(rows)[None], torch.ones(rows, 500), (rows, 500), is_coalesced=True
    )
    before = tensor.clone()
    dist.barrier()
    if rank == 1:
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        # room for its own copy of 80 MB, and for none of another rank
        resource.setrlimit(resource.RLIMIT_AS, (used + (130 << 20), hard))
    try:
        with expected(pccl.CollectiveMismatchError, "barrier", "all_gather"):
            dist.all_reduce(tensor)
    finally:
        if rank == 1:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    same_entries(tensor, before)
    small = table(rank)
    dist.all_reduce(small)
    check(small)
