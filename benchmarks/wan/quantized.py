"""One all-reduce in each format, in turn, in an emulated network.

    sudo .venv/bin/python benchmarks/wan/quantized.py benchmarks/wan/atlantic.toml
    sudo .venv/bin/python benchmarks/wan/quantized.py benchmarks/wan/both.toml \\
        --only float32 8bit "8bit ring"

Each format has ranks of its own, all in one lab, and they take turns, call by call: float32, 8
bits, 4 bits and bfloat16, and those that can be quantized at each hop of the ring
(PCCL_PATTERN=ring). The tensor of a scenario with `scale` is the report's 1.073 GB divided by
it, otherwise 256 MiB. The first two calls of each are shown and not counted: in them, connections
are new and lanes find their number. The table has the median of the calls after them, how many
times faster than float32 that is, and the goal. The exit status is 1 if a goal is missed, or if the
emulator did not keep up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import records
from all_reduce import FORMATS, MIB, Case, World
from lab import Lab
from load import Loaded
from options import add_only, at_least_one, parse_with
from processes import run_main
from sections import table
from worlds import REPORT_BYTES

PLAIN = "float32"
AROUND_RING = {"8bit ring": "8bit", "bfloat16 ring": "bfloat16"}  # three hosts and more
CONTENDERS = (PLAIN, *FORMATS, *AROUND_RING)
DEFAULT_BYTES = 256 * MIB
PILOTS = 2  # calls that do not count
GOALS = {  # times faster than float32
    "atlantic": {"8bit": 3.2, "4bit": 5.0, "bfloat16": 1.8},
    "america": {"8bit": 2.5},
    "both": {"8bit": 2.5},
}


@dataclass(kw_only=True)
class Row(Loaded):
    """A world.

    Attributes:
        goals: times faster than float32, by the contender's name; none for another size.
        first: seconds of each pilot, by the contender's name.
        wall: seconds of each counted call, by the contender's name.
        emulator: the network's observations.
        sound: whether the figures may be used.
    """

    scenario: str
    hosts: int
    bytes: int
    goals: dict[str, float] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)
    wall: dict[str, list[float]] = field(default_factory=dict)
    emulator: str = ""
    sound: bool = False

    def gain(self, name: str) -> float:
        """Return how many times faster than float32 a format is, by the medians."""
        return statistics.median(self.wall[PLAIN]) / statistics.median(self.wall[name])

    def missed(self) -> list[str]:
        """Return the formats that have not reached their goals."""
        return [name for name in self.wall if self.gain(name) < self.goals.get(name, 0.0)]


def contenders(hosts: int, chosen: Sequence[str]) -> list[str]:
    """Return the chosen contenders that differ with this number of hosts."""
    return [name for name in chosen if hosts > 2 or name not in AROUND_RING]


def start(lab: Lab, name: str) -> World:
    """Start the ranks of a contender."""
    places = lab.places()
    backend = "pccl-ring" if name in AROUND_RING else "pccl"
    return World(backend, len(places), places=places, address=lab.hosts[0].address, device="wan0")


def format_of(name: str) -> str:
    """Return the format of a contender as a Case has it: empty for none."""
    return "" if name == PLAIN else AROUND_RING.get(name, name)


def measure(scenario: Path, names: Sequence[str], rounds: int, mib: int | None) -> Row:
    """Return the row of a scenario."""
    lab = Lab(scenario)
    scale = lab.scenario.get("scale")
    size = mib * MIB if mib else int(REPORT_BYTES / scale) if scale else DEFAULT_BYTES
    row = Row(
        scenario=scenario.stem,
        hosts=len(lab.scenario["hosts"]),
        bytes=size // 4 * 4,
        goals={} if mib else GOALS.get(scenario.stem, {}),
    )
    worlds: dict[str, World] = {}
    with lab:
        try:
            for name in contenders(row.hosts, names):
                worlds[name] = start(lab, name)
            for number in range(PILOTS + rounds):
                for name, world in worlds.items():
                    form = format_of(name)
                    case = Case(name="", tensor_bytes=row.bytes, quantize=form, goals={})
                    with row.watched(lab, name):
                        seconds, _ = world.all_reduce(case)
                    counted = "" if number >= PILOTS else " (not counted)"
                    print(f"{row.scenario}, {name}: {seconds:.2f} s{counted}", flush=True)
                    into = row.wall if number >= PILOTS else row.first
                    into.setdefault(name, []).append(seconds)
        finally:
            for world in worlds.values():
                world.close()
    assert lab.report is not None
    row.emulator, row.sound = str(lab.report), lab.report.sound
    return row


def lines(row: Row) -> str:
    """Return the table of a world."""
    head = [f"`{row.scenario}`, {row.hosts} hosts, {records.size_name(row.bytes)}"]
    head += ["first call", "second", "median (min-max) of the next", "x float32", "goal"]
    cells = []
    for name, wall in row.wall.items():
        first = [records.duration(seconds) for seconds in row.first[name]]
        goal = f"{row.goals[name]:g}" if name in row.goals else ""
        cells.append([name, *first, records.spread(wall), f"{row.gain(name):.2f}", goal])
    return table(head, cells)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", type=Path, nargs="+", metavar="scenario")
    parser.add_argument("--rounds", type=at_least_one, default=5, help="calls of each that count")
    parser.add_argument("--mib", type=at_least_one, help="of the tensor; then there are no goals")
    add_only(parser, "--only", CONTENDERS, "these formats")
    records.add_option(parser)
    given = parse_with(parser, PLAIN)
    rows = []
    for scenario in given.scenarios:
        rows.append(measure(scenario, given.only, given.rounds, given.mib))
        row = rows[-1]
        print(f"{lines(row)}{row.emulator}; in calls {row.load()}", flush=True)
    record = records.Record(congestion=Lab.congestion, rounds=given.rounds, rows=rows)
    records.write(record, given.json)
    bad = [f"{row.scenario} ({row.emulator})" for row in rows if not row.sound]
    bad += [f"{row.scenario} ({row.load()})" for row in rows if not row.enough_cores]
    bad += [f"{row.scenario}, {name}" for row in rows for name in row.missed()]
    for text in bad:
        print(f"MISSED: {text}")
    return int(bool(bad))


if __name__ == "__main__":
    run_main(main)
