"""Run by test_cuda_state.py: shared state on CUDA devices, with a device that is a fake."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from fake_cuda import FakeCuda
from work_cuda import cuda, fake, fake_options, place
from work_membership import make_state
from work_misuse import error_of

import pccl_backend as pccl

MIB = 1 << 20
PINNED_MAX = 64 * MIB  # two pieces of 32 MiB


class Placed:
    """A shared state with tensors on devices: `devices` gives the index of each, or None."""

    def __init__(
        self,
        tensors: dict[str, torch.Tensor],
        devices: list[int | None],
        *,
        revision: int = 0,
    ) -> None:
        self.memory = tensors
        placed = {
            key: tensor if index is None else cuda(tensor, index)
            for (key, tensor), index in zip(tensors.items(), devices, strict=True)
        }
        self.state = pccl.SharedState(placed, revision=revision)

    def holds(self, tensors: dict[str, torch.Tensor]) -> bool:
        return all(self.memory[key].equal(tensors[key]) for key in tensors)


PLACES: list[list[int | None]] = [[None] * 6, [0, None, 1, 0, 1, None], [0] * 6]


def content(seed: int) -> dict[str, torch.Tensor]:
    return dict(make_state(seed, 0))


def matches_the_cpu(kernels: bool) -> dict[str, Any]:
    """Rank 0 has its tensors on the CPU, rank 1 on the CPU and two devices, rank 2 on a device."""
    device = fake(kernels=kernels)
    rank = dist.get_rank()
    equal = Placed(content(1), PLACES[rank])
    info = pccl.sync_shared_state(equal.state)
    assert (info.tx_bytes, info.rx_bytes) == (0, 0)  # so all hashes equal the CPU's
    hashed = device.bytes_out

    # One tensor of one rank differs.
    values = content(2)
    if rank == 1:
        values["weight"] += 1
    one = Placed(values, PLACES[rank], revision=1)
    info = pccl.sync_shared_state(one.state)
    assert one.holds(content(2))
    weight = values["weight"].nbytes
    assert info.rx_bytes == (weight if rank == 1 else 0)
    fetched = device.bytes_out - hashed - (0 if kernels else hashed)
    assert fetched == (weight if rank == 2 and info.tx_bytes else 0)

    # All tensors of all ranks differ; each rank is the source in turn.
    for source in range(3):
        every = Placed(content(10 + rank), PLACES[rank], revision=2 + source)
        strategy = "send_only" if rank == source else "receive_only"
        info = pccl.sync_shared_state(every.state, strategy=strategy)
        assert every.holds(content(10 + source))
        assert (info.rx_bytes > 0) == (rank != source)
    assert device.pinned_bytes == 0
    return {"hashed": hashed, "hash": info.hash}


def bounded(kernels: bool) -> int:
    """The state is larger than the pinned memory."""
    device = fake(kernels=kernels, pinned_max=PINNED_MAX, delay_max=2)
    rank = dist.get_rank()

    def values(seed: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        sizes = {"a": 3, "large": 70 * MIB + 5, "none": 0, "z": 100_001}
        return {
            key: torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
            for key, size in sizes.items()
        }

    placed = Placed(values(rank), [0] * 4)
    info = pccl.sync_shared_state(placed.state)
    assert placed.holds(values(0))
    assert info.rx_bytes == (0 if rank == 0 else 70 * MIB + 5 + 3 + 100_001)
    assert device.pinned_bytes == 0
    return device.pinned_bytes_max


def failures(seeds: int) -> list[dict[str, Any]]:
    """Rank 1 has a device that fails, and it fetches the state or sends it, in turn."""
    rank = dist.get_rank()
    device = fake()
    found = []
    agreed = 0
    pccl.sync_shared_state(Placed(content(0), [0] * 6).state)
    for seed in range(seeds):
        device.set(fake_options(seed=seed, fails_one_in=3 if rank == 1 else 0))
        fresh = (rank == 1) == (seed % 2 == 0)  # this rank has gone on
        revision = agreed + 1 if fresh else agreed
        before = content(revision)
        placed = Placed(content(revision), [0, 0, None, 0, 0, None], revision=revision)
        error = error_of(lambda given=placed: pccl.sync_shared_state(given.state))
        after = content(agreed + 1)
        error["before"], error["after"] = placed.holds(before), placed.holds(after)
        found.append(error)
        device.set(fake_options())
        outcomes: list[Any] = [None] * 3
        dist.all_gather_object(outcomes, error["type"])
        if outcomes[0] == "nothing":
            agreed += 1
    assert device.pinned_bytes == 0
    return found


def no_other_state() -> dict[str, Any]:
    """The device of the only peer that may send fails."""
    rank = dist.get_rank()
    device = fake(fails_one_in=1 if rank == 1 else 0)
    placed = Placed(content(rank), [0] * 6)
    strategy = "send_only" if rank == 1 else "receive_only"
    found = error_of(lambda: pccl.sync_shared_state(placed.state, strategy=strategy))
    device.set(fake_options())
    pccl.sync_shared_state(placed.state, strategy=strategy)
    assert placed.holds(content(1))
    return found


def stuck() -> dict[str, Any]:
    """Rank 1 has a device that is busy without end."""
    dist.init_process_group("pccl", timeout=timedelta(seconds=3), **place())
    rank = dist.get_rank()
    device = fake(stuck=rank == 1)
    placed = Placed(content(rank), [0] * 6)
    found = error_of(lambda: pccl.sync_shared_state(placed.state))
    assert placed.holds(content(rank))
    device.set(fake_options())
    pccl.sync_shared_state(placed.state)
    assert placed.holds(content(0))
    dist.destroy_process_group()
    return found


class StoppedError(Exception):
    """The exception of the signal handler."""


def interrupted() -> dict[str, Any]:
    """A signal interrupts rank 1 while it waits for its device."""
    rank = dist.get_rank()
    device = fake(stuck=rank == 1)
    placed = Placed(content(rank), [0] * 6)

    def stop(*_: object) -> None:
        raise StoppedError

    if rank == 1:
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
    found = error_of(lambda: pccl.sync_shared_state(placed.state))
    device.set(fake_options())
    pccl.sync_shared_state(placed.state)
    assert placed.holds(content(0))
    return found


def refusals() -> dict[str, dict[str, Any]]:
    device = fake(capturing=True)
    state = pccl.SharedState({"weights": cuda(torch.ones(3))})
    found = {"capture": error_of(lambda: pccl.sync_shared_state(state))}
    device.set(fake_options(pinned_max=10, kernels=False))
    found["no pinned memory"] = error_of(lambda: pccl.sync_shared_state(state))
    device.set(fake_options(pinned_max=100, kernels=False))
    found["pinned"] = error_of(lambda: pccl.sync_shared_state(state))  # nothing was agreed on yet
    device.set(fake_options())
    strided = cuda(torch.ones(3, 4).t())
    found["strided"] = error_of(lambda: pccl.SharedState({"weights": strided}))
    meta = torch.ones(3, device="meta")
    found["meta"] = error_of(lambda: pccl.SharedState({"weights": meta}))
    assert FakeCuda.on_host(state["weights"]).sum() == 3
    return found
