"""The cost of a late rank to operations that it has posted in time.

    tools/stock-network.sh .venv/bin/python benchmarks/laggard.py --world 4

All ranks have called half of the all-reduces. All ranks except rank 0 have called the other half;
rank 0 calls it when the first half is done. The first half alone is measured in turn. Wall time
runs from the common start until the last rank's wait for the first half ends. The ratio should
be 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from options import at_least_one
from processes import Master, ask_together, end, read_line, run_main, wait_for_start

MIB = 1 << 20
GOAL = 1.1


def rank_main(init_method: str) -> None:
    """Join; make one round for each line on stdin (processes.ask_together)."""
    import torch
    import torch.distributed as dist

    import pccl_backend as pccl

    torch.set_num_threads(1)
    dist.init_process_group("pccl", init_method=init_method)
    print("ready", dist.get_rank(), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        tensors = [torch.ones(request["bytes"] // 4) for _ in range(2 * request["count"])]
        in_time, late = tensors[::2], tensors[1::2] if request["late"] else []

        def post(which: list[torch.Tensor], name: str) -> list[dist.Work]:
            return [
                pccl.all_reduce(tensor, tag=f"{name}.{i}", async_op=True)
                for i, tensor in enumerate(which)
            ]

        late_by = wait_for_start()  # a second late rank would distort the measurement
        assert late_by == 0, f"{late_by:.3f} s late: this machine is too busy for a figure"
        start = time.monotonic()
        waiting = post(late, "late") if dist.get_rank() != 0 else []
        for work in post(in_time, "in time"):
            work.wait()
        end = time.monotonic()
        dist.barrier()
        for work in waiting or post(late, "late"):
            work.wait()
        print(json.dumps({"start": start, "end": end}), flush=True)
    dist.destroy_process_group()


def measure(world: int, rounds: int, count: int, size_bytes: int) -> dict[bool, list[float]]:
    """Return seconds of each round, by whether all ranks but one posted the other half too."""
    master = Master()
    init_method = f"pccl://{master.address}/laggard?min_peers={world}"
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank-of", init_method],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(world)
    ]
    seconds: dict[bool, list[float]] = {False: [], True: []}
    try:
        for process in ranks:
            read_line(process)
        for round_number in range(-1, rounds):
            for late, seen in seconds.items():
                request = {"bytes": size_bytes, "count": count, "late": late}
                answers = ask_together(ranks, json.dumps(request))
                results = [json.loads(answer) for answer in answers]
                wall = max(r["end"] for r in results) - min(r["start"] for r in results)
                if round_number >= 0:  # the first round is a warm-up
                    seen.append(wall)
    finally:
        end(ranks, master)
    return seconds


def main() -> None:
    """Print both medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--rounds", type=at_least_one, default=21)
    parser.add_argument("--count", type=at_least_one, default=8, help="of all-reduces in each half")
    parser.add_argument("--mib", type=float, default=16, help="of each")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_main(given.rank_of)
        return
    seconds = measure(given.world, given.rounds, given.count, int(given.mib * MIB) // 4 * 4)
    alone, beside = (statistics.median(seconds[late]) for late in (False, True))
    for name, late in (("alone", False), ("beside those that rank 0 has not called", True)):
        seen = seconds[late]
        print(
            f"{given.count} x {given.mib:g} MiB, world {given.world}, {name}: "
            f"{statistics.median(seen) * 1e3:.1f} ms "
            f"({min(seen) * 1e3:.1f}-{max(seen) * 1e3:.1f})"
        )
    print(f"ratio {beside / alone:.2f} (goal {GOAL})")


if __name__ == "__main__":
    run_main(main)
