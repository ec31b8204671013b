"""Run by test_seams.py: torch's flight recorder, hooks, health check and shrink_group."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import threading
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import world
from work_groups import files
from work_membership import assemble
from world import expected, wait_until

import pccl_backend as pccl

torch_c: Any = torch._C._distributed_c10d

LIMIT_S = 30.0
CALL_LIMIT_S = 0.5  # of a call that the other rank does not make
HOOK = 7  # number of a hook
PREFIX = "trace_"  # of the files with records


def await_rank_0(folder: Path, rank: int) -> None:
    """Wait for rank 0, without a collective: rank 0 calls it when it needs the others no more."""
    over = folder / "over"
    if rank == 0:
        over.touch()
    assert wait_until(over.exists, timeout_s=LIMIT_S)


def lose(folder: Path, lost: int) -> None:
    """End the process of this rank. All members call it, while no call is under way anywhere."""
    rank, size = dist.get_rank(), dist.get_world_size()
    here = [folder / f"{one} is here" for one in range(size)]
    here[rank].touch()
    if rank == lost:
        assert wait_until(lambda: all(one.exists() for one in here), timeout_s=LIMIT_S)
        os._exit(9)


def total(group: dist.ProcessGroup | None = None) -> None:
    tensor = torch.ones(100)
    dist.all_reduce(tensor, group=group)
    assert (tensor == dist.get_world_size(group)).all()


# --- The flight recorder --------------------------------------------------------------------------


def entries() -> list[dict[str, Any]]:
    dump: bytes = torch_c._dump_fr_trace(True, False, False, backend="pccl")
    found: list[dict[str, Any]] = pickle.loads(dump)["entries"]
    return found


def write_records(folder: Path) -> None:
    dump = torch_c._dump_fr_trace(True, True, False, backend="pccl")
    folder.mkdir(exist_ok=True)
    (folder / f"{PREFIX}{dist.get_rank()}").write_bytes(dump)


def states() -> list[str]:
    return [entry["state"] for entry in entries()]


def await_completed(count: int) -> None:
    """Wait until there are `count` records, and all have ended."""
    assert wait_until(lambda: states() == ["completed"] * count, timeout_s=LIMIT_S), states()


def make_each_call() -> None:
    rank, tensor = dist.get_rank(), torch.ones(10)
    dist.all_reduce(tensor)
    dist.barrier()
    if rank == 0:
        dist.send(tensor, dst=1)
    else:
        dist.recv(tensor, src=0)
    dist.all_gather([torch.zeros(10), torch.zeros(10)], tensor)


def records_each_call(folder: Path) -> None:
    """Record calls with and without a wait, and then with their durations."""
    make_each_call()
    await_completed(4)
    kept = dist.all_reduce(torch.ones(10), async_op=True)
    await_completed(5)
    dist.all_reduce(torch.ones(10), async_op=True)  # its Work goes away at once
    await_completed(6)
    kept.get_future().wait()
    assert not any(entry.get("duration_ms") for entry in entries())
    with expected(RuntimeError):
        kept._get_duration()
    dist.group.WORLD._enable_collectives_timing()
    # torch records the duration of a call that ends after it has returned. Rank 1 calls later.
    if dist.get_rank() == 1:
        assert wait_until((folder / "called").exists, timeout_s=LIMIT_S)
    timed = dist.all_reduce(torch.ones(10), async_op=True)
    folder.mkdir(exist_ok=True)
    (folder / "called").touch()
    timed.wait()
    assert 0 < timed._get_duration() < 1000 * LIMIT_S
    await_completed(7)
    if dist.get_rank() == 0:
        assert entries()[-1]["duration_ms"] > 0
    write_records(folder)
    dist.barrier()


def fails(timeout_s: float = CALL_LIMIT_S) -> None:
    """Make a call that the other rank does not make: it ends with OperationTimeoutError."""
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=timeout_s)
    group: Any = dist.group.WORLD
    with expected(pccl.OperationTimeoutError):
        group.allreduce([torch.ones(3)], options).wait()


def records_a_failure(folder: Path) -> None:
    total()
    await_completed(1)
    if dist.get_rank() == 0:
        fails()
        assert states()[0] == "completed"
        assert states()[1] != "completed"
    await_rank_0(folder, dist.get_rank())


def records_members(folder: Path) -> None:
    """Grow from two to three members, and shrink to two by the loss of rank 0."""
    newcomer = dist.get_world_size() == 3
    if not newcomer:
        total()
        dist.barrier()
    assemble(3)
    assert dist.get_world_size() == 3
    for _ in range(3):
        total()
    joined = [entry["collective_seq_id"] for entry in entries()]
    assert joined == [1, 2, 3], "the records of all begin with the newcomer"
    write_records(folder / "three")
    dist.barrier()
    lose(folder, 0)
    with expected(pccl.PeerLostError):
        total()
    pccl.update_topology()
    assert dist.get_world_size() == 2
    for _ in range(2):
        total()
    kept = [entry["collective_seq_id"] for entry in entries()]
    assert kept[-2:] == [1, 2], "the recorder has begun anew"
    assert len(kept) == 7, "the failure is still there"
    write_records(folder / "two")
    dist.barrier()


def asks_for_its_rank_all_the_time(steps: int) -> int:
    """One of three members is lost, under the policy retry, while threads call and ask."""
    assemble(3)
    total()
    dist.barrier()
    over, done = threading.Event(), []
    lost = dist.get_rank() == 2

    def calls(number: int) -> None:
        for step in range(steps):
            if lost and step == steps // 2:
                os._exit(9)
            tensor = torch.ones(1000)
            work = pccl.all_reduce(tensor, tag=f"thread {number}", async_op=True)
            assert dist.get_rank() < dist.get_world_size()
            if step % 2:
                work.wait()
            else:
                work.get_future().wait()
        done.append(number)

    def asks() -> None:
        while not over.is_set():
            dist.get_rank()

    asking = threading.Thread(target=asks, daemon=True)
    calling = [threading.Thread(target=calls, args=(one,), daemon=True) for one in range(3)]
    for thread in (asking, *calling):
        thread.start()
    for thread in calling:
        thread.join(2 * LIMIT_S)
    over.set()
    asking.join(LIMIT_S)
    assert sorted(done) == [0, 1, 2], "a thread is stuck, or has raised"
    pccl.update_topology()
    total()
    dist.barrier()
    return dist.get_world_size()


# --- Hooks around calls ---------------------------------------------------------------------------


def runs_hooks_around_calls() -> None:
    group: Any = dist.group.WORLD
    seen: list[str] = []
    group.register_post_hook(HOOK, lambda _: seen.append("after"))
    group.register_pre_hook(HOOK + 1, lambda _: seen.append("second"))
    group.register_pre_hook(HOOK, lambda _: seen.append("first"))
    total()
    assert seen == ["first", "second", "after"]
    group.unregister_pre_hook(HOOK)
    group.unregister_post_hook(HOOK)
    total()
    assert seen == ["first", "second", "after", "second"]
    group.unregister_pre_hook(HOOK + 1)

    def raises(_: object) -> None:
        raise ValueError("on purpose")

    group.register_pre_hook(HOOK, raises)
    with expected(ValueError, "on purpose"):  # a NaN check of torch is such a hook
        total()
    group.unregister_pre_hook(HOOK)
    total()


def changes_hooks_during_calls(steps: int) -> None:
    """Hooks come and go while another thread calls collectives."""
    group: Any = dist.group.WORLD
    over, hooks = threading.Event(), Calls()

    def changes() -> None:
        while not over.is_set():
            group.register_pre_hook(HOOK, lambda _: hooks())
            group.register_post_hook(HOOK, lambda _: hooks())
            group.unregister_pre_hook(HOOK)
            group.unregister_post_hook(HOOK)

    thread = threading.Thread(target=changes, daemon=True)
    thread.start()
    for _ in range(steps):
        total()
    over.set()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


# --- Abort hooks ----------------------------------------------------------------------------------


class Calls:
    """A hook that counts its calls."""

    def __init__(self) -> None:
        self.count = 0
        self.called = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        self.called.set()


@contextlib.contextmanager
def abort_hook(hook: Callable[[], None], number: int = HOOK) -> Iterator[None]:
    group: Any = dist.group.WORLD
    group.register_abort_hook(number, hook)
    yield
    group.unregister_abort_hook(number)


def runs_abort_hooks(folder: Path) -> None:
    """A timeout runs the hook before wait() raises, and no other end of a call runs it."""
    calls = Calls()
    with abort_hook(calls):
        total()
        with expected(ValueError, "share memory"):
            dist.all_reduce(torch.ones(1).expand(3))
        assert calls.count == 0
        if dist.get_rank() == 0:
            for failure in (1, 2):
                fails()
                assert calls.count == failure
        await_rank_0(folder, dist.get_rank())


def runs_no_hook_at_the_end(folder: Path) -> int:
    """Return how often a hook ran, although a call of rank 0 is under way when it leaves."""
    calls, rank = Calls(), dist.get_rank()
    group: Any = dist.group.WORLD
    group.register_abort_hook(HOOK, calls)
    total()
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        dist.destroy_process_group()
        with expected(pccl.InvalidStateError):
            work.wait()
    await_rank_0(folder, rank)
    if rank == 1:
        dist.destroy_process_group()
    del group
    gc.collect()
    return calls.count


def ends_calls_by_a_new_topology() -> int:
    """Return how often a hook ran, although update_topology has ended a call of rank 0."""
    calls = Calls()
    newcomer = dist.get_world_size() == 3
    group: Any = dist.group.WORLD
    group.register_abort_hook(HOOK, calls)
    ended = None
    if not newcomer and dist.get_rank() == 0:
        ended = pccl.all_reduce(torch.ones(3), tag="rank 0 alone", async_op=True)
    assemble(3)
    if ended is not None:
        with expected(pccl.MembershipChangedError):
            ended.wait()
    total()
    dist.barrier()
    return calls.count


def survives_a_loss(folder: Path) -> int:
    """Return how often the hook of rank 0 ran, though rank 1 was lost in a call."""
    calls = Calls()
    total()
    with abort_hook(calls):
        lose(folder, 1)
        with expected(pccl.PeerLostError):
            total()
        assert pccl.update_topology().world_size == 1
        total()
    return calls.count


def aborts() -> int:
    """Return how often the hook ran for an abort of the application."""
    calls = Calls()
    total()
    dist.barrier()
    group: Any = dist.group.WORLD
    group.register_abort_hook(HOOK, calls)
    group.abort()
    return calls.count


def survives_a_hook_that_raises(folder: Path) -> None:
    calls = Calls()

    def raises() -> None:
        raise RuntimeError("on purpose")

    if dist.get_rank() == 0:
        with abort_hook(raises), abort_hook(calls, HOOK + 1):
            fails()
        assert calls.count == 1, "the hooks after it still run"
    await_rank_0(folder, dist.get_rank())
    dist.destroy_process_group()


def unregisters_a_running_hook(folder: Path) -> None:
    if dist.get_rank() == 0:
        calls, removed = Calls(), threading.Event()
        group: Any = dist.group.WORLD

        def removes() -> None:
            assert calls.called.wait(LIMIT_S)
            group.unregister_abort_hook(HOOK)
            removed.set()

        def hook() -> None:
            calls()
            assert removed.wait(LIMIT_S)

        thread = threading.Thread(target=removes, daemon=True)
        thread.start()
        group.register_abort_hook(HOOK, hook)
        del hook
        fails()
        thread.join(LIMIT_S)
        assert removed.is_set()
        fails()
        assert calls.count == 1
    await_rank_0(folder, dist.get_rank())


def destroys_the_group_in_a_hook(folder: Path) -> None:
    total()
    rank, ended = dist.get_rank(), threading.Event()

    def destroys() -> None:
        dist.destroy_process_group()
        ended.set()

    if rank == 0:
        group: Any = dist.group.WORLD
        group.register_abort_hook(HOOK, destroys)
        del group
    if rank == 0:
        fails()
        assert ended.wait(LIMIT_S)
        assert not dist.is_initialized()
    await_rank_0(folder, rank)


def ask(server: Any, path: str) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/handler/{path}", data=b"")
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.loads(answer.read())


def reports_its_health(folder: Path) -> None:
    server = torch_c._WorkerServer("::", 0)
    total()
    await_completed(1)
    assert ask(server, "c10d_health_check")["healthy"] is True
    records = "fr_trace_json?backend=pccl"  # of the calls that are not completed
    assert "entries" not in ask(server, records)
    if dist.get_rank() == 0:
        fails()
        assert len(ask(server, records)["entries"]) == 1
        health = ask(server, "c10d_health_check")
        assert health["healthy"] is False
        assert health["unhealthy_backends"] == ["pccl"]
    await_rank_0(folder, dist.get_rank())
    server.shutdown()


# --- Smaller groups -------------------------------------------------------------------------------


def check_shrunk(size: int) -> None:
    assert dist.get_world_size() == size
    assert dist.get_backend() == "pccl"
    total()
    ranks: list[Any] = [None] * size
    dist.all_gather_object(ranks, dist.get_rank())
    assert ranks == list(range(size))
    with expected(ValueError, "shrink_group() has made this group", "dist.new_group"):
        pccl.update_topology()
    whole = dist.new_group(list(range(size)), backend="pccl")
    assert pccl.update_topology(whole).world_size == size
    total(whole)
    dist.barrier()


def shrinks_without_a_silent_rank(folder: Path) -> None:
    total()
    if dist.get_rank() == 2:
        await_rank_0(folder, 2)
        return
    dist.shrink_group([2])
    check_shrunk(2)
    await_rank_0(folder, dist.get_rank())
    dist.shrink_group([1] if dist.get_rank() == 0 else [0])
    check_shrunk(1)


def shrinks_without_a_killed_rank(folder: Path, killed: int) -> None:
    total()
    lose(folder, killed)
    with expected(pccl.PcclError):
        total()
    dist.shrink_group([killed])
    check_shrunk(2)


def shrinks_with_an_abort(folder: Path) -> None:
    total()
    if dist.get_rank() == 2:
        await_rank_0(folder, 2)
        return
    work = dist.all_reduce(torch.ones(3), async_op=True)
    dist.shrink_group([2], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    with expected(pccl.PcclError):
        work.wait()
    check_shrunk(2)
    await_rank_0(folder, dist.get_rank())


def shrink_of_an_open_run() -> None:
    if dist.get_rank() == 0:
        with expected(NotImplementedError, "pccl_backend.update_topology()"):
            dist.shrink_group([1])
    dist.barrier()


def other_shrinks_that_are_refused() -> None:
    dist.init_process_group("cpu:pccl,cuda:gloo", **world.current.place())
    if dist.get_rank() == 0:
        backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))
        with expected(NotImplementedError, "use dist.new_group"):
            backend.shrink([1])
        alone: Any = dist.new_group([0, 1], backend="pccl")
        options: Any = dist.ProcessGroupGloo._Options()
        with expected(TypeError, "pccl takes no pg_options"):
            dist.shrink_group([1], group=alone, pg_options=options)
        with expected(ValueError, "excludes rank 0"):
            alone.backend.shrink([0])
    else:
        alone = dist.new_group([0, 1], backend="pccl")
    dist.barrier(group=alone)
    dist.destroy_process_group()


def shrinks_twenty_times() -> None:
    """Twenty groups of three are shrunk to two: all descriptors come back at the end.

    All groups are made before, because torch names a group after the number of earlier ones, and
    shrink_group changes this number on the ranks that call it.
    """
    before = files()
    groups = [dist.new_group([0, 1, 2]) for _ in range(20)]
    for group in groups:
        total(group)
    dist.barrier()
    for group in groups:
        if dist.get_rank() == 2:
            dist.destroy_process_group(group)
            continue
        smaller = dist.shrink_group([2], group=group)
        total(smaller)
        dist.destroy_process_group(smaller)
    dist.barrier()
    assert wait_until(lambda: files() <= before + 8, timeout_s=LIMIT_S), (before, files())
    dist.barrier()


# --- Groups of a default group with a device ------------------------------------------------------


def leaves_a_rank_out() -> None:
    """torch calls a method of the backend on the ranks that a new group leaves out."""
    dist.init_process_group(
        "cpu:pccl,cuda:gloo", device_id=torch.device("cpu", 0), **world.current.place()
    )
    group = dist.new_group([0])
    if dist.get_rank() == 0:
        total(group)
    else:
        assert group == dist.GroupMember.NON_GROUP_MEMBER
    dist.barrier()
    dist.destroy_process_group()
