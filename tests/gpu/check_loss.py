"""Losses with CUDA tensors: a peer is killed before, during and after the others' copies out.

The tensors of the survivors stay as they were, bit by bit; all survivors get the same error; nobody
waits for the GPU; and the pinned memory goes back.

torch counts the bytes of its pinned memory that are in use, but it counts them wrong (2.11): a
block that goes back to its cache lowers neither active_requests nor active_bytes, or raises
active_bytes by one. So the check empties the cache, and counts what torch still has from CUDA.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import ranks
import torch
import torch.distributed as dist
from check import end, expect, report, skip

import pccl_backend as pccl

MIB = 1 << 20
# Without a GPU, nothing holds up the others of a call while its victim dies.
PHASES = ("before", "during", "after") if ranks.DEVICE == "cuda" else ("before", "after")
BUSY_S = 3.0


def pinned_stats() -> dict[str, int]:
    """Return torch's figures of its pinned memory, after it has emptied its cache."""
    if ranks.DEVICE == "cpu":
        return {"allocated_bytes.current": 0}
    torch._C._host_emptyCache()
    stats = torch.cuda.host_memory_stats()
    wanted = ("allocated_bytes", "allocations", "active_bytes", "active_requests", "num_host")
    return {
        name: value
        for name, value in stats.items()
        if name.startswith(wanted) and not name.endswith("peak")
    }


def pinned_bytes() -> int:
    """Return the bytes of pinned memory that somebody has."""
    return pinned_stats()["allocated_bytes.current"]


def pinned_in_a_call(rank: int) -> int:
    """Return the bytes that rank 0 has pinned in a call that waits for the other ranks."""
    tensor, found = values(rank, MIB), 0
    store = dist.distributed_c10d._get_default_store()
    if rank != 0:
        store.wait(["measured"])
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        ranks.synchronize()
        found = pinned_bytes()
        store.set("measured", "yes")
    assert work is not None
    work.wait()
    return found


def values(rank: int, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(count, generator=generator).to(ranks.DEVICE)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lose(rank: int, phase: str) -> dict[str, Any]:
    """The last rank of the group dies; the others return what they have seen."""
    victim = rank == dist.get_world_size() - 1
    tensor = values(rank, 64 * MIB if phase == "after" else 4 * MIB)
    before = tensor.clone()
    ranks.synchronize()
    dist.barrier()
    if victim and phase == "before":
        die()
    if phase == "during":
        ranks.work_for(BUSY_S)
    start = time.monotonic()
    works = [dist.all_reduce(tensor, async_op=True)]
    if victim:
        # The moment of death is the fault itself: in the middle of the ring, or of the GPU's work.
        # The outcome that is checked is the same at each moment.
        time.sleep(0.02 if phase == "after" else 0.2)
        die()
    text = ""
    for work in works:
        assert work is not None
        try:
            work.wait()
        except RuntimeError as error:
            text = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - start
    works.clear()
    del work
    ranks.synchronize()
    return {
        "text": text,
        "seconds": seconds,
        "same": torch.equal(tensor, before) and tensor.device == before.device,
    }


def check(rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {"pinned_before": pinned_bytes()}
    found["pinned_in_a_call"] = pinned_in_a_call(rank)
    for phase in PHASES:
        found[phase] = lose(rank, phase)
        pccl.update_topology()
        again = torch.full((MIB,), 1.0, device=ranks.DEVICE)
        dist.all_reduce(again)
        found[phase]["goes_on"] = bool((again == dist.get_world_size()).all())
    deadline = time.monotonic() + 5
    while pinned_bytes() > found["pinned_before"] and time.monotonic() < deadline:
        time.sleep(0.01)  # torch announces no freed memory: ask again until the deadline
    found["pinned_after"] = pinned_bytes()
    found["pinned_stats"] = pinned_stats()
    return found


def judge_pinned(results: list[dict[str, Any]]) -> None:
    before, after = ([one[f"pinned_{when}"] for one in results] for when in ("before", "after"))
    in_a_call = max(one["pinned_in_a_call"] for one in results)
    report(pinned_before=max(before), pinned_in_a_call=in_a_call, pinned_after=max(after))
    if ranks.DEVICE == "cuda":
        expect(in_a_call >= max(before) + 4 * MIB, "the memory of a call is not in torch's figures")
    left = max(late - early for early, late in zip(before, after, strict=True))
    expect(left <= 0, f"{left} bytes of pinned memory did not come back")


def main() -> None:
    if not ranks.available():
        skip("torch sees no GPU")
    results = [result for result in ranks.run(check, 2 + len(PHASES), limit_s=90) if result]
    expect(len(results) == 2, f"{len(results)} survivors, not 2")
    for phase in PHASES:
        seen = [result[phase] for result in results]
        report(**{f"{phase}_s": round(max(one["seconds"] for one in seen), 2)})
        expect(len({one["text"] for one in seen}) == 1, f"{phase}: not the same error: {seen}")
        expect("PeerLostError" in seen[0]["text"], f"{phase}: {seen[0]['text'] or 'no error'}")
        expect(all(one["same"] for one in seen), f"{phase}: a tensor has changed")
        expect(all(one["goes_on"] for one in seen), f"{phase}: the next sum is wrong")
    slowest = max(result[phase]["seconds"] for result in results for phase in PHASES)
    expect(slowest < BUSY_S - 0.5, f"an error came after {slowest:.1f} s: it waited for the GPU")
    for result in results:
        print("pinned memory:", {name: result[name] for name in result if name not in PHASES})
    judge_pinned(results)
    end()


if __name__ == "__main__":
    main()
