"""CUDA tensors and streams: what pccl waits for, and what it must not wait for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import ranks
import torch
import torch.distributed as dist
from check import end, expect, report, skip

Findings = dict[str, object]
MIB = 1 << 20
CALLS = 9
RETURN_MAX_US = 200  # of a call with async_op, behind a second of work: the median of later calls


def pinned_allocations() -> int:
    """Return how many blocks of pinned memory torch has had from CUDA."""
    return int(torch.cuda.host_memory_stats().get("num_host_alloc", 0))


def producer_is_seen(rank: int) -> Findings:
    """The values that a kernel writes a second later are those that travel.

    The first call makes streams, starts a thread and allocates pinned memory. Later calls find
    their memory in torch's cache.
    """
    tensor = torch.zeros(MIB, device="cuda")
    ranks.work_for(0.001)
    returned, allocated = [], []
    for call in range(CALLS):
        ranks.synchronize()
        dist.barrier()
        ranks.work_for(1)
        tensor.fill_(call + rank)
        blocks = pinned_allocations()
        start = time.perf_counter()
        work = dist.all_reduce(tensor, async_op=True)
        returned.append(round(1e6 * (time.perf_counter() - start), 1))
        allocated.append(pinned_allocations() - blocks)
        assert work is not None
        work.wait()
        assert bool((tensor == 2 * call + 1).all()), "the producer's values were not seen"
    later = statistics.median(returned[2:])
    pinned = cached_allocation()
    text = f"calls behind 1 s of work, us {returned}, new pinned blocks {allocated}, {pinned}"
    assert later < RETURN_MAX_US, f"later calls return after {later} us: {text}"
    return {"calls_us": returned, "later_calls_us": later, "pinned_blocks": allocated, **pinned}


def cached_allocation() -> Findings:
    """The time that torch needs for pinned memory from its cache, with work under way."""
    times = []
    for _ in range(CALLS):
        ranks.synchronize()
        ranks.work_for(0.01)
        start = time.perf_counter()
        torch.empty(4 * MIB, dtype=torch.uint8, pin_memory=True)
        times.append(round(1e6 * (time.perf_counter() - start), 1))
    return {"cached_pin_us": statistics.median(times)}


def cpu_calls(rank: int) -> Findings:
    """The time of the same call with a CPU tensor, for comparison."""
    tensor, returned = torch.zeros(MIB), []
    for _ in range(CALLS):
        dist.barrier()
        start = time.perf_counter()
        work = dist.all_reduce(tensor, async_op=True)
        returned.append(round(1e6 * (time.perf_counter() - start), 1))
        assert work is not None
        work.wait()
    return {"cpu_calls_us": statistics.median(returned)}


def side_stream(rank: int) -> Findings:
    stream = torch.cuda.Stream()
    tensor = torch.zeros(MIB, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        ranks.work_for(0.2)
        tensor.fill_(rank + 1)
        dist.all_reduce(tensor)
    assert bool((tensor == 3).all()), "the side stream's values were not seen"
    return {}


def freed_after_the_call(rank: int) -> Findings:
    """The tensor is freed at once, and its memory is asked for again and overwritten."""
    for _ in range(5):
        tensor = torch.full((4 * MIB,), float(rank + 1), device="cuda")
        ranks.work_for(0.05)
        work = dist.all_reduce(tensor, async_op=True)
        kept = tensor if rank == 1 else None
        del tensor
        scribble = [torch.full((4 * MIB,), -1.0, device="cuda") for _ in range(3)]
        assert work is not None
        result = work.result() if work.wait() else []
        assert all(bool((one == 3).all()) for one in result), "the result has other values"
        assert kept is None or bool((kept == 3).all())
        assert all(bool((one == -1).all()) for one in scribble), "foreign memory was overwritten"
    return {}


def capture_is_refused(rank: int) -> Findings:
    tensor = torch.full((1000,), float(rank), device="cuda")
    graph = torch.cuda.CUDAGraph()
    text = ""
    with torch.cuda.graph(graph):
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            text = str(error)
        tensor.add_(1)
    assert "all_reduce cannot be captured in a CUDA graph" in text, text or "it was not refused"
    graph.replay()
    ranks.synchronize()
    assert bool((tensor == rank + 1).all()), "the graph is spoilt"
    dist.all_reduce(tensor)
    assert bool((tensor == 3).all())
    return {}


def operations_do_not_spoil_a_capture(rank: int) -> Findings:
    """An operation is under way while a graph is captured."""
    reduced = torch.full((MIB,), float(rank + 1), device="cuda")
    other = torch.zeros(1000, device="cuda")
    ranks.synchronize()
    ranks.work_for(0.1)
    work = dist.all_reduce(reduced, async_op=True)
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="global")
        other.add_(1)
        time.sleep(0.3)  # the capture stays open while the operation ends: its 0.1 s are over
        other.add_(1)
        graph.capture_end()
    assert work is not None
    work.wait()
    assert bool((reduced == 3).all())
    graph.replay()
    ranks.synchronize()
    assert bool((other == 2).all())
    return {}


def blocked_pool_streams(rank: int) -> Findings:
    """All streams of torch's pool are busy for two seconds, like with kernels that wait."""
    tensor = torch.full((MIB,), float(rank + 1), device="cuda")
    ranks.work_for(0.001)
    ranks.synchronize()
    dist.barrier()
    pool = {stream.cuda_stream: stream for stream in (torch.cuda.Stream() for _ in range(64))}
    for stream in pool.values():
        with torch.cuda.stream(stream):
            ranks.work_for(2)
    start = time.perf_counter()
    dist.all_reduce(tensor)
    seconds = time.perf_counter() - start
    ranks.synchronize()
    assert bool((tensor == 3).all())
    assert seconds < 1, f"it waited {seconds:.2f} s for streams of others"
    return {"behind_busy_pool_ms": round(1e3 * seconds, 2)}


def synchronize_between(rank: int) -> Findings:
    """A rank waits for the whole device while its operation waits for the other rank."""
    tensors = [torch.full((1000,), float(rank + 1), device="cuda") for _ in range(10)]
    works = []
    for index, tensor in enumerate(tensors):
        if rank == index % 2:
            time.sleep(0.03)  # this rank is late on purpose: the other one waits for it
        works.append(dist.all_reduce(tensor, async_op=True))
        torch.cuda.synchronize()
    for work in works:
        assert work is not None
        work.wait()
    assert all(bool((tensor == 3).all()) for tensor in tensors)
    return {}


def mixed_calls(rank: int) -> Findings:
    """Calls with CPU and CUDA tensors without a tag: they match in the order of the calls."""
    works, tensors = [], []
    for index in range(200):
        device = "cuda" if index % 2 else "cpu"
        if device == "cuda" and index % 20 == 1 + 2 * rank:
            ranks.work_for(0.002)
        tensors.append(torch.full((100 + index,), float(rank + 1), device=device))
        works.append(dist.all_reduce(tensors[-1], async_op=True))
    for work in works:
        assert work is not None
        work.wait()
    assert all(bool((tensor == 3).all()) for tensor in tensors)
    return {}


CHECKS: list[Callable[[int], Findings]] = [
    producer_is_seen,
    cpu_calls,
    side_stream,
    freed_after_the_call,
    capture_is_refused,
    operations_do_not_spoil_a_capture,
    blocked_pool_streams,
    synchronize_between,
    mixed_calls,
]


def check(rank: int) -> tuple[Findings, list[str]]:
    found: Findings = {}
    wrong = []
    for one in CHECKS:
        try:
            found |= one(rank)
        except Exception as error:  # noqa: BLE001
            wrong.append(f"{one.__name__}: {type(error).__name__}: {error}")
        ranks.synchronize()
        dist.barrier()
    return found, wrong


def main() -> None:
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    results = ranks.run(check, 2, limit_s=90)
    report(**results[0][0])
    for rank, (_, wrong) in enumerate(results):
        for what in wrong:
            expect(False, f"rank {rank}: {what}")
    end()


if __name__ == "__main__":
    main()
