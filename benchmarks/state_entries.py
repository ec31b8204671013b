"""The cost of a shared state: two peers on loopback, one thread each.

    tools/stock-network.sh .venv/bin/python benchmarks/state_entries.py

A state of 10,240 entries of 1 KiB is compared with one entry of 10 MiB. "unchanged": both have the
same state. "stale": one of them lacks all of it. The two states take turns. Then a large state,
unchanged, is compared with its hash alone, which both peers compute at the same time: the rest is
the round trip to the master and the other costs of a call. At last one peer fetches the large state
(`receive_only`), in turn with one stream of iperf3.
Each figure is the median of one rank's calls in a round, then the median over all rounds.
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
from functools import partial
from pathlib import Path
from typing import Any

from options import at_least_one
from paths import LOOPBACK, iperf
from processes import Master, ask, end, environment_of, missing, read_line, run_main

STATES = {"one": (1, 10 << 20), "many": (10240, 1 << 10)}  # entries, and bytes of each
CALLS = {"unchanged": 21, "stale": 5, "large": 3}  # in a round
RATIO_GOAL = 1.5
REST_GOAL_MS = 2.0
STREAM_GOAL = 0.7  # of the throughput of one stream of iperf3
STREAM_SECONDS = 2.0


# ---- One rank, in a process of its own -----------------------------------------------------------


def rank_main(init_method: str, large_mib: int) -> None:
    """Make a round for each line on stdin; print the medians in milliseconds."""
    import torch
    import torch.distributed as dist

    import pccl_backend as pccl
    from pccl_backend import _C
    from pccl_backend.state_sync import SyncInfo

    dist.init_process_group("pccl", init_method=init_method)
    rank = dist.get_rank()

    def timed(call: Callable[[], object]) -> float:
        dist.barrier()
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3

    def make(entries: int, size: int) -> pccl.SharedState:
        tensors = [torch.zeros(size // 4) for _ in range(entries)]
        return pccl.SharedState({f"layer.{i}": one for i, one in enumerate(tensors)})

    def sync(state: pccl.SharedState, **options: Any) -> SyncInfo:
        return pccl.sync_shared_state(state, **options)

    states = {name: make(*shape) for name, shape in STATES.items()}
    large = make(1, large_mib << 20)
    revision = 0

    def bring(state: pccl.SharedState) -> float:
        """Rank 0 brings a new revision, which rank 1 lacks."""
        if rank == 0:
            for tensor in state.values():
                tensor.fill_(revision)
            state.revision = revision
        elapsed = timed(lambda: sync(state))
        assert all(float(tensor[-1]) == revision for tensor in state.values())
        assert state.revision == revision
        return elapsed

    def round_of_calls() -> dict[str, float]:
        nonlocal revision
        times: dict[str, list[float]] = defaultdict(list)
        for _ in range(CALLS["stale"]):
            for name, state in states.items():
                revision += 1
                for other in states.values():
                    other.revision = revision - 1  # the last one that was agreed on
                times[f"{name}, stale"].append(bring(state))
                for _ in range(CALLS["unchanged"]):
                    times[f"{name}, unchanged"].append(timed(partial(sync, state)))
        large.revision = revision = revision + 1
        sync(large)
        for _ in range(CALLS["large"]):
            times["large, hash"].append(timed(lambda: _C.state_hash(large["layer.0"])))
            times["large, unchanged"].append(timed(lambda: sync(large)))
        large.revision = revision = revision + 1
        if rank == 0:
            large["layer.0"].fill_(revision)
        strategy = "receive_only" if rank else "send_only"
        times["large, fetched"].append(timed(lambda: sync(large, strategy=strategy)))
        assert float(large["layer.0"][-1]) == revision
        return {name: statistics.median(of) for name, of in times.items()}

    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(round_of_calls()), flush=True)
    dist.destroy_process_group()


# ---- The table -----------------------------------------------------------------------------------


def start(init_method: str, large_mib: int, build: Path | None) -> subprocess.Popen[str]:
    options = ["--rank-of", init_method, "--large-mib", str(large_mib)]
    return subprocess.Popen(
        [sys.executable, __file__, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment_of(build), "OMP_NUM_THREADS": "1", "PCCL_LOG": "warning"},
    )


def measure(rounds: int, large_mib: int) -> dict[str, float]:
    """Return the medians in milliseconds, at the rank that fetches."""
    master = Master()
    url = f"pccl://{master.address}/entries?min_peers=2"
    ranks = [start(url, large_mib, None) for _ in range(2)]
    seen: dict[str, list[float]] = defaultdict(list)
    try:
        for process in ranks:
            assert read_line(process).strip() == "ready"
        for round_number in range(-1, rounds):  # the first round is a warm-up
            said = [json.loads(line) for line in ask(ranks, "go")]
            for name in said[0]:
                if round_number >= 0:
                    seen[name].append(max(of[name] for of in said))
            if not missing(["iperf3"]):
                mbit, _ = iperf(LOOPBACK, seconds=STREAM_SECONDS, omitted=1.0)
                stream_ms = large_mib * 8.388608 / mbit * 1e3
                seen["large, by iperf3"].append(stream_ms)
    finally:
        end(ranks, master)
    return {name: statistics.median(values) for name, values in seen.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=9)
    parser.add_argument("--large-mib", type=at_least_one, default=1024, help="the large state")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_main(given.rank_of, given.large_mib)
        return
    ms = measure(given.rounds, given.large_mib)
    for case in ("stale", "unchanged"):
        one, many = ms[f"one, {case}"], ms[f"many, {case}"]
        print(
            f"{case}: one entry {one:.2f} ms, 10,240 entries {many:.2f} ms: {many / one:.2f}"
            f" (goal {RATIO_GOAL})"
        )
    alone, call = ms["large, hash"], ms["large, unchanged"]
    print(
        f"{given.large_mib} MiB unchanged: {call:.1f} ms, its hash alone {alone:.1f} ms, the rest"
        f" {call - alone:.1f} ms (goal {REST_GOAL_MS})"
    )
    if "large, by iperf3" in ms:
        fetched, stream = ms["large, fetched"], ms["large, by iperf3"]
        print(
            f"{given.large_mib} MiB fetched: {fetched:.1f} ms, one stream of iperf3 {stream:.1f} "
            f"ms: {stream / fetched:.2f} of its throughput (goal {STREAM_GOAL})"
        )


if __name__ == "__main__":
    run_main(main)
