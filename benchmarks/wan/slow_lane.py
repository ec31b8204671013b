"""The cost of one slow connection among eight, compared with seven connections without it.

    sudo .venv/bin/python benchmarks/wan/slow_lane.py

Two hosts, 400 Mbit/s and an RTT of 60 ms. In the first network, one of the eight connections
between the hosts carries 4 Mbit/s in one direction, a tenth of its share. This happens if a router
spreads connections over several paths. In the second network, which takes turns with the first,
there are seven equal connections. The first call in each network is a pilot: it is shown, but not
counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from all_reduce import MIB, Case, World
from lab import Lab
from options import at_least_one
from processes import run_main

GOAL = 1.1
SLOW_MBIT = 4.0
# From host 0 to host 1, the first connection is the master's, the second is the link's first.
SLOW_CONNECTION = 5


def scenario(slow: bool) -> dict[str, Any]:
    """Return two hosts, with or without a slow connection."""
    slow_one = {"from": 0, "to": 1, "connection": SLOW_CONNECTION, "mbit": SLOW_MBIT}
    return {
        "hosts": ["here", "there"],
        "default": {"mbit": 400.0, "queue_ms": 50.0, "loss": 0.0},
        "slow": [slow_one] if slow else [],
        "rtt_ms": {"here-there": 60.0},
    }


def world_of(lab: Lab, lanes: int) -> World:
    """Return pccl's ranks in a network, with `lanes` connections."""
    os.environ["PCCL_LANES"] = str(lanes)
    return World(
        "pccl", len(lab.hosts), places=lab.places(), address=lab.hosts[0].address, device="wan0"
    )


def main() -> None:
    """Print both medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=at_least_one, default=128, help="of float32 per rank")
    parser.add_argument("--rounds", type=at_least_one, default=7)
    options = parser.parse_args()
    case = Case(name="", tensor_bytes=options.mib * MIB, goals={})
    seconds: dict[int, list[float]] = {8: [], 7: []}
    labs = {lanes: Lab(scenario(slow=lanes == 8)) for lanes in seconds}
    with ExitStack() as stack:
        worlds = {}
        for lanes, lab in labs.items():
            stack.enter_context(lab)
            worlds[lanes] = world_of(lab, lanes)
            stack.callback(worlds[lanes].close)
        for round_number in range(-1, options.rounds):
            for lanes, world in worlds.items():
                wall, _ = world.all_reduce(case)
                pilot = " (pilot)" if round_number < 0 else ""
                print(f"{lanes} connections: {wall:.2f} s{pilot}", flush=True)
                if round_number >= 0:
                    seconds[lanes].append(wall)
    slow, without = (statistics.median(seconds[lanes]) for lanes in (8, 7))
    print(f"{options.mib} MiB: {slow:.2f} s with the slow one, {without:.2f} s without it")
    print(f"ratio {slow / without:.2f} (goal {GOAL})")
    for lab in labs.values():
        print(lab.report)


if __name__ == "__main__":
    run_main(main)
