"""One all-reduce over a wide-area network: the share of its capacity that one plain call uses.

    sudo .venv/bin/python benchmarks/wan/throughput.py benchmarks/wan/atlantic.toml --mib 256

Two hosts of a scenario (lab.py). First iperf3 runs in both directions at once, with several numbers
of streams, paced and unpaced. The highest of these rates is the reference, among runs without a too
slow emulator. Then come all-reduces of pccl with no setting but a token, so that all traffic is
encrypted ("pccl-tls"), and of pccl in plain text: the first call; the second and the third, each
within 100 ms of the previous one, on all hosts at once; and one after 60 s of silence. Then the
first call of Gloo, whose later calls are only slower; and the first call of the floor (ringfloor.c:
a bare ring, one connection to the next rank). With --runs the backends take turns, each time in new
processes and a new lab. A run with a too slow emulator is left out, and another replaces it.
Throughput counts the bytes that each host has to send: 2(N-1)/N of the tensor. The limit is these
bytes at iperf3's best rate, plus the 2(N-1) hops.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import records
from all_reduce import MIB, PCCL, Case, World, build_floor, floor_at
from lab import Lab, Report, iperf, ping
from options import add_counts, at_least_one
from processes import run_main

STREAMS = (8, 16, 32, 64)
THREE = ("first", "second", "third")
SERIES = {"pccl-tls": THREE, "pccl": THREE, "gloo": ("first",)}
TRIES = 3  # for each sound run
GOALS = {"first": 0.6, "third": 0.9, "after 60 s": 0.75}  # as shares of iperf3's best


@dataclass(kw_only=True)
class Row:
    """One call.

    Attributes:
        run: number of the run, from 1; each run has new processes.
        name: first, second, third, after 60 s.
        cpu: seconds per GB, of all hosts and the master; for the first three calls, their mean.
    """

    run: int
    backend: str
    name: str
    seconds: float
    cpu: float


@dataclass(frozen=True, kw_only=True)
class Measure:
    """The capacity of the network."""

    hosts: int
    round_trip_ms: float
    mbit: float
    iperf: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The runs to make.

    Attributes:
        idle: seconds of silence before the last call; 0: no such call.
        runs: number of sound runs.
        seconds_max: no run begins that would probably end later.
    """

    mib: int
    runs: int
    idle: float
    seconds_max: float
    backends: Sequence[str]


@dataclass(kw_only=True)
class Runs:
    """The measured runs.

    Attributes:
        rows: rows of sound runs.
        reports: one report for each sound run.
        left_out: number of runs that were not sound.
    """

    rows: list[Row]
    reports: list[Report]
    left_out: int = 0

    def __str__(self) -> str:
        """Return how well the emulator kept up."""
        if not self.reports:
            return f"none of {self.left_out} runs was sound: the emulator was too slow"
        latest = max(self.reports, key=lambda report: report.late or 0)
        return f"{latest} (the latest of {len(self.reports)} runs; left out: {self.left_out})"


def measure_network(scenario: Path, streams: Sequence[int], seconds: float) -> Measure:
    """Return the capacity, measured with each number of streams that the emulator can carry.

    Raises:
        SystemExit: the emulator never kept up.
    """
    measures = []
    for count in streams:
        for _ in range(TRIES):
            lab = Lab(scenario)
            with lab:
                measure = carried(lab, count, seconds)
            assert lab.report is not None
            print(lab.report, flush=True)
            if lab.report.sound:
                measures.append(measure)
                break
    if not measures:
        raise SystemExit("this machine is too slow, or too busy, for this network")
    best = max(measures, key=lambda one: one.mbit)
    return replace(best, iperf={name: v for one in measures for name, v in one.iperf.items()})


def carried(lab: Lab, count: int, seconds: float) -> Measure:
    """Return the rate of `count` streams, in Mbit/s of the slower direction."""
    plain = min(iperf(lab, 0, 1, streams=count, both_ways=True, seconds=seconds))
    rate = lab.path(*lab.scenario["hosts"][:2]).mbit * 0.95 / count
    paced = min(iperf(lab, 0, 1, streams=count, both_ways=True, pace_mbit=rate, seconds=seconds))
    print(
        f"iperf3, {count:2} streams both ways: {plain:5.0f} Mbit/s, paced {paced:5.0f}", flush=True
    )
    return Measure(
        hosts=len(lab.hosts),
        round_trip_ms=ping(lab, 0, 1),
        mbit=max(plain, paced),
        iperf={f"{count} streams": plain, f"{count} streams, paced": paced},
    )


def calls(lab: Lab, backend: str, plan: Plan, program: Path, run: int) -> list[Row]:
    """Return the calls of one run of a backend."""

    def row(name: str, wall_and_cpu: tuple[float, float]) -> Row:
        seconds, cpu = wall_and_cpu
        return Row(run=run, backend=backend, name=name, seconds=seconds, cpu=cpu)

    if backend == "floor":
        return [row("first", floor_at(program, plan.mib, lab.namespaces()))]
    world = World(
        backend, len(lab.hosts), places=lab.places(), address=lab.hosts[0].address, device="wan0"
    )
    try:
        names = SERIES[backend]
        series = Case(name="", tensor_bytes=plan.mib * MIB, series=len(names), goals={})
        walls, cpu = world.all_reduce_series(series)
        rows = [row(name, (wall, cpu)) for name, wall in zip(names, walls, strict=True)]
        if plan.idle > 0 and backend in PCCL:
            # The pause is part of the measurement: the first call after idle time, as between two
            # outer steps of DiLoCo. TCP forgets its congestion window meanwhile.
            time.sleep(plan.idle)
            once = Case(name="", tensor_bytes=plan.mib * MIB, goals={})
            rows.append(row(f"after {plan.idle:g} s", world.all_reduce(once)))
        return rows
    finally:
        world.close()


def measure(scenario: Path, plan: Plan, seen: Callable[[Row], None]) -> Runs:
    """Let the backends take turns; show each call to `seen`."""
    runs = Runs(rows=[], reports=[])
    with tempfile.TemporaryDirectory() as folder:
        program = build_floor(folder)
        begun = time.monotonic()
        for done in range(TRIES * plan.runs):
            if len(runs.reports) == plan.runs:
                break
            passed = time.monotonic() - begun
            if done > 0 and passed * (done + 1) / done > plan.seconds_max:
                print(f"no time for more than {len(runs.reports)} of {plan.runs} runs", flush=True)
                break
            lab = Lab(scenario)
            rows: list[Row] = []
            with lab:
                for backend in plan.backends:
                    for row in calls(lab, backend, plan, program, len(runs.reports) + 1):
                        rows.append(row)
                        seen(row)
            assert lab.report is not None
            print(lab.report, flush=True)
            if lab.report.sound:
                runs.rows += rows
                runs.reports.append(lab.report)
            else:
                runs.left_out += 1
    return runs


def main() -> None:
    """Print each call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--mib", type=at_least_one, default=256, help="of float32 per rank")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of silence; 0: no such")
    parser.add_argument("--runs", type=at_least_one, default=1, help="of fresh processes")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no run beyond these")
    add_counts(parser, "--streams", STREAMS, "of iperf3")
    parser.add_argument("--iperf-seconds", type=float, default=8.0)
    parser.add_argument("--skip-plain", action="store_true", help="pccl in plain text")
    parser.add_argument("--skip-gloo", action="store_true")
    parser.add_argument("--skip-floor", action="store_true")
    records.add_option(parser)
    options = parser.parse_args()
    skipped = {
        "pccl": options.skip_plain,
        "gloo": options.skip_gloo,
        "floor": options.skip_floor,
    }
    plan = Plan(
        mib=options.mib,
        runs=options.runs,
        idle=options.idle,
        seconds_max=60 * options.minutes,
        backends=[name for name in (*SERIES, "floor") if not skipped.get(name)],
    )
    network = measure_network(options.scenario, options.streams, options.iperf_seconds)
    hosts = network.hosts
    megabits = 2 * (hosts - 1) / hosts * options.mib * MIB * 8 / 1e6
    limit = megabits / network.mbit + 2 * (hosts - 1) * network.round_trip_ms / 2e3
    print(f"round trip {network.round_trip_ms:.1f} ms; the limit is {limit:.2f} s", flush=True)

    def show(row: Row) -> None:
        rate = megabits / row.seconds
        print(
            f"{row.backend}, {row.name} call: {row.seconds:6.2f} s, {rate:5.0f} Mbit/s, "
            f"{rate / network.mbit:.2f} of iperf3's best, {limit / row.seconds:.2f} of the "
            f"limit, {row.cpu:.2f} CPU s/GB",
            flush=True,
        )

    runs = measure(options.scenario, plan, show)
    print(runs)
    facts = {
        "scenario": options.scenario.stem,
        "mib": options.mib,
        "megabits": megabits,
        "limit": limit,
        "round_trip_ms": network.round_trip_ms,
        "best_mbit": network.mbit,
        "iperf": network.iperf,
        "emulator": str(runs),
        "sound": bool(runs.reports),
    }
    record = records.Record(
        congestion=Lab.congestion, rounds=len(runs.reports), rows=runs.rows, facts=facts
    )
    records.write(record, options.json)


if __name__ == "__main__":
    run_main(main)
