"""CUDA against CPU tensors, over loopback, and what the difference is made of."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import ranks
import torch
import torch.distributed as dist
from check import end, expect, report, skip

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = {"4k": 4 * KIB, "64k": 64 * KIB, "1m": MIB, "16m": 16 * MIB, "256m": 256 * MIB, "1g": GIB}
JUDGED = "256m"


def seconds(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        ranks.synchronize()
        dist.barrier()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def copies(size: int) -> tuple[float, float]:
    """Return the seconds of one copy to the host and of one back, alone on the bus."""
    device = torch.empty(size, dtype=torch.uint8, device=ranks.DEVICE)
    host = torch.empty(size, dtype=torch.uint8, pin_memory=ranks.DEVICE == "cuda")
    out, back = [], []
    for _ in range(5):
        for times, target, source in ((out, host, device), (back, device, host)):
            ranks.synchronize()
            start = time.perf_counter()
            target.copy_(source, non_blocking=True)
            ranks.synchronize()
            times.append(time.perf_counter() - start)
    return min(out), min(back)


def pinned_allocation(size: int) -> tuple[float, float]:
    """Return the seconds of the first allocation of a size, and of the next one."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        kept = torch.empty(size, dtype=torch.uint8, pin_memory=ranks.DEVICE == "cuda")
        times.append(time.perf_counter() - start)
        del kept
    return times[0], times[1]


def check(rank: int) -> dict[str, float]:
    found: dict[str, float] = {}
    if rank == 0:
        for name in ("1m", "256m"):
            first, second = pinned_allocation(SIZES[name] + 1)
            found[f"pin_{name}_first_ms"] = 1e3 * first
            found[f"pin_{name}_again_ms"] = 1e3 * second
        out, back = copies(SIZES[JUDGED])
        found["out_s"], found["back_s"] = out, back
        found["out_gb_s"] = SIZES[JUDGED] / out / 1e9
        found["back_gb_s"] = SIZES[JUDGED] / back / 1e9
    dist.barrier()
    for name, size in SIZES.items():
        repeats = 200 if size <= MIB else 7 if size < GIB else 3
        for device in ("cpu", ranks.DEVICE):
            tensor = torch.ones(size // 4, device=device)
            dist.all_reduce(tensor)  # the first call pins its memory
            took = seconds(lambda given=tensor: dist.all_reduce(given), repeats)
            found[f"{device}_{name}_ms"] = 1e3 * took
            del tensor
    return found


def main() -> None:
    if not ranks.available():
        skip("torch sees no GPU")
    found = ranks.run(check, 2, limit_s=90)[0]
    both = found.pop("out_s") + found.pop("back_s")
    added = (found[f"{ranks.DEVICE}_{JUDGED}_ms"] - found[f"cpu_{JUDGED}_ms"]) / 1e3
    report(**{name: float(f"{value:.4g}") for name, value in found.items()})
    small = (found[f"{ranks.DEVICE}_4k_ms"] - found["cpu_4k_ms"]) * 1e3
    report(added_4k_us=round(small, 1), added_per_both_copies=round(added / both, 2))
    # Both ranks copy at the same time over one bus, in each direction, so each has half of it.
    expect(added <= 1.2 * 2 * both, f"{added:.4f} s more than on the CPU; copies take {both:.4f} s")
    end()


if __name__ == "__main__":
    main()
