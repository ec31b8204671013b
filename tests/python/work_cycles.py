"""Run by test_cycles.py: ranks wait for each other's calls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

import pccl_backend as pccl

# Seconds from the last wait until the error of the master.
LIMIT = 4.0


def _post(tag: str) -> dist.Work:
    return pccl.all_reduce(torch.ones(1000), tag=tag, async_op=True)


def _error_of(wait: Callable[[], object]) -> str:
    """Return the text of the mismatch with which the wait ends, in time."""
    start = time.monotonic()
    try:
        wait()
    except pccl.CollectiveMismatchError as error:
        took = time.monotonic() - start
        assert took < LIMIT, f"it took {took:.1f} s"
        return str(error)
    raise AssertionError("the wait has succeeded")


def around() -> str:
    """Post all calls but that of the rank before, and wait for the own one; return the error."""
    rank, size = dist.get_rank(), dist.get_world_size()
    before = (rank - 1) % size
    works = {i: _post(f"call{i}") for i in range(size) if i != before}
    dist.barrier()
    text = _error_of(works[rank].wait)
    for work in works.values():
        _error_of(work.wait)
    _error_of(lambda: pccl.all_reduce(torch.ones(1000), tag=f"call{before}"))
    total = torch.ones(1)
    dist.all_reduce(total)  # the group continues
    assert total.item() == size
    return text


def error_of_program(text: str) -> str:
    """Run the program of docs/deadlocks.md, in which the ranks wait for each other; return the
    error."""
    names = {"dist": dist, "pccl": pccl, "tensors": {tag: torch.ones(1000) for tag in ("a", "b")}}
    return _error_of(lambda: exec(text, names))


def facing() -> str:
    """Send to the other rank, which sends, too; return the error."""
    other = 1 - dist.get_rank()
    dist.barrier()
    return _error_of(lambda: dist.send(torch.ones(100), dst=other))


def joint() -> str:
    """Rank 0 waits in a joint call, and rank 1 in a collective; return the error of rank 1."""
    dist.barrier()
    text = ""
    if dist.get_rank() == 1:
        text = _error_of(lambda: dist.all_reduce(torch.ones(8)))
    pccl.update_topology()
    return text


def one_computes(seconds: float) -> None:
    """Rank 0 waits for a call, and rank 1 makes it late, with another call before it."""
    if dist.get_rank() == 0:
        first = _post("first")
        pccl.all_reduce(torch.ones(1000), tag="second")
        first.wait()
        return
    second = _post("second")
    time.sleep(seconds)  # it computes
    pccl.all_reduce(torch.ones(1000), tag="first")
    second.wait()


def another_thread_calls(seconds: float) -> None:
    """The main threads wait for each other, and other threads make the calls that they lack."""
    rank = dist.get_rank()
    _post("warm up").wait()

    def call_late() -> None:
        _post("of the threads")
        time.sleep(seconds)
        _post(f"call{1 - rank}").wait()

    thread = threading.Thread(target=call_late)
    thread.start()
    _post(f"call{rank}").wait()
    thread.join()


def a_callback_calls(seconds: float) -> None:
    """Rank 0 waits, and a callback of a Future makes the call that rank 1 waits for."""
    if dist.get_rank() == 0:
        last: list[dist.Work] = []

        def call_late(_: object) -> None:
            time.sleep(seconds)
            last.append(_post("last"))

        called = _post("early").get_future().then(call_late)
        _post("awaited").wait()
        called.wait()
        last[0].wait()
        return
    for tag in ("early", "last", "awaited"):
        _post(tag).wait()


def limited(seconds: float) -> None:
    """Wait for a limited time only, and then make the other call."""
    rank = dist.get_rank()
    mine = _post(f"call{rank}")
    with contextlib.suppress(pccl.OperationTimeoutError):  # the other rank may be a bit earlier
        mine.wait(timedelta(seconds=seconds))
    _post(f"call{1 - rank}").wait()
    mine.wait()
