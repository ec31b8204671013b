"""The cost of single calls: two peers on loopback, with the state of a small network.

    tools/stock-network.sh .venv/bin/python benchmarks/latency.py

The network is a perceptron of 100,000 parameters (PCCL report, section 2.6), 400 KB of float32, in
eight tensors. "dispatch" is the time until an asynchronous all-reduce returns its Work. It is
measured for "the first" tensor of a step, whose caller has just woken up, has cold caches and wakes
pccl's threads, and for "the next" ones. The same call of torch's fake backend, which does nothing,
is measured in the same process at the same position: time above it is pccl's. torch's flight
recorder records each call with its stack. By default it is on for all backends but the fake one.
Therefore some ranks are measured without it (TORCH_FR_BUFFER_SIZE=0), and others in turn with it.
"await" is the time from one call for all 400 KB until its `wait()` returns. Both ranks make all
calls. Each figure is the median of one rank's calls in a round, then the median over all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import records
from options import at_least_one
from processes import Master, ask, end, environment_of, read_line, run_main

PARAMETERS = 100_000
TENSORS = 8
CALLS = 300  # number of calls of each kind in a round
RECORDED = ", with torch's flight recorder"
GOALS = {  # microseconds
    "pccl.all_reduce, dispatch of the next": 5.3,
    "dist.all_reduce above the fake backend, dispatch of the next": 5.0,
    "are_peers_pending": 150.0,
    "update_topology": 150.0,
    "sync_shared_state, unchanged": 300.0,
    "await": 7000.0,
}


@dataclass(kw_only=True)
class Row:
    """A call: the median of each round, in microseconds."""

    call: str
    us: list[float]
    goal: float | None


# ---- One rank, in a process of its own -----------------------------------------------------------


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def rank_main(init_method: str) -> None:
    """Make a round for each line on stdin; print the medians in microseconds."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("pccl", init_method=init_method)
    import torch.testing._internal.distributed.fake_pg  # registers the fake backend

    import pccl_backend as pccl

    fake = dist.new_group(backend="fake")
    layers = [torch.zeros(PARAMETERS // TENSORS) for _ in range(TENSORS)]
    whole = torch.zeros(PARAMETERS)
    one = torch.zeros(1)
    state = pccl.SharedState({"weights": torch.zeros(PARAMETERS)})

    def step(times: dict[str, list[float]], name: str, call: Callable[[torch.Tensor], Any]) -> None:
        pccl.all_reduce(one)  # gives each step the same start: after a wait
        works = []
        for place, layer in enumerate(layers):
            start = time.perf_counter()
            work = call(layer)
            seconds = time.perf_counter() - start
            works.append(work)
            which = "the next" if place > 0 else "the first"
            times[f"{name}, dispatch of {which}"].append(seconds * 1e6)
        for work in works:
            work.wait()

    def round_of_calls() -> dict[str, list[float]]:
        times: dict[str, list[float]] = defaultdict(list)
        for _ in range(CALLS):
            step(times, "fake", lambda x: dist.all_reduce(x, group=fake, async_op=True))
            step(times, "dist.all_reduce", lambda x: dist.all_reduce(x, async_op=True))
            step(times, "pccl.all_reduce", lambda x: pccl.all_reduce(x, async_op=True))
            times["await"].append(timed(lambda: pccl.all_reduce(whole)))
        for name, call in (
            ("are_peers_pending", pccl.are_peers_pending),
            ("update_topology", pccl.update_topology),
            ("sync_shared_state, unchanged", lambda: pccl.sync_shared_state(state)),
        ):
            times[name] = [timed(call) for _ in range(CALLS)]
        return times

    print("ready", flush=True)
    for _ in sys.stdin:
        medians = {name: statistics.median(times) for name, times in round_of_calls().items()}
        for which in ("the first", "the next"):
            medians[f"dist.all_reduce above the fake backend, dispatch of {which}"] = (
                medians[f"dist.all_reduce, dispatch of {which}"]
                - medians[f"fake, dispatch of {which}"]
            )
        print(json.dumps(medians), flush=True)
    dist.destroy_process_group()


# ---- The table -----------------------------------------------------------------------------------


def start(init_method: str, *, recorded: bool, build: Path | None = None) -> subprocess.Popen[str]:
    """Start a rank; `build`: folder of its package pccl_backend (processes.environment_of)."""
    environment = {**environment_of(build), "OMP_NUM_THREADS": "1"}
    environment.pop("TORCH_FR_BUFFER_SIZE", None)
    if not recorded:
        environment["TORCH_FR_BUFFER_SIZE"] = "0"
    return subprocess.Popen(
        [sys.executable, __file__, "--rank-of", init_method],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def measure(rounds: int) -> list[Row]:
    """Return a row for each call."""
    master = Master()
    worlds = {}
    for suffix, run in (("", "plain"), (RECORDED, "recorded")):
        init_method = f"pccl://{master.address}/{run}?min_peers=2"
        worlds[suffix] = [start(init_method, recorded=suffix == RECORDED) for _ in range(2)]
    everyone = [process for ranks in worlds.values() for process in ranks]
    seen: dict[str, list[float]] = defaultdict(list)
    try:
        for process in everyone:
            assert read_line(process).strip() == "ready"
        for round_number in range(-1, rounds):  # the first round is a warm-up
            for suffix, ranks in worlds.items():
                medians = json.loads(ask(ranks, "go")[0])
                for name, value in medians.items():
                    if round_number >= 0 and (suffix == "" or "all_reduce, dispatch" in name):
                        seen[name + suffix].append(value)
    finally:
        end(everyone, master)
    return [Row(call=name, us=values, goal=GOALS.get(name)) for name, values in seen.items()]


HEAD = "| call | median, µs (least to most of the rounds) | goal |\n|---|---|---|"


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    goal = "" if row.goal is None else f"{row.goal:g}"
    spread = f"{min(row.us):.1f} to {max(row.us):.1f}"
    return f"| {row.call} | {statistics.median(row.us):.1f} ({spread}) | {goal} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=9)
    records.add_option(parser)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_main(given.rank_of)
        return
    rows = measure(given.rounds)
    print("\n".join([HEAD, *map(line, rows)]))
    congestion = records.congestion_here()
    records.write(records.Record(congestion=congestion, rounds=given.rounds, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
