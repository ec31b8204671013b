"""One all-reduce in a world of many hosts, compared with the network's limit.

    sudo .venv/bin/python benchmarks/wan/worlds.py benchmarks/wan/europe.toml

The tensor is the report's 1.073 GB divided by the scenario's `scale`, as its rates are. The limit
is the limit of a ring in the order of the scenario's hosts: the bytes that each host has to send,
2(N-1)/N of the tensor, at iperf3's rate between the slowest pair of neighbours (64 streams, in the
direction of the ring), plus the 2(N-1) hops of a byte.
pccl and Gloo take turns, each in that order. After them comes the floor (ringfloor.c: a bare ring,
one connection to the next rank, made anew each time). The first call of pccl is not counted; later
calls of Gloo are no faster than its first. With --direct, pccl also runs with PCCL_PATTERN=direct.
Gloo has only one connection to each other host. Therefore it also runs with the tensor cut into
parts, each reduced in a group of its own, all at once; a pilot determines the fastest number of
groups. If --rival-rounds is lower than --rounds, only pccl runs the remaining rounds.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import records
from all_reduce import MIB, Case, World, build_floor, floor_at
from lab import Lab, iperf, ping
from load import Loaded
from options import at_least_one
from processes import run_main

REPORT_BYTES = 4 * 268_435_456
STREAMS = 64
IPERF_SECONDS = 4.0
GOAL = 0.9  # share of the limit
GROUPS = (8, 16, 32)  # numbers of Gloo's groups to try
GLOO_IN_GROUPS = "gloo in groups"


@dataclass(kw_only=True)
class Row(Loaded):
    """A world.

    Attributes:
        by_rate: seconds that the rates allow.
        by_hops: seconds that the hops take.
        wall: seconds of each counted call, by the contender's name.
        cpu: seconds per GB of each counted call, by the contender's name.
        groups: the number of groups that makes Gloo in groups fastest.
        emulator: the emulator's observations.
        sound: whether the figures may be used.
    """

    scenario: str
    hosts: int
    bytes: int
    by_rate: float
    by_hops: float
    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    groups: int = 0
    emulator: str = ""
    sound: bool = False

    @property
    def limit(self) -> float:
        """Return the limit in seconds: the bytes, plus the hops of one byte."""
        return self.by_rate + self.by_hops


def limit(lab: Lab, tensor_bytes: int, paths: int | None = None) -> tuple[float, float]:
    """Return the seconds that the rates allow, and the seconds that the hops take.

    Args:
        lab: lab with the hosts.
        tensor_bytes: bytes of the float32 tensor.
        paths: number of paths to measure; the others are taken to be like the last. None: all.
    """
    hosts = len(lab.hosts)
    rates, hops = [], []
    for host in range(hosts if paths is None else paths):
        neighbour = (host + 1) % hosts
        hops.append(ping(lab, host, neighbour) / 2e3)
        rate, _ = iperf(lab, host, neighbour, streams=STREAMS, seconds=IPERF_SECONDS)
        rates.append(rate)
        names = (lab.scenario["hosts"][at] for at in (host, neighbour))
        print(f"{' to '.join(names)}: {hops[-1] * 2e3:.1f} ms, {rate:.0f} Mbit/s", flush=True)
    hops += [hops[-1]] * (hosts - len(hops))
    sent = 2 * (hosts - 1) / hosts * tensor_bytes
    longest = max(
        sum(hops[(start + hop) % hosts] for hop in range(2 * (hosts - 1))) for start in range(hosts)
    )
    return sent * 8 / (min(rates) * 1e6), longest


Turn = Callable[[], tuple[float, float]]  # seconds, CPU seconds per GB


def best_groups(gloo: World, case: Case) -> int:
    """Return the fastest number of groups: one call each, until more groups bring nothing."""
    best, fastest = 0, math.inf
    for groups in GROUPS:
        seconds, _ = gloo.all_reduce(replace(case, groups=groups))
        print(f"pilot of Gloo in {groups} groups: {seconds:.2f} s", flush=True)
        if seconds >= fastest:
            break
        best, fastest = groups, seconds
    return best


def take_turns(lab: Lab, row: Row, names: Sequence[str], rounds: int, rival_rounds: int) -> None:
    """Fill the row; pilots are not counted."""
    worlds: dict[str, World] = {}
    case = Case(name="", tensor_bytes=row.bytes, goals={})
    with tempfile.TemporaryDirectory() as folder:
        program = build_floor(folder)
        try:
            for name in names:
                if name != "floor":
                    worlds[name] = World(
                        name,
                        row.hosts,
                        places=lab.places(),
                        address=lab.hosts[0].address,
                        device="wan0",
                    )
            turns: dict[str, Turn] = {
                name: partial(world.all_reduce, case) for name, world in worlds.items()
            }
            if "gloo" in worlds:
                row.groups = best_groups(worlds["gloo"], case)
                turns[GLOO_IN_GROUPS] = partial(
                    worlds["gloo"].all_reduce, replace(case, groups=row.groups)
                )
            if "floor" in names:
                turns["floor"] = partial(floor_at, program, row.bytes / MIB, lab.namespaces())
            for pilot in ("pccl", "pccl-direct"):
                if pilot in turns:
                    turns[pilot]()
            for round_number in range(rounds):
                for name in turns if round_number < rival_rounds else ("pccl",):
                    with row.watched(lab, name) if name == "pccl" else nullcontext():
                        seconds, cpu = turns[name]()
                    row.wall.setdefault(name, []).append(seconds)
                    row.cpu.setdefault(name, []).append(cpu)
                    print(f"{name}: {seconds:.2f} s", flush=True)
        finally:
            for world in worlds.values():
                world.close()


def show(row: Row) -> None:
    """Print the medians."""
    for name, seen in row.wall.items():
        middle = statistics.median(seen)
        print(
            f"{name}: {middle:.2f} s ({min(seen):.2f}-{max(seen):.2f}), "
            f"{row.limit / middle:.2f} of the limit"
        )
    print(f"{row.emulator}; in calls of pccl {row.load()}", flush=True)


def measure(scenario: Path, names: Sequence[str], rounds: int, rival_rounds: int) -> Row:
    """Return the row of a scenario."""
    lab = Lab(scenario)
    with lab:
        tensor_bytes = int(REPORT_BYTES / lab.scenario.get("scale", 1)) // 4 * 4
        by_rate, by_hops = limit(lab, tensor_bytes)
        print(
            f"{len(lab.hosts)} hosts, {tensor_bytes / 1e6:.1f} MB: it takes {by_rate:.2f} s at "
            f"that rate, and {by_hops:.2f} s for the distance",
            flush=True,
        )
        row = Row(
            scenario=scenario.stem,
            hosts=len(lab.hosts),
            bytes=tensor_bytes,
            by_rate=by_rate,
            by_hops=by_hops,
        )
        take_turns(lab, row, names, rounds, rival_rounds)
    assert lab.report is not None
    row.emulator, row.sound = str(lab.report), lab.report.sound
    return row


def main() -> None:
    """Print the limit and each call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", type=Path, nargs="+", metavar="scenario")
    parser.add_argument("--rounds", type=at_least_one, default=3)
    parser.add_argument("--rival-rounds", type=at_least_one, help="of Gloo and the floor")
    parser.add_argument("--direct", action="store_true", help="also pccl with the direct pattern")
    parser.add_argument("--skip-gloo", action="store_true")
    parser.add_argument("--skip-floor", action="store_true")
    records.add_option(parser)
    options = parser.parse_args()
    skipped = {"gloo": options.skip_gloo, "floor": options.skip_floor}
    skipped["pccl-direct"] = not options.direct
    contenders = ("pccl", "pccl-direct", "gloo", "floor")
    names = [name for name in contenders if not skipped.get(name)]
    rivals = options.rounds if options.rival_rounds is None else options.rival_rounds
    rows = []
    for scenario in options.scenarios:
        rows.append(measure(scenario, names, options.rounds, rivals))
        show(rows[-1])
    record = records.Record(congestion=Lab.congestion, rounds=options.rounds, rows=rows)
    records.write(record, options.json)


if __name__ == "__main__":
    run_main(main)
