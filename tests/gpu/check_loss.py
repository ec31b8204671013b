"""Losses with CUDA tensors: a peer is killed before, during and after the others' copies out.

The tensors of the survivors stay as they were, bit by bit; all survivors get the same error; nobody
waits for the GPU; and the pinned memory goes back.
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
PHASES = ("before", "during", "after")
BUSY_S = 3.0


def pinned_bytes() -> int:
    """Return the bytes of torch's pinned memory that somebody has."""
    stats = getattr(torch.cuda, "host_memory_stats", dict)()
    return int(stats.get("active_bytes.current", stats.get("allocated_bytes.current", 0)))


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
    found: dict[str, Any] = {}
    warm = values(rank, MIB)
    dist.all_reduce(warm)
    level = pinned_bytes()
    for phase in PHASES:
        found[phase] = lose(rank, phase)
        pccl.update_topology()
        again = torch.full((MIB,), 1.0, device=ranks.DEVICE)
        dist.all_reduce(again)
        found[phase]["goes_on"] = bool((again == dist.get_world_size()).all())
    deadline = time.monotonic() + 5
    while pinned_bytes() > level and time.monotonic() < deadline:
        time.sleep(0.01)
    found["pinned_left"] = pinned_bytes() - level
    return found


def main() -> None:
    if not ranks.available():
        skip("torch sees no GPU")
    results = [result for result in ranks.run(check, 2 + len(PHASES), limit_s=110) if result]
    expect(len(results) == 2, f"{len(results)} survivors, not 2")
    for phase in PHASES:
        seen = [result[phase] for result in results]
        report(**{f"{phase}_s": round(max(one["seconds"] for one in seen), 2)})
        expect(len({one["text"] for one in seen}) == 1, f"{phase}: not the same error: {seen}")
        expect("PeerLostError" in seen[0]["text"], f"{phase}: {seen[0]['text'] or 'no error'}")
        expect(all(one["same"] for one in seen), f"{phase}: a tensor has changed")
        expect(all(one["goes_on"] for one in seen), f"{phase}: the next sum is wrong")
    slowest = max(result["during"]["seconds"] for result in results)
    expect(slowest < BUSY_S - 0.5, f"the error came after {slowest:.1f} s: it waited for the GPU")
    left = max(result["pinned_left"] for result in results)
    report(pinned_left=left)
    expect(left <= 0, f"{left} bytes of pinned memory did not come back")
    end()


if __name__ == "__main__":
    main()
