"""Run by test_deadlock.py: each rank calls collectives in its own order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist

import pccl_backend as pccl

# Elements of float32: 256 B to 1 MiB. Small tensors use the one-shot all-reduce and large ones the
# ring, so that the two kinds would block each other if that were possible.
MIXED = tuple(kib * 256 for kib in (0.25, 1, 4, 16, 64, 256, 512, 1024))


def _tensors(count: int, iteration: int) -> list[torch.Tensor]:
    rank = dist.get_rank()
    return [
        torch.full((int(MIXED[i % len(MIXED)]),), float((rank + 1) * (i + 1) + iteration))
        for i in range(count)
    ]


def _check(tensors: Sequence[torch.Tensor], iteration: int) -> None:
    world = dist.get_world_size()
    for i, tensor in enumerate(tensors):
        # Sums of small integers are exact, so equal values mean equal bits.
        expected = world * (world + 1) / 2 * (i + 1) + world * iteration
        assert (tensor == expected).all(), (i, iteration)


def disordered(count: int, iterations: int, tagged: bool = True, wait_at_once: bool = False) -> int:
    """Post `count` all-reduces, in a new random order each time; return how many were posted.

    Args:
        count: number of all-reduces in flight at once.
        iterations: number of repetitions.
        tagged: if false, calls are matched by their order.
        wait_at_once: wait for each before the next one is posted: one in flight.
    """
    for iteration in range(iterations):
        order = np.random.default_rng([dist.get_rank(), iteration]).permutation(count)
        tensors = _tensors(count, iteration)
        works = []
        for i in order:
            tag = f"layer.{i}" if tagged else ""
            works.append(pccl.all_reduce(tensors[i], tag=tag, async_op=True))
            if wait_at_once:
                works[-1].wait()
        for work in works:
            work.wait()
        _check(tensors, iteration)
    return count * iterations


def waits_between(count: int, iterations: int) -> int:
    """Post `count` all-reduces in random orders with waits in between; return the number of waits.

    A rank waits for a call only when it has made all calls with lower numbers, so no ranks can wait
    for each other: all ranks that wait have made the lowest call that any of them waits for.
    """
    waits = 0
    for iteration in range(iterations):
        random = np.random.default_rng([dist.get_rank(), iteration])
        tensors = _tensors(count, iteration)
        works: dict[int, dist.Work] = {}
        waited: set[int] = set()
        for i in random.permutation(count):
            works[int(i)] = pccl.all_reduce(tensors[i], tag=f"layer.{i}", async_op=True)
            complete = next((n for n in range(count) if n not in works), count)
            open_calls = [n for n in range(complete) if n not in waited]
            if open_calls and random.random() < 0.5:
                chosen = int(random.choice(open_calls))
                works[chosen].wait()
                waited.add(chosen)
                waits += 1
        for work in works.values():
            work.wait()
        _check(tensors, iteration)
    return waits


def opposite(count: int) -> None:
    """One rank calls from the first to the last, the other from the last to the first."""
    tensors = _tensors(count, 0)
    order = range(count) if dist.get_rank() == 0 else range(count - 1, -1, -1)
    works = [pccl.all_reduce(tensors[i], tag=f"layer.{i}", async_op=True) for i in order]
    for work in works:
        work.wait()
    _check(tensors, 0)


def small_after_all_of_another(count: int) -> None:
    """Post `count` all-reduces of 64 KiB; rank 1 begins when rank 0 has posted all of them."""
    tensors = [torch.full((16384,), float(i)) for i in range(count)]
    token = torch.zeros(1)
    if dist.get_rank() == 1:
        dist.recv(token, src=0)
    works = [pccl.all_reduce(tensor, tag="layer", async_op=True) for tensor in tensors]
    if dist.get_rank() == 0:
        dist.send(token, dst=1)
    for work in works:
        work.wait()
    assert all((tensor == 2 * i).all() for i, tensor in enumerate(tensors))


def behind_a_laggard(count: int) -> None:
    """Rank 0 posts the odd ones after the even ones are done; the others post odd ones first."""
    tensors = _tensors(count, 0)
    even, odd = range(0, count, 2), range(1, count, 2)

    def post(numbers: range) -> list[dist.Work]:
        return [pccl.all_reduce(tensors[i], tag=f"layer.{i}", async_op=True) for i in numbers]

    late = post(odd) if dist.get_rank() != 0 else []
    for work in post(even):
        work.wait()
    assert not any(work.is_completed() for work in late), "nobody has called these on rank 0"
    dist.barrier()  # the others have checked
    for work in late or post(odd):
        work.wait()
    _check(tensors, 0)
