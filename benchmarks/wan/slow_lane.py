"""One slow connection among eight: what it costs, beside seven without it.

    sudo .venv/bin/python benchmarks/wan/slow_lane.py

Two hosts, 400 Mbit/s and 60 ms there and back. In one network one of the eight connections between
them carries 4 Mbit/s in one direction, a tenth of its share, as where a router spreads connections
over several ways; in the other, which takes turns with it, there are seven, all alike. The first
call of each is a pilot and not counted, but shown.
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
# On the way there the first connection is the master's, the second the link's first.
SLOW_CONNECTION = 5


def scenario(slow: bool) -> dict[str, Any]:
    """Return two hosts, with a slow connection or without."""
    slow_one = {"from": 0, "to": 1, "connection": SLOW_CONNECTION, "mbit": SLOW_MBIT}
    return {
        "hosts": ["here", "there"],
        "default": {"mbit": 400.0, "queue_ms": 50.0, "loss": 0.0},
        "slow": [slow_one] if slow else [],
        "rtt_ms": {"here-there": 60.0},
    }


def world_of(lab: Lab, lanes: int) -> World:
    """Return pccl's ranks in a network, with so many connections."""
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
