"""One all-reduce of 2, 4, 8 and 16 hosts with equal uplinks, compared with the network's limit.

    sudo .venv/bin/python benchmarks/wan/uplinks.py --hosts 2 4 --mib 64

The cost of a ring hardly grows with the world: each host sends 2(N-1)/N of the tensor. The RTT
between all hosts is 10 ms. The limit is these bytes at iperf3's rate from one host to another (64
streams), plus the 2(N-1) hops of a byte. The first call is a pilot and not counted. All hosts and
the network share this machine. If its cores are the bottleneck of a large world, slower uplinks
(--mbit) show it, because they need less of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import records
from all_reduce import MIB
from lab import Lab
from options import add_worlds, at_least_one
from processes import run_main
from worlds import Row, limit, take_turns

MBIT = 200.0
GOAL = 1.1  # as a multiple of the limit


def scenario(hosts: int, mbit: float) -> dict[str, Any]:
    """Return equal hosts, connected by nothing but their uplinks and an RTT of 10 ms."""
    return {
        "hosts": ["town"] * hosts,
        "uplink_mbit": mbit,
        "default": {"mbit": 1000.0, "queue_ms": 40.0, "loss": 0.0},
        "rtt_ms": {"town-town": 10.0},
    }


def measure(hosts: int, mbit: float, mib: int, rounds: int) -> Row:
    """Return the row of a number of hosts."""
    lab = Lab(scenario(hosts, mbit))
    with lab:
        by_rate, by_hops = limit(lab, mib * MIB, paths=1)
        row = Row(
            scenario=f"{hosts} hosts, {mbit:g} Mbit/s",
            hosts=hosts,
            bytes=mib * MIB,
            by_rate=by_rate,
            by_hops=by_hops,
        )
        take_turns(lab, row, ("pccl",), rounds, rounds)
    assert lab.report is not None
    row.emulator, row.sound = str(lab.report), lab.report.sound
    return row


HEAD = (
    "| uplinks | pccl (min-max) | at that rate | for the distance | ÷ limit | goal | network |\n|"
    + "---|" * 7
)


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    wall = row.wall["pccl"]
    ratio = statistics.median(wall) / row.limit
    cells = [row.scenario, records.spread(wall), f"{row.by_rate:.2f} s", f"{row.by_hops:.2f} s"]
    return "| " + " | ".join([*cells, f"{ratio:.2f}", f"{GOAL:g}", row.load()]) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_worlds(parser, "--hosts", [2, 4, 8, 16])
    parser.add_argument("--mbit", type=float, default=MBIT, help="of each uplink")
    parser.add_argument("--mib", type=at_least_one, default=64, help="of float32 per rank")
    parser.add_argument("--rounds", type=at_least_one, default=3)
    records.add_option(parser)
    options = parser.parse_args()
    rows = []
    for hosts in options.hosts:
        rows.append(measure(hosts, options.mbit, options.mib, options.rounds))
        print(f"{HEAD}\n{line(rows[-1])}\n{rows[-1].emulator}", flush=True)
    record = records.Record(congestion=Lab.congestion, rounds=options.rounds, rows=rows)
    records.write(record, options.json)


if __name__ == "__main__":
    run_main(main)
