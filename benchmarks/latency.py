"""What one call costs: a peer beside another on loopback, with the state of a small network.

    tools/stock-network.sh .venv/bin/python benchmarks/latency.py

The network is a perceptron of 100,000 parameters (PCCL report, section 2.6): 400 KB of float32.
Each figure is the median over all rounds, of one rank's calls; both ranks make them all. "dispatch"
is the time until an asynchronous all-reduce returns its Work, "await" until its `wait()` returns.
Beside them the same call of torch's own fake backend, which does nothing: what is above it is ours.
Rounds alternate between the two, so that a noisy machine disturbs both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable

from processes import Master, read_line

PARAMETERS = 100_000
CALLS = 300  # of each kind in a round
GOALS = {  # microseconds
    "pccl.all_reduce, dispatch": 5.3,
    "are_peers_pending": 150.0,
    "update_topology": 150.0,
    "sync_shared_state, unchanged": 300.0,
    "await": 7000.0,
}
ABOVE_FAKE = 5.0


# ---- One rank, in a process of its own -----------------------------------------------------------


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def rank_main(init_method: str) -> None:
    """Do a round for each line on stdin; print the medians in microseconds."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    fake = init_method == "fake"
    if fake:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    else:
        dist.init_process_group("pccl", init_method=init_method)
    import pccl_backend as pccl

    tensor = torch.zeros(PARAMETERS)
    state = pccl.SharedState({"weights": torch.zeros(PARAMETERS)})

    def dispatch(times: dict[str, list[float]], name: str, call: Callable[[], dist.Work]) -> None:
        for _ in range(CALLS):
            start = time.perf_counter()
            work = call()
            returned = time.perf_counter()
            work.wait()
            times[f"{name}, dispatch"].append((returned - start) * 1e6)
            times["await"].append((time.perf_counter() - start) * 1e6)

    def round_of_calls() -> dict[str, list[float]]:
        times: dict[str, list[float]] = defaultdict(list)
        dispatch(times, "dist.all_reduce", lambda: dist.all_reduce(tensor, async_op=True))
        if fake:
            return times
        dispatch(times, "pccl.all_reduce", lambda: pccl.all_reduce(tensor, async_op=True))
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
        print(json.dumps(medians), flush=True)
    dist.destroy_process_group()


# ---- The table -----------------------------------------------------------------------------------


def start(init_method: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "--rank-of", init_method],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_main(given.rank_of)
        return
    master = Master()
    init_method = f"pccl://{master.address}/latency?min_peers=2"
    ranks, fake = [start(init_method) for _ in range(2)], start("fake")
    for process in (*ranks, fake):
        assert read_line(process).strip() == "ready"
    seen: dict[str, list[float]] = defaultdict(list)
    for round_number in range(-1, given.rounds):  # the first one warms up
        for who, prefix in (([fake], "fake: "), (ranks, "")):
            for process in who:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            medians = [json.loads(read_line(process)) for process in who]
            for name, value in medians[0].items():
                if round_number >= 0:
                    seen[prefix + name].append(value)
    for process in (*ranks, fake):
        assert process.stdin is not None
        process.stdin.close()
    for process in (*ranks, fake):
        process.wait(timeout=30)
    master.close()

    above = statistics.median(
        ours - theirs
        for ours, theirs in zip(
            seen["dist.all_reduce, dispatch"], seen["fake: dist.all_reduce, dispatch"], strict=True
        )
    )
    print("| call | median, µs (least-most of the rounds) | goal |\n|---|---|---|")
    for name, values in seen.items():
        goal = f"{GOALS[name]:g}" if name in GOALS else ""
        spread = f"{min(values):.1f}-{max(values):.1f}"
        print(f"| {name} | {statistics.median(values):.1f} ({spread}) | {goal} |")
    print(f"| dist.all_reduce above the fake backend, dispatch | {above:.1f} | {ABOVE_FAKE:g} |")


if __name__ == "__main__":
    main()
