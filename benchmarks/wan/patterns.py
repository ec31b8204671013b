"""All-reduces around the ring and in the direct pattern, in worlds where order and shares matter.

    sudo .venv/bin/python benchmarks/wan/patterns.py benchmarks/wan/home.toml

The ranks of the ring are in the order of the scenario's hosts; with `order` in the scenario there
is a second ring, in that order. The direct pattern has equal shares; with `shares` in the scenario
it also has these (`pccl master --shares`). The ranks of the plan have called optimize_topology,
which prints what it has found. Gloo has the order of the hosts. They take turns, call
by call. The first calls of pccl (--pilots) are not counted: in them, connections are new and lanes
find their number. If --rival-rounds is lower than --rounds, only pccl runs the remaining rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import records
from all_reduce import MIB, PLANNED, Case, World
from lab import Lab
from options import add_only, at_least_one, parse_with
from processes import run_main
from worlds import REPORT_BYTES

RING, BEST_RING, DIRECT, SHARES, GLOO = "ring", "best ring", "direct", "shares", "gloo"
PLAN = "plan"
CONTENDERS = (RING, BEST_RING, DIRECT, SHARES, PLAN, GLOO)


@dataclass(kw_only=True)
class Row:
    """A world.

    Attributes:
        wall: seconds of each counted call, by the contender's name.
        emulator_load: share of a core that each thread of the network took in calls.
        emulator: the network's observations.
        sound: whether the figures may be used.
    """

    scenario: str
    hosts: int
    bytes: int
    wall: dict[str, list[float]] = field(default_factory=dict)
    emulator_load: float = 0.0
    emulator: str = ""
    sound: bool = False

    def gain(self, name: str) -> float:
        """Return how many times faster than the ring a contender is, by the medians."""
        return statistics.median(self.wall[RING]) / statistics.median(self.wall[name])


def contenders(scenario: dict[str, Any]) -> list[str]:
    """Return the names of those that this scenario is for."""
    only_with = {BEST_RING: "order", SHARES: "shares"}
    return [name for name in CONTENDERS if only_with.get(name, "hosts") in scenario]


def start(lab: Lab, name: str) -> World:
    """Start the ranks of a contender."""
    backends = {DIRECT: "pccl-direct", SHARES: "pccl-direct", GLOO: "gloo"}
    # Otherwise the master may choose the direct pattern when an epoch begins.
    backends |= {RING: "pccl-ring", BEST_RING: "pccl-ring", PLAN: PLANNED}
    hosts = range(len(lab.hosts))
    order: Sequence[int] = lab.scenario["order"] if name == BEST_RING else hosts
    places = lab.places()
    return World(
        backends.get(name, "pccl"),
        len(order),
        places=[places[host] for host in order],
        address=lab.hosts[order[0]].address,
        device="wan0",
        shares=lab.scenario["shares"] if name == SHARES else (),
    )


def measure(scenario: Path, names: Sequence[str], options: argparse.Namespace) -> Row:
    """Return the row of a scenario, with the contenders of these names that it is for."""
    lab = Lab(scenario)
    size = int(options.mib * MIB if options.mib else REPORT_BYTES / lab.scenario["scale"])
    row = Row(scenario=scenario.stem, hosts=len(lab.scenario["hosts"]), bytes=size // 4 * 4)
    case = Case(name="", tensor_bytes=row.bytes, goals={})
    rivals = options.rounds if options.rival_rounds is None else options.rival_rounds
    worlds: dict[str, World] = {}
    loads = []
    with lab:
        try:
            for name in contenders(lab.scenario):
                if name in names:
                    worlds[name] = start(lab, name)
            for number in range(-options.pilots, options.rounds):
                for name, world in worlds.items():
                    if name == GLOO and not 0 <= number < rivals:
                        continue
                    cpu, begin = lab.cpu(), time.monotonic()
                    seconds, _ = world.all_reduce(case)
                    loads.append(lab.load(cpu, time.monotonic() - begin))
                    counted = "" if number >= 0 else " (not counted)"
                    print(f"{row.scenario}, {name}: {seconds:.2f} s{counted}", flush=True)
                    if number >= 0:
                        row.wall.setdefault(name, []).append(seconds)
        finally:
            for world in worlds.values():
                world.close()
    assert lab.report is not None
    row.emulator_load = statistics.median(loads)
    row.emulator, row.sound = str(lab.report), lab.report.sound
    return row


HEAD = (
    "| all-reduce | ring | ring in the best order | direct | direct, shares of the scenario | "
    "plan of optimize_topology | Gloo | network |\n|" + "---|" * 8
)


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    cells = [f"`{row.scenario}`, {row.hosts} hosts, {records.size_name(row.bytes)}"]
    for name in CONTENDERS:
        if name not in row.wall:
            cells.append("")
        elif name == RING:
            cells.append(records.spread(row.wall[name]))
        else:
            cells.append(f"{records.spread(row.wall[name])}, {row.gain(name):.2f}x")
    return "| " + " | ".join([*cells, f"{row.emulator_load:.2f} of a core"]) + " |"


def main() -> None:
    """Print each call and the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", type=Path, nargs="+", metavar="scenario")
    parser.add_argument("--rounds", type=at_least_one, default=7)
    parser.add_argument("--rival-rounds", type=at_least_one, help="of Gloo")
    parser.add_argument("--pilots", type=at_least_one, default=3, help="calls that do not count")
    parser.add_argument("--mib", type=at_least_one, help="of the tensor (default: the scenario's)")
    add_only(parser, "--only", CONTENDERS, "these contenders")
    records.add_option(parser)
    options = parse_with(parser, RING)
    rows = []
    for scenario in options.scenarios:
        rows.append(measure(scenario, options.only, options))
        print(f"{HEAD}\n{line(rows[-1])}\n{rows[-1].emulator}", flush=True)
    record = records.Record(congestion=Lab.congestion, rounds=options.rounds, rows=rows)
    records.write(record, options.json)


if __name__ == "__main__":
    run_main(main)
