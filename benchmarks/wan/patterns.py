"""All-reduces around the ring and in the direct pattern, in worlds where order and shares matter.

    sudo .venv/bin/python benchmarks/wan/patterns.py benchmarks/wan/home.toml

The ranks of the ring are in the order of the scenario's hosts; with `order` in the scenario there
is a second ring, in that order. The direct pattern has equal shares; with `shares` in the scenario
it also has these (`pccl master --shares`). The ranks of the plan have called optimize_topology,
which prints its result. Gloo has the order of the hosts. They take turns, call
by call. The first calls of pccl (--pilots) are not counted: in them, connections are new and lanes
find their number. If --rival-rounds is lower than --rounds, only pccl runs the remaining rounds.

With --shuffles 5, the hosts of each scenario join in five other orders, one after another, which
follow from --seed. Each has a network and ranks of its own. Then the ring and the plan take turns:

    sudo .venv/bin/python benchmarks/wan/patterns.py --only ring plan --shuffles 5 \\
        benchmarks/wan/{both,america,europe}.toml

In the end there is a line for each scenario: how many times faster the plan is than the ring in the
joining order of the hosts, for each order and as the median over the orders.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import records
from all_reduce import MIB, PLANNED, Case, World
from lab import Lab
from load import Loaded
from options import add_only, at_least_one, parse_with
from processes import run_main
from worlds import REPORT_BYTES

RING, BEST_RING, DIRECT, SHARES, GLOO = "ring", "best ring", "direct", "shares", "gloo"
PLAN = "plan"
CONTENDERS = (RING, BEST_RING, DIRECT, SHARES, PLAN, GLOO)
# How many times faster the plan should be than a ring in a random order, as the median.
PLAN_GOALS = {"both": 1.25, "america": 1.12, "europe": 1.0}


@dataclass(kw_only=True)
class Row(Loaded):
    """A world.

    Attributes:
        shuffle: number of the joining order of the hosts; 0: the order of the scenario.
        wall: seconds of each counted call, by the contender's name.
        emulator: the network's observations.
        sound: whether the figures may be used.
    """

    scenario: str
    shuffle: int = 0
    hosts: int
    bytes: int
    wall: dict[str, list[float]] = field(default_factory=dict)
    emulator: str = ""
    sound: bool = False

    def gain(self, name: str) -> float:
        """Return how many times faster than the ring a contender is, by the medians."""
        return statistics.median(self.wall[RING]) / statistics.median(self.wall[name])


def contenders(scenario: dict[str, Any]) -> list[str]:
    """Return the names of those that this scenario is for."""
    only_with = {BEST_RING: "order", SHARES: "shares"}
    return [name for name in CONTENDERS if only_with.get(name, "hosts") in scenario]


def start(lab: Lab, name: str, joined: Sequence[int]) -> World:
    """Start the ranks of a contender, on the hosts in their joining order."""
    backends = {DIRECT: "pccl-direct", SHARES: "pccl-direct", GLOO: "gloo"}
    # Otherwise the master may choose the direct pattern when an epoch begins.
    backends |= {RING: "pccl-ring", BEST_RING: "pccl-ring", PLAN: PLANNED}
    order: Sequence[int] = lab.scenario["order"] if name == BEST_RING else joined
    places = lab.places()
    return World(
        backends.get(name, "pccl"),
        len(order),
        places=[places[host] for host in order],
        address=lab.hosts[order[0]].address,
        device="wan0",
        shares=lab.scenario["shares"] if name == SHARES else (),
    )


def joining_order(hosts: int, shuffle: int, seed: int) -> list[int]:
    """Return the joining order of the hosts; shuffle 0 is the order of the scenario."""
    order = list(range(hosts))
    if shuffle > 0:
        random.Random(1000 * seed + shuffle).shuffle(order)
    return order


def measure(scenario: Path, options: argparse.Namespace, shuffle: int = 0) -> Row:
    """Return the row of a scenario, with the contenders of the options that it is for."""
    lab = Lab(scenario)
    size = int(options.mib * MIB if options.mib else REPORT_BYTES / lab.scenario["scale"])
    row = Row(
        scenario=scenario.stem,
        shuffle=shuffle,
        hosts=len(lab.scenario["hosts"]),
        bytes=size // 4 * 4,
    )
    order = joining_order(row.hosts, shuffle, options.seed)
    case = Case(name="", tensor_bytes=row.bytes, goals={})
    rivals = options.rounds if options.rival_rounds is None else options.rival_rounds
    worlds: dict[str, World] = {}
    with lab:
        try:
            for name in contenders(lab.scenario):
                if name in options.only:
                    worlds[name] = start(lab, name, order)
            for number in range(-options.pilots, options.rounds):
                for name, world in worlds.items():
                    if name == GLOO and not 0 <= number < rivals:
                        continue
                    with row.watched(lab, name):
                        seconds, _ = world.all_reduce(case)
                    counted = "" if number >= 0 else " (not counted)"
                    print(f"{row.scenario}, {name}: {seconds:.2f} s{counted}", flush=True)
                    if number >= 0:
                        row.wall.setdefault(name, []).append(seconds)
        finally:
            for world in worlds.values():
                world.close()
    assert lab.report is not None
    row.emulator, row.sound = str(lab.report), lab.report.sound
    return row


HEAD = (
    "| all-reduce | ring | ring in the best order | direct | direct, shares of the scenario | "
    "plan of optimize_topology | Gloo | network |\n|" + "---|" * 8
)


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    order = f", order {row.shuffle}" if row.shuffle else ""
    cells = [f"`{row.scenario}`{order}, {row.hosts} hosts, {records.size_name(row.bytes)}"]
    for name in CONTENDERS:
        if name not in row.wall:
            cells.append("")
        elif name == RING:
            cells.append(records.spread(row.wall[name]))
        else:
            cells.append(f"{records.spread(row.wall[name])}, {row.gain(name):.2f}x")
    return "| " + " | ".join([*cells, row.load()]) + " |"


def gains(rows: Sequence[Row]) -> str:
    """Return the gain of the plan over the rings of all orders of one scenario, as a line."""
    each = [row.gain(PLAN) for row in rows]
    name = rows[0].scenario
    goal = f", goal {PLAN_GOALS[name]:g}" if name in PLAN_GOALS else ""
    sound = sum(row.sound for row in rows)
    return (
        f"{name}: the plan is {statistics.median(each):.2f} times as fast as the ring, as the "
        f"median over {len(rows)} orders ({', '.join(f'{one:.2f}' for one in each)}){goal}; "
        f"{sound} of {len(rows)} networks were sound"
    )


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
    parser.add_argument("--shuffles", type=at_least_one, help="random orders of the hosts")
    parser.add_argument("--seed", type=at_least_one, default=1, help="of the random orders")
    records.add_option(parser)
    options = parse_with(parser, RING)
    if options.shuffles and set(options.only) != {RING, PLAN}:
        parser.error(f'--shuffles: it compares "{RING}" and "{PLAN}": add --only {RING} {PLAN}')
    rows = []
    summaries = []
    for scenario in options.scenarios:
        own = []
        for shuffle in range(1, options.shuffles + 1) if options.shuffles else [0]:
            own.append(measure(scenario, options, shuffle))
            print(f"{HEAD}\n{line(own[-1])}\n{own[-1].emulator}", flush=True)
        rows += own
        if options.shuffles:
            summaries.append(gains(own))
    print("\n".join(summaries))
    record = records.Record(congestion=Lab.congestion, rounds=options.rounds, rows=rows)
    records.write(record, options.json)


if __name__ == "__main__":
    run_main(main)
