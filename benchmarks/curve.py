"""Cost of one all-reduce over world size and tensor size, on loopback: time and bytes sent.

    tools/stock-network.sh .venv/bin/python benchmarks/curve.py --worlds 2 4 --sizes 1MiB 64MiB

The tensors of all ranks together have at most 8 GiB, and must fit in this machine's memory (each
rank also keeps the bytes that it overwrites). Larger cases are left out and listed. For small sizes
a round is the mean of many calls back to back. Gloo takes turns with pccl up to 64 MiB. "Sent" is
the number of bytes that a host's data connections have sent, headers included, by pccl's own count.
The table shows the largest value of any host over the required 2(N-1)/N of the tensor.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import records
from all_reduce import GB, KIB, MIB, Case, World
from options import add_worlds, at_least_one
from processes import run_main

GIB = 1 << 30
WORLDS = (2, 4, 8, 16)
SIZES = (
    *(KIB, 16 * KIB, 256 * KIB),
    *(MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 512 * MIB, GIB),
)
ALL_BYTES_MAX = 8 * GIB
SPARE_BYTES = GIB  # memory for everything else
GLOO_BYTES_MAX = 64 * MIB
SENT_GOAL = 1.01  # of 2(N-1)/N of the tensor, from SENT_GOAL_FROM on
SENT_GOAL_FROM = MIB


@dataclass(kw_only=True)
class Row:
    """A tensor size in a world.

    Attributes:
        wall: seconds per call in each round.
        sent: bytes per call by the host that sent most, over 2(N-1)/N of the tensor; None: Gloo.
    """

    backend: str
    world: int
    bytes: int
    wall: list[float]
    sent: float | None


def loops_of(size: int, world: int) -> int:
    """Return the number of calls in a round: just enough for a time that can be measured."""
    return 400 // world if size <= 64 * KIB else 40 // world if size <= MIB else 1


def fits(size: int, world: int, available: int) -> bool:
    """Return whether a world may have tensors of this size; `available` is free memory in bytes."""
    together = size * world
    return together <= ALL_BYTES_MAX and 2 * together + SPARE_BYTES <= available


def bytes_of(text: str) -> int:
    """Return the number of bytes of a text such as 1MiB."""
    units = {"KiB": KIB, "MiB": MIB, "GiB": GIB}
    found = re.fullmatch(r"(\d+) ?(KiB|MiB|GiB)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 64MiB")
    return int(found[1]) * units[found[2]]


def memory_available() -> int:
    """Return the bytes available to new programs."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def measure_size(size: int, worlds: dict[str, World], world: int, rounds: int) -> list[Row]:
    """Let the backends take turns; return a row of each."""
    case = Case(name="", tensor_bytes=size, loops=loops_of(size, world), goals={})
    ideal = 2 * (world - 1) / world * size
    rows = {name: Row(backend=name, world=world, bytes=size, wall=[], sent=None) for name in worlds}
    sent = []
    for round_number in range(-1, rounds):  # the first round is a warm-up
        for name, ranks in worlds.items():
            wall, counts = ranks.all_reduce_counted(case)
            if round_number < 0:
                continue
            rows[name].wall.append(wall)
            if name == "pccl":
                most = max(count["bytes_sent"] for count in counts)
                sent.append(most / case.loops / ideal)
    rows["pccl"].sent = statistics.median(sent)
    return list(rows.values())


def measure_world(
    world: int, sizes: Sequence[int], rounds: int, seen: Callable[[list[Row]], None]
) -> tuple[list[Row], list[str]]:
    """Return the rows of a world, and the list of cases left out."""
    rows: list[Row] = []
    left_out: list[str] = []
    worlds = {"pccl": World("pccl", world)}
    try:
        if min(sizes) <= GLOO_BYTES_MAX:
            worlds["Gloo"] = World("gloo", world)
        for size in sorted(sizes):
            if size > GLOO_BYTES_MAX and "Gloo" in worlds:
                worlds.pop("Gloo").close()  # frees its memory too
            if not fits(size, world, memory_available()):
                left_out.append(f"{records.size_name(size)} at world {world}")
                continue
            found = measure_size(size, worlds, world, rounds)
            rows += found
            seen(found)
    finally:
        for ranks in worlds.values():
            ranks.close()
    return rows, left_out


HEAD = (
    "| size | world | pccl (min-max) | Gloo | GB/s of a tensor | sent ÷ 2(N-1)/N |\n|" + "---|" * 6
)


def line(rows: Sequence[Row]) -> str:
    """Return the rows of one size and world as one line of a Markdown table."""
    by_name = {row.backend: row for row in rows}
    own = by_name["pccl"]
    gloo = records.spread(by_name["Gloo"].wall) if "Gloo" in by_name else ""
    rate = own.bytes / GB / statistics.median(own.wall)
    cells = [records.size_name(own.bytes), str(own.world), records.spread(own.wall), gloo]
    cells += [f"{rate:.3g}", "" if own.sent is None else f"{own.sent:.4f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_worlds(parser, "--worlds", WORLDS)
    parser.add_argument("--sizes", type=bytes_of, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=at_least_one, default=3)
    records.add_option(parser)
    given = parser.parse_args()
    print(HEAD)
    rows: list[Row] = []
    left_out: list[str] = []
    for world in given.worlds:
        found, without = measure_world(
            world, given.sizes, given.rounds, lambda rows: print(line(rows), flush=True)
        )
        rows += found
        left_out += without
    if left_out:
        print(f"Left out, too large for memory or its budget: {', '.join(left_out)}.")
    record = records.Record(
        congestion=records.congestion_here(),
        rounds=given.rounds,
        rows=rows,
        facts={"left_out": left_out},
    )
    records.write(record, given.json)


if __name__ == "__main__":
    run_main(main)
