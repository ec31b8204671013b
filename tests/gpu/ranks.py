"""Ranks for the GPU checks: processes that form one pccl group, all on the same GPU.

`run` starts them, gives each its rank, and returns what each has returned. A rank that ends without
an answer is a None. Everything has a limit.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

import pccl_backend

# A dry run of the scripts, on a machine without a GPU: GPU_CHECK_DEVICE=cpu.
DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
OPERATION_LIMIT = timedelta(seconds=60)

_context = multiprocessing.get_context("spawn")


def available() -> bool:
    return DEVICE == "cpu" or torch.cuda.is_available()


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def work_for(seconds: float) -> None:
    """Give the GPU a kernel of this length on the current stream; the host does not wait."""
    if DEVICE == "cuda":
        torch.cuda._sleep(int(seconds * _cycles_per_second()))


_cycles: list[float] = []


def _cycles_per_second() -> float:
    if not _cycles:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(1_000_000)  # loads the kernel, which is not to be measured
        torch.cuda.synchronize()
        start.record()
        torch.cuda._sleep(20_000_000)  # measures its cycles a second
        end.record()
        torch.cuda.synchronize()
        _cycles.append(20_000_000 / (start.elapsed_time(end) / 1000))
    return _cycles[0]


def run(
    function: Callable[..., Any],
    size: int,
    *arguments: Any,
    limit_s: float = 120,
    bound: bool = False,
) -> list[Any]:
    """Run `function(rank, *arguments)` on `size` ranks; raise if one of them has raised.

    Args:
        bound: whether init_process_group gets a device_id.
    """
    port = free_port()
    ends = [_context.Pipe() for _ in range(size)]
    processes = [
        _context.Process(
            target=_rank,
            args=((rank, size, port, bound), ends[rank][1], function, arguments),
            daemon=True,
        )
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    for _, end in ends:
        end.close()
    deadline = time.monotonic() + limit_s
    answers = [_answer(ends[rank][0], deadline) for rank in range(size)]
    for process in processes:
        process.join(timeout=max(deadline - time.monotonic(), 5))
        if process.is_alive():
            process.kill()
            raise AssertionError("a rank did not end")
    errors = [answer[1] for answer in answers if answer is not None and answer[0] == "raised"]
    if errors:
        raise AssertionError("\n".join(errors))
    return [None if answer is None else answer[1] for answer in answers]


def _answer(end: Connection, deadline: float) -> tuple[str, Any] | None:
    if not end.poll(max(deadline - time.monotonic(), 0)):
        return "raised", "a rank did not answer in time"
    try:
        return end.recv()  # type: ignore[no-any-return]
    except EOFError:
        return None


def _rank(
    place: tuple[int, int, int, bool],
    end: Connection,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    rank, size, port, bound = place
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    try:
        assert pccl_backend.__name__  # its import registers the backend
        if DEVICE == "cuda":
            torch.cuda.set_device(0)
            torch.zeros(1, device="cuda")
        device_id = torch.device(DEVICE, 0) if bound and DEVICE == "cuda" else None
        dist.init_process_group("pccl", timeout=OPERATION_LIMIT, device_id=device_id)
        value = function(rank, *arguments)
        end.send(("returned", value))
        dist.destroy_process_group()
    except BaseException:  # noqa: BLE001
        end.send(("raised", f"rank {rank}: {traceback.format_exc()}"))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
