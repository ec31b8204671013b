"""One all-reduce of 2, 4, 8 and 16 hosts with uplinks alike, beside what those allow.

    sudo .venv/bin/python benchmarks/wan/uplinks.py --hosts 2 4 --mib 64

What a ring costs hardly grows with the world: each host sends 2(N-1)/N of the tensor. All hosts are
10 ms from each other. The limit is those bytes at the rate that iperf3 reaches from one host to
another (64 streams), and the 2(N-1) hops that a byte makes. The first call is a pilot and not
counted. All hosts and the network share this machine: whether it is they that hold up a large world
shows with slower uplinks (--mbit), of which they need less.
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
GOAL = 1.1  # of the limit


def scenario(hosts: int, mbit: float) -> dict[str, Any]:
    """Return so many hosts, alike, with nothing between them but their uplinks and 10 ms."""
    return {
        "hosts": ["town"] * hosts,
        "uplink_mbit": mbit,
        "default": {"mbit": 1000.0, "queue_ms": 40.0, "loss": 0.0},
        "rtt_ms": {"town-town": 10.0},
    }


def measure(hosts: int, mbit: float, mib: int, rounds: int) -> Row:
    """Return the row of so many hosts."""
    lab = Lab(scenario(hosts, mbit))
    with lab:
        by_rate, by_hops = limit(lab, mib * MIB, ways=1)
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
    """Return a row as one line of a table in Markdown."""
    wall = row.wall["pccl"]
    ratio = statistics.median(wall) / row.limit
    load = f"{row.emulator_load:.2f} of a core"
    cells = [row.scenario, records.spread(wall), f"{row.by_rate:.2f} s", f"{row.by_hops:.2f} s"]
    return "| " + " | ".join([*cells, f"{ratio:.2f}", f"{GOAL:g}", load]) + " |"


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
