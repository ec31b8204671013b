"""Run by test_cuda.py: tensors that say they are on CUDA devices, and a device that is a fake."""

from __future__ import annotations

import functools
import random
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import work_quantize
from fake_cuda import FakeCuda, FakeOptions
from reference_quantized import all_reduced
from work_misuse import error_of

import pccl_backend as pccl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
import cases

torch.cuda.get_device_capability = lambda *_: (8, 0)  # torch's broadcast asks the driver


def fake(**options: Any) -> Any:
    return FakeCuda(fake_options(**options))


def fake_options(**options: Any) -> Any:
    seed = {"seed": dist.get_rank() + 1 if dist.is_initialized() else 1}
    usual = {
        "fails_one_in": 0,
        "delay_max": 3,
        "pinned_max": 1 << 40,
        "capturing": False,
        "kernels": True,
        "stuck": False,
    }
    return FakeOptions(**{**seed, **usual, **options})


def cuda(tensor: torch.Tensor, index: int = 0) -> torch.Tensor:
    return FakeCuda.tensor(tensor, index=index)


FAKE = cases.Place(put=cuda, fetch=FakeCuda.on_host, computes=False)


def world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def settle(device: Any) -> None:
    """Wait until all pinned memory is back."""
    deadline = time.monotonic() + 10
    while device.pinned_bytes > 0:
        assert time.monotonic() < deadline, f"{device.pinned_bytes} bytes are still pinned"
        time.sleep(0.001)  # the fake device announces nothing; `deadline` bounds the loop


def every_collective(dtypes: list[torch.dtype]) -> int:
    device = fake()
    compared, missing, wrong = cases.compare(
        world(), FAKE, dtypes=dtypes, counts=(0, 1, 1000, 40_000)
    )
    assert not wrong, wrong
    assert not missing
    assert device.copied_in > compared / 2
    settle(device)
    dist.barrier()  # rank 0 hosts the master
    return compared


def quantized(count: int) -> None:
    """Reduce in all formats; the bits agree with numpy's, which knows no device."""
    device = fake()
    rank, size = dist.get_rank(), dist.get_world_size()
    for q in work_quantize.FORMATS:
        for dtype in work_quantize.DTYPES:
            memory = work_quantize.numbers(rank, count, dtype)
            pccl.all_reduce(cuda(memory), op="avg", quantize=q)
            inputs = [work_quantize.numbers(r, count, dtype) for r in range(size)]
            assert torch.equal(memory, all_reduced(inputs, "avg", q)), (q, dtype)
    settle(device)
    dist.barrier()  # rank 0 hosts the master


def mixed_without_tags(count: int) -> int:
    """Calls with CPU and with CUDA tensors take turns, and their copies take random times."""
    device = fake(delay_max=8)
    rank, size = dist.get_rank(), dist.get_world_size()
    chance = random.Random(rank)
    memories, works = [], []
    for index in range(count):
        memories.append(torch.full((1 + index % 7,), float(index + rank)))
        tensor = cuda(memories[-1]) if index % 2 else memories[-1]
        works.append(dist.all_reduce(tensor, async_op=True))
        if len(works) > chance.randrange(64):
            for work in works:
                assert work is not None
                work.wait()
            works.clear()
    for work in works:
        assert work is not None
        work.wait()
    for index, memory in enumerate(memories):
        assert (memory == size * index + size * (size - 1) / 2).all(), index
    settle(device)
    return count


def refusals() -> dict[str, dict[str, Any]]:
    device = fake()
    memory = torch.ones(1000)
    tensor = cuda(memory)
    found = {
        "two devices": error_of(
            lambda: dist.all_gather([tensor, cuda(torch.ones(1000), 1)], tensor)
        ),
        "host and device": error_of(lambda: dist.all_gather_into_tensor(torch.ones(2000), tensor)),
    }
    device.set(fake_options(capturing=True))
    found["capture"] = error_of(lambda: dist.all_reduce(tensor))
    device.set(fake_options(pinned_max=3999))
    found["pinned"] = error_of(lambda: dist.all_reduce(tensor))
    device.set(fake_options())
    assert (memory == 1).all()
    assert device.copied_in == 0
    settle(device)
    dist.all_reduce(tensor)  # no refusal has taken a number
    assert (memory == dist.get_world_size()).all()
    dist.barrier(device_ids=[0])
    return found


def foreign_cuda(backend: str) -> dict[str, Any]:
    """Hand pccl a CUDA tensor of a group that has another backend for CUDA."""
    dist.init_process_group(backend, timeout=timedelta(seconds=20), **place())
    device = fake()
    group = world()
    ours = group._get_backend(torch.device("cpu"))
    group._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.CUSTOM, ours)
    found = error_of(lambda: dist.all_reduce(cuda(torch.ones(3))))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert (tensor == 2).all()
    settle(device)
    dist.destroy_process_group()
    return found


def reconfigured() -> None:
    """Reconfigure to other ranks, and again to fewer while a call of CUDA tensors is under way."""
    limit = timedelta(seconds=20)
    dist.init_process_group("pccl", timeout=limit, enable_reconfigure=True, **place())
    device = fake()
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()

    def meet(uuid: int, ranks: list[int]) -> None:
        store.set(f"handle {uuid} of {rank}", dist._get_reconfigure_handle())
        handles = [store.get(f"handle {uuid} of {one}").decode() for one in ranks]
        dist._reconfigure(uuid, handles, timeout=limit).wait()
        assert dist.get_rank() == ranks.index(rank)
        tensor = cuda(torch.full((1000,), 2.0**rank))
        dist.all_reduce(tensor)
        assert FakeCuda.on_host(tensor).eq(sum(2.0**one for one in ranks)).all()

    meet(1, list(reversed(range(size))))
    if rank < size - 1:  # the last one does not call it
        tensor = cuda(torch.full((100_000,), float(rank)))
        work = dist.all_reduce(tensor, async_op=True)
        meet(2, list(range(size - 1)))
        error = error_of(lambda: work.wait(limit))
        assert error["type"] in ("InvalidStateError", "PeerLostError"), error
        assert FakeCuda.on_host(tensor).eq(float(rank)).all()
    settle(device)
    store.set(f"{rank} is done", "")
    store.wait([f"{one} is done" for one in range(size)], limit)
    dist.destroy_process_group()


def place() -> dict[str, Any]:
    import world as worlds

    job = worlds.current
    return {"init_method": job.init_method, "rank": job.rank, "world_size": job.size}


def failing_copies() -> list[dict[str, Any]]:
    """One rank's device fails: all ranks get the same error, and the group goes on."""
    rank = dist.get_rank()
    device = fake(fails_one_in=1 if rank == 1 else 0)
    found = []
    for seed in range(6):
        device.set(fake_options(seed=seed, fails_one_in=1 if rank == 1 else 0))
        memory = torch.full((1000,), float(rank))
        reduce = functools.partial(pccl.all_reduce, cuda(memory), tag=f"{seed}")
        error = error_of(reduce)
        refused = "takes no copy" in error["text"]
        if refused:  # this rank never called it, so the others wait for it: it calls now
            device.set(fake_options(seed=seed))
            reduce()
        else:
            assert error["type"] == "nothing" or (memory == rank).all()
        found.append(error)
    device.set(fake_options())
    again = torch.ones(10)
    dist.all_reduce(cuda(again))
    assert (again == dist.get_world_size()).all()
    settle(device)
    return found


def outcome_before_the_copy() -> dict[str, Any]:
    """The device is busy without end: a timeout ends the call all the same."""
    device = fake(stuck=True)
    memory = torch.full((1000,), 7.0)
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=0.5)
    found = error_of(lambda: world().allreduce([cuda(memory)], options).wait())
    found["pinned"] = device.pinned_bytes
    dist.barrier()
    plain = torch.ones(3)
    dist.all_reduce(plain)
    assert (plain == dist.get_world_size()).all()
    device.set(fake_options())
    settle(device)
    assert (memory == 7).all()
    assert device.copied_in == 0
    return found


def poller_rests() -> float:
    """Return the share of a core that the poller takes while the device is busy without end."""
    device = fake()
    dist.all_reduce(cuda(torch.ones(1000)))  # now there is a poller
    device.set(fake_options(stuck=True))
    work = dist.all_reduce(cuda(torch.ones(1000)), async_op=True)
    start, used = time.monotonic(), _poller_seconds()
    time.sleep(0.5)  # the measured time, not a wait
    share = (_poller_seconds() - used) / (time.monotonic() - start)
    device.set(fake_options())
    assert work is not None
    work.wait()
    settle(device)
    return share


def _poller_seconds() -> float:
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "pccl-devices":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise AssertionError("there is no poller")


def call_returns_at_once() -> None:
    """The device is busy without end, and the call with async_op returns all the same."""
    device = fake(stuck=True)
    memory = torch.ones(1000)
    work = dist.all_reduce(cuda(memory), async_op=True)
    assert work is not None
    assert not work.is_completed()
    device.set(fake_options())
    work.wait()
    assert (memory == dist.get_world_size()).all()
    settle(device)  # though the Work is still here
    assert [FakeCuda.on_host(one).sum() for one in work.result()] == [2000]
    values = work.get_future().wait()
    assert values[0].device.type == "cuda"


def ends_while_stuck() -> None:
    """The program ends while its device is busy without end."""
    dist.init_process_group("pccl", timeout=timedelta(seconds=20), **place())
    globals()["kept"] = fake(stuck=True)
    dist.all_reduce(cuda(torch.ones(1000)), async_op=True)
