"""How long `dist.new_group` takes: pccl and Gloo, side by side in one run, on loopback.

    tools/stock-network.sh .venv/bin/python benchmarks/groups.py
    tools/stock-network.sh .venv/bin/python benchmarks/groups.py --worlds 2 --rounds 100

The ranks make a group of each backend in turn, from a barrier until the last rank has it, and
destroy both. So each group of pccl is a further group of processes that have one already. The ratio
of a row is the median of the ratios of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import records
from options import add_worlds, at_least_one
from processes import run_main

GOAL = 2.0  # in multiples of Gloo's time


@dataclass(kw_only=True)
class Row:
    """A world: the seconds of each round."""

    world: int
    pccl_s: list[float]
    gloo_s: list[float]


def rank_main(given: argparse.Namespace) -> None:
    """Measure as one rank. Rank 0 prints a line of JSON."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", given.port, given.world, is_master=False)
    dist.init_process_group("gloo", store=store, rank=given.rank, world_size=given.world)
    kept = dist.new_group(backend="pccl")
    row = Row(world=given.world, pccl_s=[], gloo_s=[])
    for _ in range(given.rounds):
        for backend, seconds in (("pccl", row.pccl_s), ("gloo", row.gloo_s)):
            dist.barrier()
            start = time.perf_counter()
            group = dist.new_group(backend=backend)
            slowest = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            seconds.append(slowest.item())
            dist.destroy_process_group(group)
            del group  # ends the threads of Gloo's, which takes longer than making the next one
    if given.rank == 0:
        print(json.dumps(row.__dict__), flush=True)
    dist.barrier(group=kept)
    dist.destroy_process_group()


def measure(world: int, rounds: int) -> Row:
    """Run the ranks of one world. The store is in this process, as torchrun has it."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    command = [sys.executable, __file__, "--world", str(world), "--rounds", str(rounds)]
    command += ["--port", str(store.port)]
    ranks = [
        subprocess.Popen(
            [*command, "--rank", str(rank)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(world)
    ]
    try:
        texts = [process.communicate()[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    if any(process.returncode != 0 for process in ranks):
        raise SystemExit("a rank process failed: see its error above")
    return Row(**json.loads(texts[0]))


HEAD = "| world | pccl (min-max) | Gloo | pccl ÷ Gloo | goal |\n|---|---|---|---|---|"


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    ratio = statistics.median(
        ours / theirs for ours, theirs in zip(row.pccl_s, row.gloo_s, strict=True)
    )
    spreads = f"{records.spread(row.pccl_s)} | {records.spread(row.gloo_s)}"
    return f"| {row.world} | {spreads} | {ratio:.2f} | {GOAL} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=40)
    add_worlds(parser, "--worlds", [2, 4])
    records.add_option(parser)
    for name in ("--rank", "--world", "--port"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank_main(given)
        return
    print(HEAD)
    rows = []
    for world in given.worlds:
        rows.append(measure(world, given.rounds))
        print(line(rows[-1]), flush=True)
    congestion = records.congestion_here()
    records.write(records.Record(congestion=congestion, rounds=given.rounds, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
