"""Run by test_work.py and test_lifecycle.py: behaviour that users take for granted."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import world
from torch.distributed import distributed_c10d
from torch.utils.data import DataLoader, Dataset
from world import expected

import pccl_backend as pccl
from pccl_backend import _register

# --- Work and Future ------------------------------------------------------------------------------


def futures() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = float(sum(range(size)))
    tensor = torch.full((4,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    (result,) = work.get_future().wait()
    assert result is tensor or result.equal(tensor)
    assert (tensor == total).all()
    assert work.is_completed()
    assert work.get_future().done(), "a Future asked for late is done at once"

    # Callbacks may wait for further collectives, as some of DDP's hooks do.
    def then_another(_: Any) -> torch.Tensor:
        again = torch.full((4,), float(rank))
        dist.all_reduce(again)
        return again

    works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(8)]
    # One after the other, because ranks must call in the same order.
    for work in works:
        assert (work.get_future().then(then_another).wait() == total).all()


def failed_futures() -> None:
    work = pccl.all_reduce(torch.ones(1 + dist.get_rank()), tag="mismatch", async_op=True)
    with expected(pccl.CollectiveMismatchError):
        work.get_future().wait()
    assert work.is_completed()


def tensors_live_as_long_as_needed() -> None:
    """A dropped Work does not take its tensor away, and a finished Work does not keep it alive."""
    for _ in range(20):
        dist.all_reduce(torch.ones(1 << 18), async_op=True)
    dist.barrier()
    kept = torch.ones(1000)
    storage = kept.data_ptr()
    work = dist.all_reduce(kept, async_op=True)
    work.wait()
    assert kept.data_ptr() == storage
    watch = weakref.ref(kept)
    del work, kept
    gc.collect()
    assert watch() is None, "a finished operation still holds its tensor"


def _calls_when_rank_0_waited_no_more() -> None:
    """Be the other rank of the tests below: call only after rank 0 has stopped waiting.

    A rank 0 that waited on would wait until the timeout of the group, and have its error.
    """
    distributed_c10d._get_default_store().wait(["waits no more"])
    dist.all_reduce(torch.ones(10))


def tensors_that_are_pointed_elsewhere() -> None:
    """An operation keeps its memory, and never writes to memory that is allocated later."""
    if dist.get_rank() == 1:
        distributed_c10d._get_default_store().wait(["waits no more"])
    plain, strided = torch.ones(25_000), torch.ones(25_000, 2)[:, 0]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in (plain, strided)]
    results = [plain, strided]
    if dist.get_rank() == 0:
        plain.data = torch.zeros(3)
        strided.set_(torch.zeros(3))  # type: ignore[call-overload]
        others = [torch.zeros(25_000 * size) for size in (1, 2, 1, 2)]
        distributed_c10d._get_default_store().set("waits no more", "")
        results = [*others, torch.zeros(1)]
    for work in works:
        work.wait()
    expected_value = 0 if dist.get_rank() == 0 else 2
    assert all((tensor == expected_value).all() for tensor in results)


def waits_for_a_while() -> None:
    """wait(timeout) ends the waiting, not the operation."""
    if dist.get_rank() == 1:
        return _calls_when_rank_0_waited_no_more()
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    start = time.monotonic()
    with expected(pccl.OperationTimeoutError, "goes on"):
        work.wait(timedelta(seconds=0.2))
    assert time.monotonic() - start > 0.19
    assert not work.is_completed()
    distributed_c10d._get_default_store().set("waits no more", "")
    work.wait()
    assert (tensor == 2).all()
    return None


def times_out() -> str:
    """The group's timeout ends an operation on all ranks, and its error names the missing rank."""
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(2.5)  # longer than the group's timeout
    tensor = torch.ones(5)
    with expected(pccl.OperationTimeoutError) as raised:
        dist.all_reduce(tensor)
    assert (tensor == 1).all()
    return str(raised[0])


def is_interrupted() -> None:
    """Ctrl-C ends wait() at once; the operation continues."""
    if dist.get_rank() == 1:
        return _calls_when_rank_0_waited_no_more()
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with expected(KeyboardInterrupt):
        work.wait()
    assert not work.is_completed()
    distributed_c10d._get_default_store().set("waits no more", "")
    work.wait()
    assert (tensor == 2).all()
    return None


# --- Init, destroy, fork --------------------------------------------------------------------------


def init_again_and_again() -> None:
    for round_number in range(3):
        world.current.init()
        rank, size = dist.get_rank(), dist.get_world_size()
        assert (rank, size) == (world.current.rank, world.current.size)
        tensor = torch.full((10,), float(rank + round_number))
        dist.all_reduce(tensor)
        assert (tensor == sum(r + round_number for r in range(size))).all()
        dist.destroy_process_group()
        with expected(ValueError):  # torch's own error: there is no default group
            dist.all_reduce(tensor)


def groups_within() -> None:
    """new_group: each pair of ranks has a group with its own master."""
    rank, size = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([low, low + 1]) for low in range(0, size, 2)]
    mine = pairs[rank // 2]
    assert mine.size() == 2
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor, group=mine)
    assert (tensor == 2 * (rank // 2) * 2 + 1).all()
    everybody = dist.new_group(list(range(size)))
    dist.barrier(everybody)
    dist.destroy_process_group(everybody)
    dist.barrier()


class Squares(Dataset[Any]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index**2)


def loads_data_with_forks() -> None:
    """DataLoader workers inherit the group, leave it alone, and end."""
    loader = DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        seen = 0
        for batch in loader:
            dist.all_reduce(batch)
            seen += len(batch)
        assert seen == 32
    dist.barrier()


def forked_child_is_told() -> list[str]:
    """In a forked child every use raises a clear error, and leaving does not affect the parent."""
    work = dist.all_reduce(torch.ones(3), async_op=True)
    dist.barrier()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        calls = [dist.barrier, pccl.update_topology, pccl.run_info, work.wait]
        for call in calls:
            with expected(pccl.InvalidStateError) as raised:
                call()
            said.append(str(raised[0]))
        dist.destroy_process_group()
        gc.collect()
        os.write(writer, "\n".join(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read().split("\n")
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()
    work.wait()
    return said


# --- Ends of programs -----------------------------------------------------------------------------


def program(end: str) -> None:
    """Run a program that never calls destroy_process_group."""
    world.current.init()
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    assert (tensor == dist.get_world_size()).all()
    _ENDS[end]()
    print("end of", end, flush=True)


def _leaves_much_behind() -> None:
    """Leave callbacks that are still running, and operations that the other rank never calls."""
    futures = [dist.all_reduce(torch.ones(9), async_op=True).get_future() for _ in range(5)]
    for future in futures:
        future.then(lambda _: time.sleep(0.05))
    for _ in range(dist.get_rank()):
        dist.all_reduce(torch.ones(1000), async_op=True)


def _waits_in_a_thread() -> None:
    threading.Thread(target=dist.barrier).start()


def _raises() -> None:
    raise RuntimeError("my own")


def _exits() -> None:
    sys.exit(3)


_ENDS: dict[str, Callable[[], None]] = {
    "much behind": _leaves_much_behind,
    "a waiting thread": _waits_in_a_thread,
    "an error": _raises,
    "sys.exit": _exits,
}


# --- Starts ---------------------------------------------------------------------------------------


def takes_environment(variables: dict[str, str]) -> int:
    """Call only `init_process_group("pccl")`, as a script under torchrun does."""
    os.environ.update(variables, RANK=str(world.current.rank))
    dist.init_process_group("pccl")
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    size = dist.get_world_size()
    assert (tensor == size).all()
    dist.barrier()
    dist.destroy_process_group()
    return size


def outlives_others(variables: dict[str, str]) -> list[int]:
    """All ranks except rank 0, which hosts the master, die one after the other."""
    os.environ.update(variables, RANK=str(world.current.rank))
    dist.init_process_group("pccl")
    rank = dist.get_rank()
    sizes = [dist.get_world_size()]
    while True:
        try:
            dist.all_reduce(torch.ones(3))
        except pccl.PeerLostError:
            if pccl.update_topology().world_size == 1:
                break
        else:
            if rank == dist.get_world_size() - 1:
                os._exit(7)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert (tensor == 1).all()
    sizes.append(dist.get_world_size())
    dist.destroy_process_group()
    return sizes


def dies_in_environment(variables: dict[str, str]) -> None:
    """Run a first attempt, which leaves entries in the agent's store."""
    os.environ.update(variables, RANK=str(world.current.rank))
    dist.init_process_group("pccl")
    dist.barrier()
    if dist.get_rank() == 0:  # it hosts the master, and ends after the other rank
        with expected(pccl.PeerLostError):
            dist.all_reduce(torch.ones(1))
    os._exit(7)


def meets_another_torch() -> str:
    torch.__version__ = "2.99.1+cpu"
    try:
        pccl.join("pccl://nowhere/r")
    except ImportError as error:
        return str(error)
    raise AssertionError("a module built for this torch was used with another")


def cannot_register() -> list[str]:
    """torch's `register_backend` fails: return the messages of a plain `import torch`."""

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk on fire")

    dist.Backend.register_backend = broken  # type: ignore[assignment]
    _register._registered = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _register.register()
    return [str(warning.message) for warning in caught]


# --- Groups beside others -------------------------------------------------------------------------


def beside_gloo(url: str) -> None:
    """Use pccl between hosts, with another backend as the default group."""
    dist.init_process_group(
        "gloo", init_method=world.current.init_method, rank=world.current.rank, world_size=2
    )
    group = pccl.join(url, min_peers=2)
    rank = group.rank()
    assert group.size() == dist.get_world_size(group) == 2
    assert dist.get_backend(group) == "pccl"
    tensor = torch.full((4,), float(rank + 1))
    dist.all_reduce(tensor, group=group)
    assert (tensor == 3).all()
    dist.broadcast(tensor, group_src=1, group=group)
    dist.barrier(group)
    assert pccl.run_info(group).world_size == 2
    other = torch.ones(2)
    dist.all_reduce(other)  # the default group still works
    assert (other == 2).all()
    dist.destroy_process_group(group)
    dist.barrier()
    dist.destroy_process_group()


def without_default(url: str) -> None:
    group = pccl.join(url, min_peers=2)
    rank = group.rank()
    tensor = torch.full((4,), float(rank + 1))
    dist.all_reduce(tensor, group=group)
    assert (tensor == 3).all()
    dist.broadcast(tensor, src=1, group=group)
    gathered: list[Any] = [None, None]
    dist.all_gather_object(gathered, rank, group=group)
    assert gathered == [0, 1]
    assert not pccl.are_peers_pending(group)
    assert pccl.update_topology(group).world_size == 2
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3), process_group=group)
    model(torch.ones(2, 3)).sum().backward()
    dist.destroy_process_group(group)
