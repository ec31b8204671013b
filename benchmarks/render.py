"""Renders the measured figures as sections of RESULTS.md: text, tables, pictures."""

from __future__ import annotations

import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import all_reduce
import collectives
import counters
import curve
import ddp_step
import groups
import hosts
import latency
import load
import memory
import patterns
import plots
import quantized_error
import records
import throughput
import uplinks
import worlds
from records import Record
from sections import ResultsError, table

# The contenders of a wide-area call.
NAMES = {
    "pccl-tls": "pccl",
    "pccl": "pccl with `--insecure`",
    "gloo": "Gloo",
    "floor": "bare ring",
}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Place and time of the measurement; `congestion` is the machine's own setting."""

    date: str
    cores: int
    cpu: str
    kernel: str
    load: float
    congestion: str

    @classmethod
    def here(cls) -> Machine:
        """Return this machine, now."""
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
        return cls(
            date=time.strftime("%Y-%m-%d"),
            cores=os.cpu_count() or 1,
            cpu=found[1].strip() if found else platform.machine(),
            kernel=platform.release(),
            load=os.getloadavg()[0],
            congestion=records.congestion_here(),
        )


@dataclass(frozen=True, kw_only=True)
class Result:
    """One successful run of a script: its record, and the command that repeats it."""

    command: str
    record: Record[Any]


@dataclass(frozen=True, kw_only=True)
class Body:
    """A section: its text, and its pictures by file name."""

    text: str
    pictures: Mapping[str, plots.Draw]


Results = Mapping[str, Result]  # by the names of a part's runs


def provenance(machine: Machine, results: Sequence[Result]) -> str:
    """Return how the figures were measured, one sentence per run."""
    where = (
        f"Measured {machine.date} on {machine.cores} cores ({machine.cpu}, Linux "
        f"{machine.kernel}), load before it {machine.load:.2f}."
    )
    runs = [
        f"`{result.command}`: {result.record.congestion}, "
        f"{result.record.rounds} {'round' if result.record.rounds == 1 else 'rounds'}."
        for result in results
    ]
    return "\n".join([where, *runs]) + "\n"


def picture(name: str, what: str) -> str:
    """Return the line that shows a picture."""
    return f"![{what}](plots/{name})\n"


def section(title: str, machine: Machine, results: Results, *parts: str) -> str:
    """Return a section's text: how it was measured, then its parts, separated by blank lines."""
    head = [f"## {title}\n", provenance(machine, list(results.values()))]
    return "\n".join([*head, *parts])


# ---- One function for each part ------------------------------------------------------------------


def loopback(machine: Machine, results: Results) -> Body:
    """Render the table under the stock congestion control, and a short one under the machine's."""
    rows: list[all_reduce.Row] = results["loopback"].record.rows
    parts = [
        "Medians (fastest-slowest); CPU seconds of all ranks per GB of one rank's tensor. The "
        "limit is the\nrate of the loopback device by iperf3, a flow for each rank at once, "
        "and the hops: it falls with a congestion control that\npaces, which pccl does not use "
        "on a local path. The floor is a bare ring.\n",
        "\n".join([all_reduce.HEAD, *map(all_reduce.line, rows)]) + "\n",
        picture("loopback.png", "Wall time of pccl over Gloo's"),
    ]
    default = results.get("loopback-default")
    if machine.congestion == results["loopback"].record.congestion:
        parts.append("The machine's own congestion control is this one too.\n")
    if default is not None:
        lines = [all_reduce.HEAD, *map(all_reduce.line, default.record.rows)]
        own = f"The same under this machine's default, {default.record.congestion}:\n"
        parts += [own, "\n".join(lines) + "\n"]
    return Body(
        text=section("All-reduce on loopback", machine, results, *parts),
        pictures={"loopback.png": lambda path: plots.ratios(rows, path)},
    )


def cost(machine: Machine, results: Results) -> Body:
    """Render the cost over world size and tensor size."""
    record = results["curve"].record
    rows: list[curve.Row] = record.rows
    kinds = list(dict.fromkeys((row.world, row.bytes) for row in rows))
    lines = [curve.line([row for row in rows if (row.world, row.bytes) == kind]) for kind in kinds]
    parts = [
        "One call, median (fastest-slowest). Sent: by the host that sent most, with headers, "
        "over the\nbytes that a ring has to send.\n",
        "\n".join([curve.HEAD, *lines]) + "\n",
    ]
    large = [row.sent for row in rows if row.sent and row.bytes >= curve.SENT_GOAL_FROM]
    if large:
        parts.append(
            f"From {records.size_name(curve.SENT_GOAL_FROM)} up the most is {max(large):.4f} "
            f"(goal {curve.SENT_GOAL:g} and headers).\n"
        )
    if record.facts["left_out"]:
        without = ", ".join(record.facts["left_out"])
        parts.append(f"Left out, too large for memory or its budget of 8 GiB: {without}.\n")
    parts.append(picture("curve.png", "Wall time over size, a line for each world"))
    return Body(
        text=section("Cost over world size and size", machine, results, *parts),
        pictures={"curve.png": lambda path: plots.cost_curve(rows, path)},
    )


def system(machine: Machine, results: Results) -> Body:
    """Render system calls and context switches."""
    rows: list[counters.Row] = results["counters"].record.rows
    parts = [
        f"All-reduce of {rows[0].mib} MiB, of one rank; empty: not known.\n",
        "\n".join([counters.HEAD, *map(counters.line, rows)]) + "\n",
    ]
    return Body(text=section("What it asks of the system", machine, results, *parts), pictures={})


def per_call(machine: Machine, results: Results) -> Body:
    """Render the latencies of calls."""
    rows: list[latency.Row] = results["latency"].record.rows
    parts = [
        f"World 2, a network of {latency.PARAMETERS * 4 // 1000} KB in {latency.TENSORS} tensors. "
        "The first: called by a thread that has\njust woken up, with cold caches. torch's fake "
        "backend, which does nothing, is measured at the same\nplace; below 0 is what it takes "
        "longer. torch's flight recorder records calls of all backends but that\none; "
        "TORCH_FR_BUFFER_SIZE=0 turns it off.\n",
        "\n".join([latency.HEAD, *map(latency.line, rows)]) + "\n",
    ]
    return Body(text=section("Latency of calls", machine, results, *parts), pictures={})


def held(machine: Machine, results: Results) -> Body:
    """Render the memory beyond a tensor."""
    rows: list[memory.Row] = results["memory"].record.rows
    parts = [
        f"A tensor of {rows[0].mib} MiB.\n",
        "\n".join([memory.HEAD, *map(memory.line, rows)]) + "\n",
    ]
    return Body(text=section("Memory of a call", machine, results, *parts), pictures={})


def every_call(machine: Machine, results: Results) -> Body:
    """Render the collectives beside Gloo."""
    rows: list[collectives.Row] = results["collectives"].record.rows
    parts = [
        "Both backends in the same processes, in turns: medians of the rounds. CPU is that of\n"
        "all ranks. Peak is the most memory that a call adds to a rank, beyond its tensors.\n"
        "A call that is one hop in Gloo is a hop and a commit here, and what it overwrites is\n"
        "saved first. Restoring: the share of the time that PCCL_RESTORE=off saves. Committing:\n"
        "the share after the last byte of the rank that was done last (in send/recv: of the\n"
        "sender's).\n",
        "\n".join([collectives.HEAD, *map(collectives.line, rows)]) + "\n",
    ]
    return Body(text=section("Every collective", machine, results, *parts), pictures={})


def new_groups(machine: Machine, results: Results) -> Body:
    """Render the time to make a group."""
    rows: list[groups.Row] = results["groups"].record.rows
    parts = [
        "A group of each backend in turn, by `dist.new_group`, in processes that have a group of\n"
        "both already: the time until the last rank has it.\n",
        "\n".join([groups.HEAD, *map(groups.line, rows)]) + "\n",
    ]
    return Body(text=section("Further groups", machine, results, *parts), pictures={})


def between_hosts(machine: Machine, results: Results) -> Body:
    """Render the cost of a byte between hosts."""
    rows: list[hosts.Row] = results["hosts"].record.rows
    parts = [
        "Network namespaces with an MTU of 1500, two joined by a veth pair, four by a bridge; "
        "float32. CPU is the\ntime of all ranks per GB of one rank's tensor. The pump seals and "
        "opens the bytes that they send for it with\nAES-128-GCM, and does nothing else.\n",
        "\n".join([hosts.HEAD, *map(hosts.line, rows)]) + "\n",
    ]
    return Body(text=section("Hosts of a local network", machine, results, *parts), pictures={})


def averaged_steps(machine: Machine, results: Results) -> Body:
    """Render the time of a step with an average of the peers' gradients."""
    rows: list[ddp_step.Row] = results["ddp"].record.rows
    parts = [
        f"Two peers, AdamW, {ddp_step.TENSORS * ddp_step.EDGE**2 / 1e6:.1f} million parameters in "
        f"{ddp_step.TENSORS} tensors, float32. The step is\n`optimizer.step()`: trainers.DDP "
        "averages the gradients in it, and meets. torch's DDP averages them in `backward()`.\n"
        "Alone: two processes that average nothing.\n",
        "\n".join([ddp_step.HEAD, *map(ddp_step.line, rows)]) + "\n",
    ]
    return Body(text=section("A step of trainers.DDP", machine, results, *parts), pictures={})


def quantized(machine: Machine, results: Results) -> Body:
    """Render the error of quantized sums over the number of members."""
    rows: list[quantized_error.Row] = results["quantized"].record.rows
    members = sorted({row.members for row in rows})
    parts = [
        "A model in one process, with the codes of the wire. Direct: each tensor is quantized "
        "once, and so is the sum, in 8 bits\n(not between two members). Ring per hop "
        "(`PCCL_PATTERN=ring`): each hop quantizes the partial sum again. pccl refuses\n4 bits "
        "there, and two members never take it. The error is that of the sum against its size. The "
        "pseudo-gradients are\nthose of a GPT after 12 steps of each peer.\n",
        "\n".join([quantized_error.head(members), *quantized_error.lines(rows)]) + "\n",
        picture("quantized_error.png", "Error of a quantized sum over the number of members"),
    ]
    return Body(
        text=section("Error of quantized sums", machine, results, *parts),
        pictures={"quantized_error.png": lambda path: plots.errors(rows, path)},
    )


def atlantic(machine: Machine, results: Results) -> Body:
    """Render the throughput of calls over a wan path."""
    record = results["atlantic"].record
    facts = record.facts
    if not facts["sound"]:
        raise ResultsError(facts["emulator"])
    rows: list[throughput.Row] = record.rows
    lines = []
    for backend, name in dict.fromkeys((row.backend, row.name) for row in rows):
        own = [row for row in rows if (row.backend, row.name) == (backend, name)]
        rates = [facts["megabits"] / row.seconds for row in own]
        middle = statistics.median(rates)
        goal = throughput.GOALS.get(name) if backend in all_reduce.PCCL else None
        lines.append(
            [
                f"{NAMES[backend]}, {name} call",
                f"{middle:.0f} ({min(rates):.0f}-{max(rates):.0f})",
                f"{middle / facts['best_mbit']:.2f}",
                "" if goal is None else f"{goal:g}",
                f"{facts['limit'] * middle / facts['megabits']:.2f}",
                f"{statistics.median(row.cpu for row in own):.2f}",
            ]
        )
    head = ["", "Mbit/s (least-most)", "of iperf3's best", "goal", "of the limit", "CPU s/GB"]
    measured = ", ".join(f"{rate:.0f} with {name}" for name, rate in facts["iperf"].items())
    parts = [
        f"Two hosts in network namespaces (`wan/{facts['scenario']}.toml`), "
        f"{facts['round_trip_ms']:.1f} ms there and back; one plain all-reduce of\n"
        f"{facts['mib']} MiB, nothing set, processes made anew for each round. iperf3, both ways "
        f"at once, the slower\ndirection, Mbit/s: {measured}.\nThe limit is the best of these "
        f"and the hops: {facts['limit']:.2f} s. The bare ring sends, receives and adds over one\n"
        "connection, with the system's buffers.\n",
        table(head, lines),
        f"{facts['emulator']}. Lost are those that found a queue full, too.\n",
        picture("atlantic.png", "Throughput of each call"),
    ]
    return Body(
        text=section("Across an ocean", machine, results, *parts),
        pictures={"atlantic.png": lambda path: plots.calls(rows, facts, path)},
    )


def many_hosts(machine: Machine, results: Results) -> Body:
    """Render worlds of many hosts beside the limits of their networks."""
    every: list[worlds.Row] = [row for result in results.values() for row in result.record.rows]
    rows, without = _sound(every)
    lines = []
    for row in rows:
        middle = statistics.median(row.wall["pccl"])
        cells = [f"`{row.scenario}`, {row.hosts} hosts, {row.bytes / 1e6:.1f} MB"]
        cells += [f"{row.by_rate:.2f} s", f"{row.by_hops:.2f} s", records.spread(row.wall["pccl"])]
        cells += [f"{row.limit / middle:.2f}", f"{worlds.GOAL:g}"]
        rivals = ("gloo", worlds.GLOO_IN_GROUPS, "floor")
        walls = {name: records.spread(row.wall[name]) for name in rivals if name in row.wall}
        if worlds.GLOO_IN_GROUPS in walls:
            walls[worlds.GLOO_IN_GROUPS] += f" in {row.groups}"
        cells += [walls.get(name, "") for name in rivals]
        cells.append(
            ", ".join(
                f"{statistics.median(row.cpu[name]):.2f}" if name in row.cpu else ""
                for name in ("pccl", *rivals)
            )
        )
        cells.append(row.load())
        lines.append(cells)
    head = ["", "at iperf3's rate", "for the distance", "pccl", "of the limit", "goal"]
    head += ["Gloo", "Gloo in groups", "bare ring", "CPU s/GB of these four", "network"]
    parts = [
        "Each a ring in the order of the scenario; the limit is the bytes that a host has to send, "
        "at the rate of the\nslowest path, and the hops: those of one chunk pass while others are "
        "sent, so that it can be beaten. All rates and\nthe tensor are the report's, divided by "
        "the scenario's scale. The bare ring sends, receives and adds\nover one connection. Gloo "
        "in groups: the tensor cut into parts, each in a group of its own, all at once, in as\n"
        "many as were fastest in a pilot. Rivals may have fewer rounds. The last column has the "
        "share of each core that the\nemulated network takes in calls of pccl, and the share of "
        f"all cores that is busy: above {load.CORES_BUSY_MAX:g} the hosts\nwait for cores, and the "
        "row is open.\n",
        table(head, lines),
        without,
        picture("worlds.png", "What share of the limit each reaches in each world"),
    ]
    return Body(
        text=section("Worlds of many hosts", machine, results, *filter(None, parts)),
        pictures={"worlds.png": lambda path: plots.against_limit(rows, path)},
    )


def by_pattern(machine: Machine, results: Results) -> Body:
    """Render the ring and the direct pattern in worlds where order and shares matter."""
    every: list[patterns.Row] = [row for result in results.values() for row in result.record.rows]
    rows, without = _sound(every)
    parts = [
        "`unequal`: each pair of hosts has other paths; the slowest hop of the ring has 20 Mbit/s "
        "in the order of the hosts,\nand 240 in the best one. `home`: a host sends 60 Mbit/s in "
        "all, and owns nothing in the last direct all-reduce.\n`ocean`: all pairs across it share "
        "120 Mbit/s. `both`: 18 hosts on both sides of an ocean; windows\nare as small as the "
        "scaled rates, so that losses cost much. The ring is in the order of the hosts unless it "
        "says\notherwise, and so is Gloo. After a time: how many times faster than that ring.\n",
        "\n".join([patterns.HEAD, *map(patterns.line, rows)]) + "\n",
        without,
        picture("patterns.png", "How many times faster than the ring each is"),
    ]
    return Body(
        text=section("Ring and direct pattern", machine, results, *filter(None, parts)),
        pictures={"patterns.png": lambda path: plots.by_pattern(rows, path)},
    )


def hosts_with_uplinks(machine: Machine, results: Results) -> Body:
    """Render the same tensor in growing worlds."""
    every: list[worlds.Row] = [row for result in results.values() for row in result.record.rows]
    rows, without = _sound(every)
    growing = [row for row in results["uplinks"].record.rows if row.sound]
    parts = [
        f"{records.size_name(rows[0].bytes)}; all hosts 10 ms from each other. The limit is the "
        "bytes that a host has to send, at the rate\nthat iperf3 reaches, and the hops. Hosts and "
        "network share the machine: where slower uplinks come nearer\nto their limit, its cores "
        "hold up the others. The last column has the share of each core that the network takes, "
        "and the share of all\ncores that is busy.\n",
        "\n".join([uplinks.HEAD, *map(uplinks.line, rows)]) + "\n",
        without,
        picture("uplinks.png", "Wall time over the number of hosts"),
    ]
    return Body(
        text=section("Hosts with uplinks alike", machine, results, *filter(None, parts)),
        pictures={"uplinks.png": lambda path: plots.uplinks(growing, path)},
    )


R = TypeVar("R", worlds.Row, patterns.Row)


def _sound(rows: Sequence[R]) -> tuple[list[R], str]:
    """Return the rows that may be used, and a text about the others."""
    bad = [f"{row.scenario} ({row.emulator})" for row in rows if not row.sound]
    good = [row for row in rows if row.sound]
    if not good:
        raise ResultsError("; ".join(bad))
    return good, f"Left out: {'; '.join(bad)}.\n" if bad else ""


Render = Callable[[Machine, Results], Body]
