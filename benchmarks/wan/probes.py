"""A path as measured by optimize_topology, and as measured by iperf3.

    sudo .venv/bin/python benchmarks/wan/probes.py benchmarks/wan/unequal.toml

The ranks are on the hosts of the scenario. They call optimize_topology after a first all-reduce, as
a run does. When they have ended, iperf3 measures some pairs, both ways at once, with several
streams. The table has the rate that the emulator gives each direction, those by both measurements,
and the ratio of these. The exit status is 1 if a ratio is further from 1 than --tolerance, or if
the emulator did not keep up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import Lab, iperf
from options import at_least_one
from processes import Master, end, run_main
from programs import Program
from sections import table

ELEMENTS = 1 << 20  # of the first all-reduce
BUDGET_S = 60.0
WAIT_S = 300.0
IPERF_S = 6.0

WORKER = """
import json, sys, torch, torch.distributed as dist
import pccl_backend as pccl
torch.set_num_threads(1)
rank, world, elements, budget = (int(word) for word in sys.argv[1:])
dist.init_process_group("pccl", store=dist.HashStore(), rank=rank, world_size=world)
dist.all_reduce(torch.zeros(elements))
print(json.dumps(pccl.optimize_topology(budget=budget).rates), flush=True)
dist.destroy_process_group()
"""


def probed(lab: Lab) -> list[list[float | None]]:
    """Return the bytes per second from each rank to each other one, by optimize_topology."""
    places = lab.places()
    master = Master(lab.hosts[0].address, places[0])
    environment = {**os.environ, **master.environment}
    environment["PCCL_MASTER"] = f"pccl://{master.address}/probes"
    numbers = [str(number) for number in (len(places), ELEMENTS, int(BUDGET_S))]
    ranks = [
        Program(
            [*place, sys.executable, "-c", WORKER, str(rank), *numbers],
            stdin=subprocess.PIPE,
            env=environment,
        )
        for rank, place in enumerate(places)
    ]
    try:
        answers = [json.loads(process.line(WAIT_S)) for process in ranks]
    finally:
        end(ranks, master)
    rates: list[list[float | None]] = answers[0]
    return rates


def measure(lab: Lab, options: argparse.Namespace) -> list[float]:
    """Print the table; return the ratio of each direction."""
    rates = probed(lab)
    regions = lab.scenario["hosts"]
    pairs = list(combinations(range(len(rates)), 2))
    random.Random(options.seed).shuffle(pairs)
    ratios = []
    rows = []
    for low, high in sorted(pairs[: options.pairs]):
        by_iperf = iperf(lab, low, high, streams=options.streams, both_ways=True, seconds=IPERF_S)
        for source, target, mbit in zip((low, high), (high, low), by_iperf, strict=True):
            rate = (rates[source][target] or 0.0) * 8e-6
            ratios.append(rate / mbit)
            shaped = lab.path(regions[source], regions[target]).mbit
            cells = (f"{shaped:g}", f"{rate:.0f}", f"{mbit:.0f}", f"{rate / mbit:.2f}")
            rows.append([f"{source} to {target}", *cells])
    by_iperf_name = f"iperf3, {options.streams} streams"
    head = ["path", "has, Mbit/s", "optimize_topology", by_iperf_name, "ratio"]
    print(table(head, rows))
    print(
        f"ratios: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}; "
        f"goal: within {100 * options.tolerance:g} %",
        flush=True,
    )
    return ratios


def main() -> int:
    """Print the table and the verdict."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--pairs", type=at_least_one, default=8, help="that iperf3 measures")
    parser.add_argument("--streams", type=at_least_one, default=8, help="of iperf3, at once")
    parser.add_argument("--seed", type=at_least_one, default=1, help="of the choice of pairs")
    parser.add_argument("--tolerance", type=float, default=0.15, help="around a ratio of 1")
    options = parser.parse_args()
    lab = Lab(options.scenario)
    with lab:
        ratios = measure(lab, options)
    print(lab.report)
    good = all(abs(ratio - 1) <= options.tolerance for ratio in ratios)
    return 0 if good and lab.report.sound else 1


if __name__ == "__main__":
    run_main(main)
