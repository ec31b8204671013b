"""The shared state on the GPU: three members hold it, and a newcomer gets it bit for bit."""

from __future__ import annotations

import statistics
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import members
import ranks
import torch
from check import end, expect, report, skip

import pccl_backend as pccl

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = {"1kib": KIB, "64mib": 64 * MIB, "2gib": 2 * GIB}
if ranks.DEVICE == "cpu":  # a dry run
    del SIZES["2gib"]
FOUNDERS = 3
REPEATS = 20
LIMIT_S = 60.0
# Two pieces of 32 MiB, and the workspace of the hash.
PINNED_MAX = 65 * MIB


def values(size: int, seed: int) -> dict[str, torch.Tensor]:
    """Return random tensors; one that is no multiple of 8 bytes has `size` bytes."""
    generator = torch.Generator(device=ranks.DEVICE).manual_seed(seed)
    words = torch.empty(size // 8 + 1, dtype=torch.int64, device=ranks.DEVICE)
    words.random_(-(2**63), None, generator=generator)
    return {
        "large": words.view(torch.uint8)[3 : 3 + size],
        "half": torch.ones(1000, dtype=torch.bfloat16, device=ranks.DEVICE) * seed,
        "none": torch.empty(0, device=ranks.DEVICE),
    }


def timed_sync(state: pccl.SharedState, group: Any) -> tuple[pccl.state_sync.SyncInfo, float]:
    ranks.synchronize()
    start = time.perf_counter()
    info = pccl.sync_shared_state(state, group=group)
    return info, time.perf_counter() - start


def founder(answers: Connection, url: str, size: int, number: int, begun: Event) -> None:
    tensors = values(size, 1)
    if number == 0:  # its hashes are the CPU's: if the others' differ, something is fetched
        tensors = {key: tensor.cpu() for key, tensor in tensors.items()}
    group = pccl.join(url, min_peers=FOUNDERS)
    state = pccl.SharedState(tensors, revision=7)
    times, fetched = [], 0
    for _ in range(REPEATS):
        info, seconds = timed_sync(state, group)
        times.append(seconds)
        fetched += info.rx_bytes
    begun.set()
    deadline = time.monotonic() + LIMIT_S
    while group.size() == FOUNDERS:
        assert time.monotonic() < deadline, "the newcomer does not come"
        pccl.update_topology(group)
    info, _ = timed_sync(state, group)
    answers.send(("done", {"hash": info.hash, "fetched": fetched, "times": times}))


def newcomer(answers: Connection, url: str, size: int, begun: Event) -> None:
    tensors = values(size, 2)
    assert begun.wait(LIMIT_S)
    group = pccl.join(url, min_peers=FOUNDERS)
    state = pccl.SharedState(tensors, revision=0)
    info, seconds = timed_sync(state, group)
    expected = values(size, 1)
    same = all(torch.equal(tensors[key], expected[key]) for key in tensors)
    pinned = 0
    if ranks.DEVICE == "cuda":
        pinned = torch.cuda.host_memory_stats()["allocated_bytes.peak"]
    found = {"hash": info.hash, "same": same, "seconds": seconds, "pinned": pinned}
    answers.send(("done", {**found, "revision": state.revision, "rx_bytes": info.rx_bytes}))


def check(url: str, name: str, size: int) -> None:
    begun = members.context.Event()
    started = [
        members.Member(founder, f"{url}/{name}", size, number, begun) for number in range(FOUNDERS)
    ]
    started.append(members.Member(newcomer, f"{url}/{name}", size, begun))
    found = [member.receive(LIMIT_S)[1] for member in started]
    for member in started:
        member.kill()
    *old, new = found
    expect(all(one["fetched"] == 0 for one in old), f"{name}: the GPU's hash is not the CPU's")
    expect(len({one["hash"] for one in found}) == 1, f"{name}: the hashes differ")
    expect(new["same"], f"{name}: the newcomer has other bits")
    expect(new["revision"] == 7, f"{name}: revision {new['revision']}")
    expect(new["rx_bytes"] == size + 2000, f"{name}: {new['rx_bytes']} bytes were fetched")
    expect(new["pinned"] <= PINNED_MAX, f"{name}: {new['pinned']} bytes of pinned memory")
    # Rank 0 hashes on the CPU, and the others wait for it.
    report(
        **{
            f"equal_{name}_ms": round(1e3 * statistics.median(old[1]["times"]), 3),
            f"fetch_{name}_s": round(new["seconds"], 4),
            f"pinned_{name}_mib": round(new["pinned"] / MIB, 1),
        }
    )


def hash_only(answers: Connection, url: str, size: int) -> None:
    """Measure a call of one member alone: a hash, and two messages."""
    group = pccl.join(url, min_peers=1)
    state = pccl.SharedState(values(size, 1), revision=0)
    times = [timed_sync(state, group)[1] for _ in range(REPEATS)]
    answers.send(("done", statistics.median(times)))


def main() -> None:
    if not ranks.available():
        skip("torch sees no GPU")
    with members.master() as url:
        for name, size in SIZES.items():
            check(url, name, size)
            alone = members.Member(hash_only, f"{url}/alone-{name}", size)
            report(**{f"hash_{name}_ms": round(1e3 * alone.receive(LIMIT_S)[1], 3)})
            alone.kill()
    end()


if __name__ == "__main__":
    main()
