"""Run by test_deadlock.py: each rank calls collectives in its own order."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.errors import PcclError

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


def disordered(
    count: int,
    iterations: int,
    tagged: bool = True,
    wait_at_once: bool = False,
    priorities: bool = False,
) -> int:
    """Post `count` all-reduces, in a new random order each time; return how many were posted.

    Args:
        count: number of all-reduces in flight at once.
        iterations: number of repetitions.
        tagged: if false, calls are matched by their order.
        wait_at_once: wait for each before the next one is posted: one in flight.
        priorities: each rank gives each call a priority of its own.
    """
    for iteration in range(iterations):
        random = np.random.default_rng([dist.get_rank(), iteration])
        order = random.permutation(count)
        tensors = _tensors(count, iteration)
        works = []
        for i in order:
            tag = f"layer.{i}" if tagged else ""
            priority = int(random.integers(-8, 8)) if priorities else None
            works.append(pccl.all_reduce(tensors[i], tag=tag, priority=priority, async_op=True))
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


def of_all_kinds(iterations: int) -> int:
    """Post calls of all kinds: those without a tag in one order, all others in a random order.

    Every rank sends to the next one and receives from the one before, in between.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    total = world * (world + 1) / 2
    kinds = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "send", "receive")
    posted = 0
    for iteration in range(iterations):
        random = np.random.default_rng([rank, iteration])
        jobs = [
            (kind, number, tagged) for kind in kinds for number in range(4) for tagged in (0, 1)
        ]
        shuffled = [jobs[int(i)] for i in random.permutation(len(jobs))]
        plain = iter([job for job in jobs if not job[2]])
        works: list[dist.Work] = []
        results: list[tuple[torch.Tensor, float]] = []
        for job in shuffled:
            kind, number, tagged = job if job[2] else next(plain)
            count = int(MIXED[(number + len(kind)) % len(MIXED)])
            tensor = torch.full((count,), float(rank + 1 + number))
            with pccl.tag(f"{kind}.{number}" if tagged else ""):
                if kind == "all_reduce":
                    works.append(dist.all_reduce(tensor, async_op=True))
                    results.append((tensor, total + world * number))
                elif kind == "broadcast":
                    works.append(dist.broadcast(tensor, src=number % world, async_op=True))
                    results.append((tensor, number % world + 1 + number))
                elif kind == "all_gather":
                    parts = [torch.empty(count) for _ in range(world)]
                    works.append(dist.all_gather(parts, tensor, async_op=True))
                    results += [(part, place + 1 + number) for place, part in enumerate(parts)]
                elif kind == "reduce_scatter":
                    part = torch.empty(count)
                    inputs = [tensor.clone() for _ in range(world)]
                    works.append(dist.reduce_scatter(part, inputs, async_op=True))
                    results.append((part, total + world * number))
                elif kind == "send":
                    works.append(dist.isend(tensor, (rank + 1) % world))
                    results.append((tensor, rank + 1 + number))
                else:
                    count = int(MIXED[(number + len("send")) % len(MIXED)])
                    tensor = torch.empty(count)
                    with pccl.tag(f"send.{number}" if tagged else ""):
                        works.append(dist.irecv(tensor, (rank - 1) % world))
                    results.append((tensor, (rank - 1) % world + 1 + number))
        for work in works:
            work.wait()
        posted += len(works)
        assert all((tensor == expected).all() for tensor, expected in results), iteration
    return posted


def in_overlapping_groups(iterations: int) -> int:
    """Call all-reduces of groups that overlap, in a random order on each rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    random = np.random.default_rng(1)  # the same groups on all ranks
    lists = [
        sorted(
            int(one) for one in random.choice(world, size=int(random.integers(2, 6)), replace=False)
        )
        for _ in range(12)
    ]
    groups = [dist.new_group(ranks) for ranks in lists]
    mine = [number for number, ranks in enumerate(lists) if rank in ranks]
    assert 1 <= len(mine) <= 12
    posted = 0
    for iteration in range(iterations):
        order = np.random.default_rng([rank, iteration])
        jobs = [(number, call) for number in mine for call in range(8)]
        works, results = [], []
        for i in order.permutation(len(jobs)):
            number, call = jobs[int(i)]
            tensor = torch.full((int(MIXED[call]),), float(rank + 1))
            with pccl.tag(f"call.{call}"):
                works.append(dist.all_reduce(tensor, group=groups[number], async_op=True))
            results.append((tensor, float(sum(one + 1 for one in lists[number]))))
        for work in works:
            work.wait()
        posted += len(works)
        assert all((tensor == expected).all() for tensor, expected in results), iteration
    return posted


def _outcomes(works: dict[int, dist.Work]) -> dict[int, str]:
    """Wait for all of them; return how each has ended."""
    ended = {}
    for number, work in works.items():
        try:
            work.wait()
            ended[number] = "ok"
        except PcclError as error:
            ended[number] = type(error).__name__
    return ended


def beside_a_joint_call(count: int, iterations: int) -> int:
    """Call update_topology after a number of calls that differs from rank to rank.

    Nobody joins, so the calls go on. Returns how many were posted before it.
    """
    before = 0
    for iteration in range(iterations):
        random = np.random.default_rng([dist.get_rank(), iteration])
        tensors = _tensors(count, iteration)
        joint = int(random.integers(0, count))
        works: dict[int, dist.Work] = {}
        for place, i in enumerate(random.permutation(count)):
            if place == joint:
                pccl.update_topology()
                before += len(works)
            works[int(i)] = pccl.all_reduce(tensors[i], tag=f"layer.{i}", async_op=True)
        assert set(_outcomes(works).values()) == {"ok"}
        _check(tensors, iteration)
    return before


def while_a_rank_is_killed(count: int, victim: int, after: int) -> int:
    """One rank is killed in the middle of its calls; return how many calls failed."""
    rank = dist.get_rank()
    random = np.random.default_rng([rank])
    tensors = _tensors(count, 0)
    works: dict[int, dist.Work] = {}
    for i in random.permutation(count):
        if rank == victim and len(works) == after:
            os.kill(os.getpid(), signal.SIGKILL)
        works[int(i)] = pccl.all_reduce(tensors[i], tag=f"layer.{i}", async_op=True)
    ended = _outcomes(works)
    before = [tensor.clone() for tensor in tensors]
    pccl.update_topology()
    everywhere: list[dict[int, str] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, ended)
    assert all(one == ended for one in everywhere), everywhere
    for number, outcome in ended.items():
        own = float((rank + 1) * (number + 1))
        if outcome != "ok":
            assert (before[number] == own).all(), number
    disordered(count, 1)  # the survivors go on
    return sum(outcome != "ok" for outcome in ended.values())


def posted_on_one_rank(count: int) -> tuple[int, int]:
    """Rank 0 posts `count` calls before all others; return the bytes that they cost there.

    Meanwhile other calls of all ranks complete. The second number is the number of these.
    """
    first = dist.get_rank() == 0
    tensors = [torch.full((4096,), 1.0) for _ in range(count)]

    def post() -> list[dist.Work]:
        return [
            pccl.all_reduce(tensor, tag=f"call.{i}", async_op=True)
            for i, tensor in enumerate(tensors)
        ]

    before = _resident()
    works = post() if first else []
    completed = 0
    for _ in range(20):
        dist.barrier()
        completed += 1
    cost = _resident() - before
    assert not any(work.is_completed() for work in works)
    works = works or post()
    for work in works:
        work.wait()
    assert all((tensor == dist.get_world_size()).all() for tensor in tensors)
    return cost, completed


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
