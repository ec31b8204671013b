"""Every collective on loopback: pccl and Gloo, side by side in one run.

    tools/stock-network.sh .venv/bin/python benchmarks/collectives.py
    tools/stock-network.sh .venv/bin/python benchmarks/collectives.py --calls gather --bytes 1024

Each rank has three groups in one process: of Gloo, of pccl, and of pccl with PCCL_RESTORE=off. A
round times calls of each in turn, from a barrier until the last rank is done. The ratio of a row is
the ratio of the medians. CPU is the sum of all ranks (and of pccl's master, which is in rank 0),
for one call. Peak is the most memory of a rank that a call of 16 MiB adds, beyond its tensors.

Two columns say how a call spends its time. `restoring` is the share that PCCL_RESTORE=off saves.
`committing` is the share that passes after the rank that was done last has all its data, until it
knows that the call has succeeded (`commit_seconds` of run_info; for send/recv, at the sender).

A size is the size of one rank's tensor, or of the whole tensor that is cut into parts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import records
from options import add_worlds, at_least_one
from processes import run_main

MIB = 1 << 20
SMALL_LOOPS, LARGE_LOOPS = 100, 3
# Goals of the wall time in multiples of Gloo's, for 1 KiB and for 16 MiB: calls with data from all
# ranks to all, and calls that are one hop in Gloo, and a hop and a commit in pccl.
TO_ALL, ONE_HOP = (0.5, 1.0), (2.0, 1.15)
GOALS = {
    "all_reduce": TO_ALL,
    "all_gather": TO_ALL,
    "reduce_scatter": TO_ALL,
    "all_to_all": TO_ALL,
    "barrier": TO_ALL,
    "broadcast": ONE_HOP,
    "reduce": ONE_HOP,
    "gather": ONE_HOP,
    "scatter": ONE_HOP,
    "send/recv": ONE_HOP,
}


@dataclass(kw_only=True)
class Row:
    """One collective, size and world: a figure of each round, for one call."""

    call: str
    bytes: int
    world: int
    pccl_s: list[float]
    unsaved_s: list[float]  # with PCCL_RESTORE=off
    gloo_s: list[float]
    pccl_cpu_s: list[float]
    gloo_cpu_s: list[float]
    commit_s: float  # median
    pccl_peak_mib: float
    gloo_peak_mib: float


def calls_of(torch: Any, dist: Any, count: int) -> dict[str, Callable[[Any], object]]:
    """Return the calls. Each takes its group and reuses its tensors."""
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor, part = torch.ones(count), torch.ones(count // world)
    everything = torch.ones(count * world)
    parts, blocks = list(torch.ones(count).chunk(world)), list(everything.chunk(world))
    other = torch.ones(count)

    def send_recv(group: Any) -> None:
        if rank % 2 == 0:
            dist.send(tensor, group_dst=rank + 1, group=group)
        else:
            dist.recv(tensor, group_src=rank - 1, group=group)

    def gather(group: Any) -> None:
        dist.gather(tensor, blocks if rank == 0 else None, 0, group=group)

    def scatter(group: Any) -> None:
        dist.scatter(part, parts if rank == 0 else None, 0, group=group)

    return {
        "all_reduce": lambda group: dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group),
        "all_gather": lambda group: dist.all_gather_into_tensor(everything, tensor, group=group),
        "reduce_scatter": lambda group: dist.reduce_scatter_tensor(part, tensor, group=group),
        "all_to_all": lambda group: dist.all_to_all_single(other, tensor, group=group),
        "barrier": lambda group: dist.barrier(group=group),
        "broadcast": lambda group: dist.broadcast(tensor, 0, group=group),
        "reduce": lambda group: dist.reduce(tensor, 0, dist.ReduceOp.MAX, group=group),
        "gather": gather,
        "scatter": scatter,
        "send/recv": send_recv,
    }


def peak_of(call: Callable[[Any], object], group: Any) -> float:
    """Return the peak of this process during a call, beyond its memory before it, in MiB."""
    from memory import status_mib

    before = status_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak: man 5 proc
    call(group)
    return status_mib("VmHWM") - before


def commit_of(group: Any, calls: int) -> float:
    """Return the median time of the latest calls from this rank's last byte to the verdict."""
    import names

    history = names.run_info(group).history[-calls:]
    return statistics.median(past.commit_seconds for past in history)


def rank_main(given: argparse.Namespace) -> None:
    """Measure as one rank. Rank 0 prints one line of JSON for each row."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank, world = given.rank, given.world
    dist.init_process_group(
        "gloo", init_method=f"file://{given.store}", rank=rank, world_size=world
    )
    groups = {"pccl": dist.new_group(backend="pccl")}
    os.environ["PCCL_RESTORE"] = "off"
    groups |= {"unsaved": dist.new_group(backend="pccl"), "gloo": dist.group.WORLD}
    for size in given.bytes:
        loops = SMALL_LOOPS if size < MIB else LARGE_LOOPS
        for name, call in calls_of(torch, dist, size // 4).items():
            if name not in given.calls or (name == "barrier" and size != given.bytes[0]):
                continue
            walls, cpus = ({who: [] for who in groups} for _ in range(2))
            peaks = {who: peak_of(call, group) for who, group in groups.items()}
            for _ in range(given.rounds):
                for who, group in groups.items():
                    dist.barrier()
                    wall, cpu = time.perf_counter(), time.process_time()
                    for _ in range(loops):
                        call(group)
                    took = [time.perf_counter() - wall, time.process_time() - cpu]
                    measured = torch.tensor(took, dtype=torch.float64) / loops
                    slowest, total = measured[:1].clone(), measured[1:].clone()
                    dist.all_reduce(slowest, dist.ReduceOp.MAX)
                    dist.all_reduce(total)
                    walls[who].append(slowest.item())
                    cpus[who].append(total.item())
            most = torch.tensor([peaks["pccl"], peaks["gloo"]])
            dist.all_reduce(most, dist.ReduceOp.MAX)
            receives = name == "send/recv" and rank % 2 == 1  # its call ends with the last byte
            commit = torch.tensor(math.inf if receives else commit_of(groups["pccl"], loops))
            dist.all_reduce(commit, dist.ReduceOp.MIN)
            if rank == 0:
                row = Row(
                    call=name,
                    bytes=size,
                    world=world,
                    pccl_s=walls["pccl"],
                    unsaved_s=walls["unsaved"],
                    gloo_s=walls["gloo"],
                    pccl_cpu_s=cpus["pccl"],
                    gloo_cpu_s=cpus["gloo"],
                    commit_s=commit.item(),
                    pccl_peak_mib=float(most[0]),
                    gloo_peak_mib=float(most[1]),
                )
                print(json.dumps(row.__dict__), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def measure(given: argparse.Namespace, world: int) -> list[Row]:
    """Run the ranks of one world, and print and return its rows."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [
                    sys.executable,
                    __file__,
                    *("--rank", str(rank), "--world", str(world)),
                    *("--store", str(Path(folder) / "store"), "--rounds", str(given.rounds)),
                    *("--bytes", *map(str, given.bytes), "--calls", *given.calls),
                ],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PCCL_RESTORE": "on"},
            )
            for rank in range(world)
        ]
        rows = []
        try:
            assert ranks[0].stdout is not None
            for text in ranks[0].stdout:
                rows.append(Row(**json.loads(text)))
                print(line(rows[-1]), flush=True)
            if any(process.wait() != 0 for process in ranks):
                raise SystemExit("a rank process failed: see its error above")
        finally:
            for process in ranks:
                process.kill()
    return rows


HEAD = (
    "| call | bytes | world | pccl (min-max) | Gloo | wall ÷ Gloo | goal | CPU ÷ Gloo "
    "| restore off: ÷ Gloo | restoring | committing | peak, MiB | Gloo's |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    small = row.bytes < MIB
    goal = GOALS[row.call][0 if small else 1]
    size = f"{row.bytes // 1024} KiB" if small else f"{row.bytes // MIB} MiB"
    peaks = "| |" if small else f"{row.pccl_peak_mib:.0f} | {row.gloo_peak_mib:.0f} |"
    wall, unsaved, gloo, cpu, gloo_cpu = map(
        statistics.median,
        (row.pccl_s, row.unsaved_s, row.gloo_s, row.pccl_cpu_s, row.gloo_cpu_s),
    )
    shares = f"{max(0.0, 1 - unsaved / wall):.0%} | {row.commit_s / wall:.0%}"
    return (
        f"| {row.call} | {size if row.call != 'barrier' else ''} | {row.world} "
        f"| {records.spread(row.pccl_s)} | {records.spread(row.gloo_s)} "
        f"| {wall / gloo:.2f} | {goal} | {cpu / gloo_cpu:.2f} "
        f"| {unsaved / gloo:.2f} | {shares} | {peaks}"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", nargs="+", choices=GOALS, default=list(GOALS))
    parser.add_argument("--bytes", nargs="+", type=at_least_one, default=[1024, 16 * MIB])
    parser.add_argument("--rounds", type=at_least_one, default=11)
    add_worlds(parser, "--worlds", [4])
    records.add_option(parser)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--world", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank_main(given)
        return
    print(HEAD)
    rows = [row for world in given.worlds for row in measure(given, world)]
    congestion = records.congestion_here()
    records.write(records.Record(congestion=congestion, rounds=given.rounds, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
