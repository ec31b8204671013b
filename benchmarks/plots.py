"""The pictures in RESULTS.md, drawn from the measured figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import matplotlib

matplotlib.use("Agg")

import all_reduce
import curve
import matplotlib.pyplot as plt
import patterns
import quality
import quantized_error
import reconfigure
import records
import throughput
import worlds
from matplotlib.axes import Axes

PCCL, GLOO, GROUPS, FLOOR, LIMIT = "#0072b2", "#d55e00", "#e69f00", "#009e73", "#555555"
# Okabe and Ito: safe for colour blindness.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
NAMES = {
    "pccl": ("pccl", PCCL),
    "pccl-tls": ("pccl, TLS", LINES[5]),
    "gloo": ("Gloo", GLOO),
    worlds.GLOO_IN_GROUPS: ("Gloo in groups", GROUPS),
    "floor": ("bare ring", FLOOR),
}

PATTERNS = {
    patterns.RING: "ring, order of the hosts",
    patterns.BEST_RING: "ring, best order",
    patterns.DIRECT: "direct, equal shares",
    patterns.SHARES: "direct, shares of the scenario",
    patterns.PLAN: "plan of optimize_topology",
    patterns.GLOO: "Gloo",
}

Draw = Callable[[Path], None]


class Ratio(Protocol):
    """A point of a curve of deadlocks (deadlock_table/disorder_ratio.py)."""

    @property
    def disorder(self) -> float: ...
    @property
    def percent(self) -> float: ...
    @property
    def error(self) -> float: ...


@contextmanager
def _panels(
    path: Path, *, rows: int = 1, columns: int = 1, height: float = 4.5
) -> Iterator[list[list[Axes]]]:
    size = (8, height)
    figure, panels = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    try:
        for axes in panels.flat:
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        yield panels.tolist()
        figure.savefig(path, dpi=100)
    finally:
        plt.close(figure)


@contextmanager
def _picture(path: Path, *, height: float = 4.5) -> Iterator[Axes]:
    with _panels(path, height=height) as panels:
        yield panels[0][0]


def ratios(rows: Sequence[all_reduce.Row], path: Path) -> None:
    """Draw the wall time of pccl over Gloo's, a bar for each case."""
    with _picture(path, height=1.5 + 0.3 * len(rows)) as axes:
        places = range(len(rows))
        values = [row.median_wall("pccl") / row.median_wall("Gloo") for row in rows]
        axes.barh(places, values, color=PCCL, label="measured")
        goals = [(place, row.goal) for place, row in zip(places, rows, strict=True) if row.goal]
        axes.plot(
            [goal for _, goal in goals],
            [place for place, _ in goals],
            "|",
            color="black",
            markersize=12,
            label="goal",
        )
        axes.axvline(1.0, color=GLOO, linewidth=1.5, label="Gloo")
        axes.set_yticks(places, [f"{row.case}, world {row.world}" for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel("wall time of pccl ÷ wall time of Gloo (less is better)")
        axes.set_title("All-reduce on loopback")
        axes.legend(loc="best")


def cost_curve(rows: Sequence[curve.Row], path: Path) -> None:
    """Draw time over size, a line for each world."""
    with _picture(path) as axes:
        for world, colour in zip(sorted({row.world for row in rows}), LINES, strict=False):
            for backend, style in (("pccl", "o-"), ("Gloo", "x:")):
                own = sorted(
                    (row for row in rows if (row.world, row.backend) == (world, backend)),
                    key=lambda row: row.bytes,
                )
                if own:
                    axes.plot(
                        [row.bytes for row in own],
                        [statistics.median(row.wall) * 1e3 for row in own],
                        style,
                        color=colour,
                        label=f"{backend}, world {world}",
                    )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        sizes = sorted({row.bytes for row in rows})
        axes.set_xticks(sizes, [records.size_name(size) for size in sizes], rotation=30)
        axes.set_xlabel("tensor of each rank, float32")
        axes.set_ylabel("wall time of a call, ms")
        axes.set_title("What an all-reduce costs on loopback")
        axes.legend(fontsize=8)


def calls(rows: Sequence[throughput.Row], facts: dict[str, Any], path: Path) -> None:
    """Draw the throughput of each call in all runs, with iperf3's best."""
    kinds = list(dict.fromkeys((row.backend, row.name) for row in rows))
    with _picture(path) as axes:
        for place, kind in enumerate(kinds):
            rates = [
                facts["megabits"] / row.seconds for row in rows if (row.backend, row.name) == kind
            ]
            colour = NAMES[kind[0]][1]
            axes.bar(place, statistics.median(rates), color=colour, alpha=0.6)
            axes.plot([place] * len(rates), rates, "o", color=colour, markersize=4)
        axes.axhline(facts["best_mbit"], color=LIMIT, linestyle="--", label="iperf3's best")
        labels = [f"{NAMES[backend][0]},\n{name}" for backend, name in kinds]
        axes.set_xticks(range(len(kinds)), labels, fontsize=8)
        axes.set_ylabel("Mbit/s sent by each host")
        axes.set_title(
            f"All-reduce of {facts['mib']} MiB between two hosts, "
            f"{facts['round_trip_ms']:.0f} ms there and back: bars are medians"
        )
        axes.legend()


def against_limit(rows: Sequence[worlds.Row], path: Path) -> None:
    """Draw how near each contender comes to the limit of the network."""
    names = [name for name in NAMES if any(name in row.wall for row in rows)]
    width = 0.8 / len(names)
    with _picture(path) as axes:
        for index, name in enumerate(names):
            label, colour = NAMES[name]
            shown = [
                (place, row.limit / statistics.median(row.wall[name]))
                for place, row in enumerate(rows)
                if name in row.wall
            ]
            axes.bar(
                [place + (index - (len(names) - 1) / 2) * width for place, _ in shown],
                [share for _, share in shown],
                width,
                color=colour,
                label=label,
            )
        axes.axhline(1.0, color=LIMIT, linestyle="--", label="limit")
        axes.set_xticks(
            range(len(rows)),
            [f"{row.scenario}, {row.hosts} hosts,\n{row.bytes / 1e6:.1f} MB" for row in rows],
        )
        axes.set_ylabel("time that the network allows ÷ wall time")
        axes.set_title("All-reduce in worlds of many hosts (more is better)")
        axes.legend()


def by_pattern(rows: Sequence[patterns.Row], path: Path) -> None:
    """Draw how many times faster than the ring each contender is, in each world."""
    names = [name for name in patterns.CONTENDERS if any(name in row.wall for row in rows)]
    width = 0.8 / len(names)
    with _picture(path) as axes:
        for index, (name, colour) in enumerate(zip(names, LINES, strict=False)):
            shown = [(place, row.gain(name)) for place, row in enumerate(rows) if name in row.wall]
            axes.bar(
                [place + (index - (len(names) - 1) / 2) * width for place, _ in shown],
                [gain for _, gain in shown],
                width,
                color=colour,
                label=PATTERNS[name],
            )
        axes.axhline(1.0, color=LIMIT, linestyle="--")
        axes.set_yscale("log", base=2)
        axes.set_xticks(range(len(rows)), [f"{row.scenario}, {row.hosts} hosts" for row in rows])
        axes.set_ylabel("wall time of the ring ÷ wall time")
        axes.set_title("All-reduce of 16 MiB where order and shares matter (more is better)")
        axes.legend()


def uplinks(rows: Sequence[worlds.Row], path: Path) -> None:
    """Draw time over the number of hosts, with the limit as a line."""
    with _picture(path) as axes:
        hosts = [row.hosts for row in rows]
        limits = [row.by_rate + row.by_hops for row in rows]
        axes.plot(hosts, limits, "--", color=LIMIT, marker="_", label="limit")
        middles = [statistics.median(row.wall["pccl"]) for row in rows]
        axes.plot(hosts, middles, "o-", color=PCCL, label="pccl")
        axes.set_xscale("log", base=2)
        axes.set_xticks(hosts, [str(count) for count in hosts])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("hosts")
        axes.set_ylabel("wall time of a call, s")
        axes.set_title(f"All-reduce of {records.size_name(rows[0].bytes)}, uplinks of 200 Mbit/s")
        axes.legend()


def losses(rows: Sequence[quality.Row], path: Path) -> None:
    """Draw the loss over the bytes that a peer has sent, a line for each setting: all seeds' mean,
    and a point for each seed in the end."""
    names = list(dict.fromkeys(row.setting for row in rows))
    with _picture(path) as axes:
        for index, (name, colour) in enumerate(zip(names, (*LINES, LIMIT), strict=False)):
            width = 3.5 - 0.4 * index  # so that a line on another one does not hide it
            own = [row for row in rows if row.setting == name]
            sent = [statistics.mean(at) / 1e6 for at in _columns(own, 0)]
            mean = [statistics.mean(at) for at in _columns(own, 1)]
            axes.plot(sent, mean, "-", color=colour, label=name, linewidth=width)
            axes.plot([sent[-1]] * len(own), [row.loss for row in own], "o", color=colour, ms=4)
        axes.set_xscale("log")
        axes.set_xlabel("MB that a peer has sent")
        axes.set_ylabel("loss on text held out, nats per character")
        axes.set_title("Loss over bytes: lines are means of the seeds, points are the seeds")
        axes.legend(fontsize=8)


def _columns(rows: Sequence[quality.Row], which: int) -> Iterator[list[float]]:
    for points in zip(*(row.curve for row in rows), strict=True):
        yield [point[which] for point in points]


def errors(rows: Sequence[quantized_error.Row], path: Path) -> None:
    """Draw the error over the number of members: ring per hop dashed, direct solid."""
    with _picture(path) as axes:
        kinds = list(dict.fromkeys((row.data, row.bits) for row in rows))
        for (data, bits), colour in zip(kinds, LINES, strict=False):
            for way, style in ((quantized_error.RING, "x--"), (quantized_error.DIRECT, "o-")):
                own = [row for row in rows if (row.data, row.bits, row.way) == (data, bits, way)]
                axes.plot(
                    [row.members for row in own],
                    [100 * row.error for row in own],
                    style,
                    color=colour,
                    label=f"{data}, {bits} bits, {way}",
                )
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.05)  # room for the legend
        axes.set_xlabel("members")
        axes.set_ylabel("relative error of the sum, %")
        axes.set_title("Each tensor quantized once (direct), or each partial sum again (ring)")
        axes.legend(fontsize=8, ncols=2, loc="lower right")


def reconfigures(rows: Sequence[reconfigure.Row], path: Path) -> None:
    """Draw the time of a reconfigure over the number of ranks. Each network has a column; in the
    second row of panels, an all-reduce follows."""
    rtts = sorted({row.rtt_ms for row in rows})
    with _panels(path, rows=2, columns=len(rtts), height=7.0) as panels:
        for column, rtt_ms in enumerate(rtts):
            own = [row for row in rows if row.rtt_ms == rtt_ms]
            upper, lower = panels[0][column], panels[1][column]
            _by_change(upper, [(row, row.alone) for row in own])
            _by_change(lower, [(row, row.with_call) for row in own])
            upper.set_title(reconfigure.network_name(rtt_ms))
            lower.set_xlabel("ranks")
        panels[0][0].set_ylabel("reconfigure, ms")
        panels[1][0].set_ylabel("reconfigure and all-reduce of 1 MiB, ms")
        panels[0][0].legend(fontsize=8)


def _by_change(axes: Axes, times: Sequence[tuple[reconfigure.Row, dict[str, list[float]]]]) -> None:
    for backend in reconfigure.BACKENDS:
        label, colour = NAMES[backend]
        for kind, style in zip(reconfigure.KINDS, ("o-", "v--", "^:"), strict=True):
            own = sorted(
                (row.world, statistics.median(seconds[backend]) * 1e3)
                for row, seconds in times
                if row.kind == kind
            )
            axes.plot(
                [world for world, _ in own],
                [middle for _, middle in own],
                style,
                color=colour,
                markersize=4,
                label=f"{label}, {kind}",
            )
    worlds_shown = sorted({row.world for row, _ in times})
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xticks(worlds_shown, [str(world) for world in worlds_shown])


def deadlocks(
    simulated: Mapping[str, Sequence[Ratio]], measured: Mapping[str, Sequence[Ratio]], path: Path
) -> None:
    """Draw the ratio of deadlocks over the disorder: lines are simulated, and points measured."""
    with _picture(path) as axes:
        for (name, curve_), colour in zip(simulated.items(), LINES[1:], strict=False):
            x, y = [point.disorder for point in curve_], [point.percent for point in curve_]
            axes.plot(x, y, "-", color=colour, label=f"{name}, simulated")
        for (name, points), (marker, colour) in zip(
            measured.items(), (("s", LINES[1]), ("o", PCCL)), strict=True
        ):
            axes.errorbar(
                [point.disorder for point in points],
                [point.percent for point in points],
                [point.error for point in points],
                fmt=marker,
                color=colour,
                capsize=3,
                label=f"8 ranks, 32 calls, {name}, measured",
            )
        axes.set_xscale("log")
        axes.set_xlabel("probability that a rank skips the next call of its list")
        axes.set_ylabel("rounds with a deadlock, %")
        axes.set_title("Deadlocks of collectives that ranks call in different orders")
        axes.legend(fontsize=8)
