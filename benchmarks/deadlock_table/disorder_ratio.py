"""How the ratio of deadlocks grows with the disorder of the calls: simulated, and measured on real
ranks; matched by the order of the calls, and by pccl with tags.

    .venv/bin/python benchmarks/deadlock_table/disorder_ratio.py \\
        --picture benchmarks/plots/deadlocks.png

Eight ranks on loopback call 32 all-reduces of 256 B to 64 KiB, and each rank skips calls of its
list as the GPUs of the simulator do. Without tags and with one operation in flight, the calls are
matched by their order, as in one queue. Where NCCL would hang, pccl raises a mismatch; a round also
counts if a sum is wrong. With a tag for each call, all calls are made before the first wait.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "wan"))  # plots.py draws its results

import configurations
import simulator
from configurations import World
from options import at_least_one
from processes import Master, ask, end, read_line, run_main
from sections import table

RANKS, CALLS = 8, 32
SIZES = tuple(64 << i for i in range(9))  # elements of float32: neighbours differ
MEASURED = (1e-4, 1e-3, 3e-3, 1e-2, 1e-1)
SIMULATED_ROUNDS = 2000
SYNCHRONIZATION = 4e-3


@dataclass(frozen=True, kw_only=True)
class Point:
    """The rounds with a deadlock, or with what shows one, at a probability of disorder."""

    disorder: float
    found: int
    rounds: int

    @property
    def percent(self) -> float:
        return 100 * self.found / self.rounds

    @property
    def error(self) -> float:
        """One standard error, in per cent."""
        return math.sqrt(self.percent * (100 - self.percent) / self.rounds)


# --- Simulated ------------------------------------------------------------------------------------


def simulated(
    world: World, disorders: Sequence[float], synchronization: float | None
) -> list[Point]:
    """Return a point for each probability of disorder, by the exact check."""
    points = []
    for number, disorder in enumerate(disorders):
        outcome = simulator.simulate(
            world,
            disorder=disorder,
            synchronization=synchronization,
            rounds=SIMULATED_ROUNDS,
            seed=1000 + number,
        )
        points.append(Point(disorder=disorder, found=outcome.exact, rounds=outcome.rounds))
    return points


def powers(first: int, last: int) -> list[float]:
    """Return 10^first to 10^last, with three steps for each power."""
    return [10 ** (exponent / 3) for exponent in range(3 * first, 3 * last + 1)]


# --- Measured -------------------------------------------------------------------------------------


def in_disorder(count: int, disorder: float, source: random.Random) -> list[int]:
    """Return the numbers of the calls in an order of one rank, as CallOrder of the simulator."""
    left, order = list(range(count)), []
    while left:
        i = 0
        while i + 1 < len(left) and source.random() < disorder:
            i += 1
        order.append(left.pop(i))
    return order


def serve(url: str) -> None:
    """Be a rank: for each request, run its rounds and print how many of them have failed."""
    import torch
    import torch.distributed as dist

    import pccl_backend as pccl

    torch.set_num_threads(1)
    dist.init_process_group("pccl", init_method=url)
    rank, tagged = dist.get_rank(), False

    def round_fails(order: Sequence[int]) -> bool:
        tensors = [
            torch.full((SIZES[i % len(SIZES)],), float((rank + 1) * (i + 1))) for i in range(CALLS)
        ]
        works = []
        try:
            for i in order:
                tag = f"layer.{i}" if tagged else ""
                works.append(pccl.all_reduce(tensors[i], tag=tag, async_op=True))
                if not tagged:
                    works[-1].wait()
            for work in works:
                work.wait()
        except pccl.CollectiveMismatchError:
            return True
        sums = RANKS * (RANKS + 1) / 2
        return not all((tensor == sums * (i + 1)).all() for i, tensor in enumerate(tensors))

    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        tagged = request["tagged"]
        source = random.Random(f"{rank} {request['disorder']} {tagged}")
        failed = 0
        for _ in range(request["rounds"]):
            fails = torch.tensor(
                [int(round_fails(in_disorder(CALLS, request["disorder"], source)))]
            )
            pccl.all_reduce(fails, op="max", tag="fails")
            failed += int(fails)
        print(failed, flush=True)
    dist.destroy_process_group()


def measure(rounds: int) -> tuple[list[Point], list[Point]]:
    """Return the points of matching by call order, and of pccl with tags."""
    master = Master()
    ranks: list[subprocess.Popen[str]] = []
    try:
        url = f"pccl://{master.address}/disorder?min_peers={RANKS}"
        quiet = {**os.environ, "PCCL_LOG": "error", "TORCH_FR_BUFFER_SIZE": "0"}  # for mismatches
        ranks += [
            subprocess.Popen(
                [sys.executable, __file__, "--url", url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=quiet,
            )
            for _ in range(RANKS)
        ]
        for process in ranks:
            read_line(process)

        def point(disorder: float, tagged: bool) -> Point:
            request = {"disorder": disorder, "tagged": tagged, "rounds": rounds}
            (found,) = set(map(int, ask(ranks, json.dumps(request))))
            return Point(disorder=disorder, found=found, rounds=rounds)

        by_order, by_tag = ([point(p, tagged) for p in MEASURED] for tagged in (False, True))
        return by_order, by_tag
    finally:
        end(ranks, master)


# --- Both -----------------------------------------------------------------------------------------


def main() -> int:
    """Measure, simulate, print and draw. Return 1 if a rank of pccl with tags has failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=200, help="measured (default 200)")
    parser.add_argument("--picture", type=Path, help="draw the ratios there")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.url is not None:
        serve(given.url)
        return 0
    by_order, by_tag = measure(given.rounds)
    world = configurations.single(RANKS, CALLS)
    expected = simulated(world, MEASURED, None)
    rows = [
        [
            f"{order.disorder:g}",
            f"{simulation.percent:.1f} %",
            f"{order.percent:.1f} % ({order.error:.1f})",
            f"{tags.found} of {tags.rounds}",
        ]
        for order, tags, simulation in zip(by_order, by_tag, expected, strict=True)
    ]
    head = ["disorder", "one queue, simulated", "by call order, measured", "pccl, measured"]
    print(table(head, rows))
    if given.picture is not None:
        import plots

        small = configurations.three_d(4, 4, 4)
        lines = {
            f"{RANKS} ranks, {CALLS} calls, one queue": simulated(world, powers(-6, -1), None),
            "3D 4, 4, 4, one queue": simulated(small, powers(-9, -4), None),
            f"3D 4, 4, 4, {SYNCHRONIZATION:g} of the turns wait": simulated(
                small, powers(-5, -2), SYNCHRONIZATION
            ),
        }
        plots.deadlocks(lines, {"by call order": by_order, "pccl with tags": by_tag}, given.picture)
    return int(any(point.found for point in by_tag))


if __name__ == "__main__":
    run_main(main)
