"""A waterfall of one quantized all-reduce: where the time of a call goes, besides its bytes.

    sudo .venv/bin/python benchmarks/wan/waterfall.py benchmarks/wan/europe.toml

The ranks are on the hosts of the scenario, as in quantized.py. After some calls that do not count,
the emulator records the packets of each call (trace.h). The call of the median time is shown, in
milliseconds after the call of the first rank, and in round trips, which means the longest RTT of
two hosts:
  - all phases, with the first and the last byte between any two hosts. They overlap;
  - the critical path, from the call to the return of the last rank. Its steps lie end to end. The
    time of each is divided into bytes, distance and the rest, which has a name (critical_path.py).
    If a step waits for bytes, the last column has the bytes that left during it: those of both
    legs, and those of lost packets;
  - the sum of each of these names.
The goal is 1.5 round trips, plus the bytes at the rate of the network: these are all frames of the
call, in full packets with their headers, in the busiest uplink, path or trunk.

The tensor of a scenario with `scale` is the report's 1.073 GB divided by it, otherwise 256 MiB. All
ranks share the cores of this machine. If the cores were busy, "processor" is longer than on
machines of their own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import packets
import records
from all_reduce import FORMATS, MIB, PATTERNS, Case, World
from critical_path import BYTES, DISTANCE, PARTS, RESTS, Call, Network, Phase, Step
from lab import Lab
from load import Loaded
from options import at_least_one
from processes import run_main
from quantized import DEFAULT_BYTES
from records import size_name
from worlds import REPORT_BYTES

GOAL_ROUND_TRIPS = 1.5
SETTLE_S = 0.05  # after the return of the last rank: verdicts arrive
SHOWN_MS = 0.05  # a part of less time is not shown
WAITED_MS = 1.0  # a step that waits for bytes for less time does not show them


@dataclass(kw_only=True)
class Row:
    """A step of the critical path, in milliseconds.

    Attributes:
        begin: after the call of the first rank.
        end: likewise.
        bytes: the network was busy.
        distance: half a round trip.
        rest: everything else, by its name in critical_path.py.
        sent: number of bytes that left in this time, by their leg, and of lost ones.
    """

    what: str
    where: str
    begin: float
    end: float
    bytes: float
    distance: float
    rest: dict[str, float]
    sent: dict[str, int]


@dataclass(kw_only=True)
class Facts(Loaded):
    """What all calls have in common.

    Attributes:
        calls: milliseconds of each call.
        emulator: its observations.
        sound: whether the figures may be used.
    """

    scenario: str
    hosts: int
    bytes: int
    format: str
    calls: list[float] = field(default_factory=list)
    emulator: str = ""
    sound: bool = False


@dataclass(kw_only=True)
class Seen:
    """A call; times in milliseconds.

    Attributes:
        pattern: how the data has travelled.
        took: from the call of the first rank to the return of the last one.
        rtt: the longest RTT of two hosts.
        bytes_alone: time of all frames of the call at the rate of the network.
        phases: fields of critical_path.Phase, with `bytes_ms`.
        rows: the critical path.
    """

    pattern: str
    took: float
    rtt: float
    bytes_alone: float
    phases: list[dict[str, Any]]
    rows: list[Row]

    @property
    def goal(self) -> float:
        """1.5 round trips and the bytes."""
        return GOAL_ROUND_TRIPS * self.rtt + self.bytes_alone

    @property
    def sums(self) -> dict[str, float]:
        """The time of the call by the names of critical_path.py."""
        sums = dict.fromkeys(PARTS, 0.0)
        for row in self.rows:
            for name, one in {BYTES: row.bytes, DISTANCE: row.distance, **row.rest}.items():
                sums[name] += one
        return sums


# ---- Rows of a call ------------------------------------------------------------------------------


def row_of(step: Step, call: Call, names: Sequence[str]) -> Row:
    """Return the row of a step."""
    where = names[step.host]
    if step.target is not None:
        where += f" to {names[step.target]}"
    return Row(
        what=step.what,
        where=where,
        begin=1e3 * (step.begin - call.begin),
        end=1e3 * (step.end - call.begin),
        bytes=1e3 * step.parts.get(BYTES, 0.0),
        distance=1e3 * step.parts.get(DISTANCE, 0.0),
        rest={name: 1e3 * step.parts[name] for name in RESTS if step.parts.get(name, 0.0) > 0},
        sent=step.sent,
    )


def phase_of(phase: Phase, call: Call) -> dict[str, Any]:
    """Return a phase with times in milliseconds after the call of the first rank."""
    return {
        **asdict(phase),
        "begin": 1e3 * (phase.begin - call.begin),
        "end": 1e3 * (phase.end - call.begin),
        "bytes_ms": 1e3 * phase.bytes_s,
    }


def seen_in(call: Call, names: Sequence[str]) -> Seen:
    """Return what the tables need of a call.

    Args:
        names: of the hosts.

    Raises:
        TraceError: its critical path cannot be followed.
    """
    return Seen(
        pattern=call.pattern,
        took=1e3 * (call.end - call.begin),
        rtt=1e3 * call.network.rtt,
        bytes_alone=1e3 * call.bytes_s,
        phases=[phase_of(phase, call) for phase in call.phases()],
        rows=[row_of(step, call, names) for step in call.path()],
    )


# ---- The tables ----------------------------------------------------------------------------------


def aligned(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in plain text. Columns of numbers are aligned to the right."""
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, cells)) for cells in zip(head, *lines, strict=True)]
    texts = [any(cell.strip("0123456789.%") for cell in cells) for cells in columns]

    def line(cells: Sequence[str]) -> str:
        placed = [
            cell.ljust(width) if is_text else cell.rjust(width)
            for cell, width, is_text in zip(cells, widths, texts, strict=True)
        ]
        return "  ".join(placed).rstrip()

    return "\n".join(map(line, (head, *lines)))


def shown(milliseconds: float) -> str:
    """Return a time with a digit, or nothing for almost none."""
    return f"{milliseconds:.1f}" if abs(milliseconds) >= SHOWN_MS else ""


def rest_text(row: Row) -> str:
    """Return the names of the rest, the longest one first."""
    parts = sorted(row.rest.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {shown(one)}" for name, one in parts if shown(one))


def sent_text(row: Row) -> str:
    """Return the sizes of everything that left, if the step waited for bytes."""
    if row.bytes < WAITED_MS:
        return ""
    return ", ".join(f"{name.split(' (')[0]} {size_name(one)}" for name, one in row.sent.items())


def phases_table(seen: Seen) -> str:
    """Return the table of all phases."""
    lines = []
    for phase in seen.phases:
        begin, end = phase["begin"], phase["end"]
        trips = [f"{one / seen.rtt:.2f}" for one in (begin, end)]
        size = size_name(phase["bytes"]) if phase["bytes"] else ""
        lines.append(
            [phase["what"], f"{begin:.1f}", f"{end:.1f}", *trips, shown(phase["bytes_ms"]), size]
        )
    head = ["all hosts", "begin ms", "end ms", "begin RTT", "end RTT", "bytes ms", "size"]
    return aligned(head, lines)


def path_table(seen: Seen) -> str:
    """Return the table of the critical path."""
    lines = [
        [
            row.what,
            row.where,
            *(f"{one:.1f}" for one in (row.begin, row.end)),
            f"{(row.end - row.begin) / seen.rtt:.2f}",
            *map(shown, (row.bytes, row.distance, sum(row.rest.values()))),
            rest_text(row),
            sent_text(row),
        ]
        for row in seen.rows
    ]
    head = ["critical path", "host", "begin ms", "end ms", "RTT"]
    head += ["bytes ms", "distance ms", "rest ms", "the rest is", "bytes that left"]
    return aligned(head, lines)


def sums_table(seen: Seen) -> str:
    """Return the table of the sums."""
    lines = [
        [name, f"{one:.1f}", f"{one / seen.rtt:.2f}", f"{one / seen.took:.0%}"]
        for name, one in seen.sums.items()
        if shown(one)
    ]
    lines.append(["the call", f"{seen.took:.1f}", f"{seen.took / seen.rtt:.2f}", ""])
    return aligned(["in all", "ms", "RTT", "share"], lines)


def report(seen: Seen) -> str:
    """Return everything about a call as text."""
    goal = (
        f"the call took {seen.took:.1f} ms, {seen.took / seen.rtt:.2f} RTT; the goal is "
        f"{seen.goal:.1f} ms: {GOAL_ROUND_TRIPS:g} RTT of {seen.rtt:g} ms, and "
        f"{seen.bytes_alone:.1f} ms for the bytes; the call took {seen.took / seen.goal:.2f} of it"
    )
    return "\n\n".join((goal, phases_table(seen), path_table(seen), sums_table(seen)))


# ---- A run ---------------------------------------------------------------------------------------


def traced(lab: Lab, world: World, case: Case, file: Path) -> Call:
    """Make a call, and return it with its packets.

    Raises:
        packets.TraceError: the packets cannot be understood.
    """
    plan = lab.plan()
    lab.trace()
    times = world.all_reduce_timed(case)
    # The trace needs the last messages, too. No rank waits for these, so no event marks their end.
    time.sleep(SETTLE_S + 2e-3 * max(path.rtt_ms for path in plan.paths.values()))
    lab.trace(file)
    addresses = [host.address for host in lab.hosts]
    flows = packets.by_flow(packets.read(file, addresses))
    assert world.master is not None
    master = (0, int(world.master.address.rsplit(":", 1)[1]))
    frames, messages = packets.decoded(flows, master=master)
    return Call(Network(plan, flows), frames, messages, times)


def measure(lab: Lab, options: argparse.Namespace, facts: Facts) -> list[Seen]:
    """Return the traced calls; fill the load, and the observations of the emulator."""
    case = Case(name="", tensor_bytes=facts.bytes, quantize=facts.format, goals={})
    names = [f"{number} {region}" for number, region in enumerate(lab.scenario["hosts"])]
    backend = {pattern: name for name, pattern in PATTERNS.items()}.get(options.pattern, "pccl")
    calls: list[Seen] = []
    with lab, tempfile.TemporaryDirectory(prefix="pccl-wan-") as folder:
        places = lab.places()
        address = lab.hosts[0].address
        world = World(backend, len(places), places=places, address=address, device="wan0")
        try:
            for _ in range(options.pilots):
                seconds, _ = world.all_reduce(case)
                print(f"{seconds * 1e3:.1f} ms (not counted)", flush=True)
            for _ in range(options.rounds):
                with facts.watched(lab, "pccl"):
                    call = traced(lab, world, case, Path(folder) / "trace")
                calls.append(seen_in(call, names))
                print(f"{calls[-1].took:.1f} ms", flush=True)
        finally:
            world.close()
    assert lab.report is not None
    facts.emulator, facts.sound = str(lab.report), lab.report.sound
    return calls


def main() -> int:
    """Print the waterfall of the median call; return 1 if the emulator did not keep up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", type=Path)
    parser.add_argument(
        "--pattern",
        choices=sorted(PATTERNS.values()),
        help="of the all-reduce (PCCL_PATTERN); without it: the choice of pccl",
    )
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0])
    parser.add_argument("--pilots", type=at_least_one, default=2, help="calls that do not count")
    parser.add_argument("--rounds", type=at_least_one, default=3, help="calls that are traced")
    parser.add_argument("--mib", type=at_least_one, help="of the tensor (default: the scenario's)")
    records.add_option(parser)
    options = parser.parse_args()
    if (options.format, options.pattern) == ("4bit", "ring"):
        parser.error("--pattern ring: tensors in 4 bits do not go around the ring")
    lab = Lab(options.scenario, traces=True)
    scale = lab.scenario.get("scale")
    size = options.mib * MIB if options.mib else int(REPORT_BYTES / scale) if scale else 0
    facts = Facts(
        scenario=options.scenario.stem,
        hosts=len(lab.scenario["hosts"]),
        bytes=(size or DEFAULT_BYTES) // 4 * 4,
        format=options.format,
    )
    try:
        calls = measure(lab, options, facts)
    except packets.TraceError as error:
        raise SystemExit(f"no waterfall: {error}") from None
    facts.calls = [call.took for call in calls]
    call = calls[facts.calls.index(statistics.median_low(facts.calls))]
    size_text = size_name(facts.bytes)
    print(
        f"\n{facts.scenario}: {facts.hosts} hosts, {size_text} of float32, {facts.format}, "
        f"{call.pattern}\n{report(call)}\n\n{facts.emulator}; in calls {facts.load()}"
    )
    summary = {**asdict(facts), **asdict(call), "goal": call.goal, "sums": call.sums}
    del summary["rows"]
    record = records.Record(
        congestion=Lab.congestion, rounds=options.rounds, rows=call.rows, facts=summary
    )
    records.write(record, options.json)
    return int(not facts.sound)


if __name__ == "__main__":
    run_main(main)
