"""Run by test_timeouts.py: timeouts that are too large, zero, or negative."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import world

import pccl_backend as pccl

SETS_TIMEOUTS = hasattr(dist, "set_timeout")  # an older torch has it for NCCL and Gloo only
# A limit that wrapped around would end a wait at once. A delay that is too short can hide such a
# fault, but it cannot fail the test.
LATE_S = 0.2


def init(timeout: timedelta, **settings: Any) -> None:
    place = world.current.place()
    dist.init_process_group("pccl", timeout=timeout, **{**place, **settings})


def rank_1_is_late() -> None:
    """Delay rank 1, so that rank 0 waits in its next call."""
    if dist.get_rank() == 1:
        time.sleep(LATE_S)


def waits_for_ever() -> None:
    init(timedelta.max)
    for timeout in (timedelta.max, timedelta(days=365 * 300)):
        group = dist.new_group(timeout=timeout)
        for call in (
            lambda: dist.all_reduce(torch.ones(4), async_op=True).wait(timeout),  # noqa: B023
            lambda: dist.barrier(timeout=timeout),  # noqa: B023
            lambda: dist.all_reduce(torch.ones(4), group=group),  # noqa: B023
            lambda: dist.all_reduce(torch.ones(4)),
        ):
            rank_1_is_late()
            call()
    dist.destroy_process_group()


def waits_for_ever_in_an_open_run() -> None:
    init(timedelta.max)
    if SETS_TIMEOUTS:
        dist.set_timeout(timedelta.max)
    state = pccl.SharedState({"x": torch.ones(3)}, revision=0)
    for call in (
        lambda: pccl.sync_shared_state(state),
        pccl.are_peers_pending,
        pccl.update_topology,
        dist.barrier,
    ):
        rank_1_is_late()
        call()
    dist.destroy_process_group()


def tries_every_way_in(url: str) -> dict[str, str]:
    """Return the error of each way to give a timeout, for 0 and for -5 s."""
    found = {}
    for seconds in (0, -5):
        timeout = timedelta(seconds=seconds)
        for name, way in ways_before_init(url).items():
            found[f"{name} {seconds}"] = error_of(way, timeout)
    init(timedelta(seconds=20))
    for seconds in (0, -5):
        timeout = timedelta(seconds=seconds)
        for name, way in ways_after_init().items():
            found[f"{name} {seconds}"] = error_of(way, timeout)
    work = dist.all_reduce(torch.ones(3), async_op=True)
    found["wait -5"] = error_of(work.wait, timedelta(seconds=-5))
    assert work.wait(timedelta(0)), "torch's value for no limit"
    dist.barrier()  # refused timeouts have left the group as it was
    dist.destroy_process_group()
    return found


Way = Callable[[timedelta], Any]


def ways_before_init(url: str) -> dict[str, Way]:
    def under_a_launcher(timeout: timedelta) -> None:
        os.environ["PCCL_MASTER"] = url
        try:
            init(timeout)
        finally:
            del os.environ["PCCL_MASTER"]

    return {
        "file": init,
        "url": lambda timeout: dist.init_process_group("pccl", init_method=url, timeout=timeout),
        "launcher": under_a_launcher,
    }


def ways_after_init() -> dict[str, Way]:
    def reduce(timeout: timedelta) -> None:
        options = dist.AllreduceOptions()
        options.timeout = timeout
        default: Any = dist.group.WORLD
        default.allreduce([torch.ones(3)], options)

    ways: dict[str, Way] = {
        "new_group": lambda timeout: dist.new_group(timeout=timeout),
        "barrier": lambda timeout: dist.barrier(timeout=timeout),
        "options": reduce,
    }
    if SETS_TIMEOUTS:
        ways["set_timeout"] = dist.set_timeout
    return ways


def error_of(way: Way, timeout: timedelta) -> str:
    try:
        way(timeout)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return "nothing"
