"""A small all-reduce beside a large one: alone, with the same priority, and with a higher one.

    tools/stock-network.sh .venv/bin/python benchmarks/priority.py
    sudo tools/stock-network.sh .venv/bin/python benchmarks/priority.py --mbit 200 --large-mib 64

Two ranks post a large all-reduce, and after a while a small one. The time of the small one lasts
from its call until its result is there on the slower rank. Ranks are on loopback, or, with a rate,
each on a host of its own in an emulated network (wan/lab.py), which needs root. The three kinds
take turns. The ratio of a kind is the median of its ratios to "alone" in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import records
from options import at_least_one
from processes import Master, ask_together, end, read_line, run_main, wait_for_start
from sections import table

WAN = Path(__file__).resolve().parent / "wan"
MIB = 1 << 20
RTT_MS, QUEUE_MS = 10.0, 20.0  # of the emulated network
KINDS = {"alone": None, "the same priority": 0, "a higher priority": 1}


def rank_main(url: str) -> None:
    """Join; measure one round for each line on stdin (processes.ask_together)."""
    import torch
    import torch.distributed as dist

    import pccl_backend as pccl

    torch.set_num_threads(1)
    dist.init_process_group("pccl", init_method=url)
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        large = torch.ones(request["large"] // 4)
        small = torch.ones(request["small"] // 4)
        wait_for_start()
        works = []
        if request["priority"] is not None:
            works = [pccl.all_reduce(large, tag="large", async_op=True)]
            time.sleep(request["delay"])  # until the large one is in full flow: the measured state
        began = time.monotonic()
        pccl.all_reduce(small, tag="small", priority=request["priority"])
        took = time.monotonic() - began
        for work in works:
            work.wait()
        dist.barrier()
        print(took, flush=True)
    dist.destroy_process_group()


def measure(
    places: Sequence[Sequence[str]], host: str, given: argparse.Namespace
) -> dict[str, list[float]]:
    """Return the seconds of the small one in each round, by kind."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if host != "127.0.0.1":
        environment["PCCL_INSECURE"] = "1"
    master = Master(host, place=places[0])
    url = f"pccl://{master.address}/priority?min_peers={len(places)}"
    ranks = [
        subprocess.Popen(
            [*place, sys.executable, __file__, "--rank-of", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for place in places
    ]
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    request = {"large": int(given.large_mib * MIB), "small": int(given.small_mib * MIB)}
    try:
        for process in ranks:
            read_line(process)
        for round_number in range(-1, given.rounds):
            for kind, priority in KINDS.items():
                line = json.dumps({**request, "priority": priority, "delay": given.delay})
                took = max(float(answer) for answer in ask_together(ranks, line))
                if round_number >= 0:  # the first round is a warm-up
                    seconds[kind].append(took)
    finally:
        end(ranks, master)
    return seconds


def in_lab(given: argparse.Namespace) -> tuple[dict[str, list[float]], str, bool]:
    """Measure in an emulated network; return also the emulator's report and verdict."""
    sys.path.insert(0, str(WAN))
    from lab import Lab
    from network import own_boot_id

    lab = Lab(
        {
            "hosts": ["town"] * 2,
            "default": {"mbit": given.mbit, "queue_ms": QUEUE_MS, "loss": 0.0},
            "rtt_ms": {"town-town": RTT_MS},
        }
    )
    with lab, tempfile.TemporaryDirectory(prefix="pccl-bench-") as folder:
        places = [
            [*place, *own_boot_id(Path(folder), number)]
            for number, place in enumerate(lab.places())
        ]
        seconds = measure(places, lab.hosts[0].address, given)
    assert lab.report is not None
    return seconds, str(lab.report), lab.report.sound


def main() -> int:
    """Print the table; return 1 if the emulator did not keep up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=11)
    parser.add_argument("--large-mib", type=at_least_one, default=1024)
    parser.add_argument("--small-mib", type=at_least_one, default=1)
    parser.add_argument("--delay", type=float, default=0.2, help="until the small one, in seconds")
    parser.add_argument("--mbit", type=float, default=0.0, help="of the network; 0: loopback")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_main(given.rank_of)
        return 0
    report, sound = "", True
    if given.mbit > 0:
        seconds, report, sound = in_lab(given)
    else:
        seconds = measure([[], []], "127.0.0.1", given)
    alone = seconds["alone"]
    rows = []
    for kind, times in seconds.items():
        ratio = statistics.median(t / a for t, a in zip(times, alone, strict=True))
        rows.append([kind, records.spread(times), f"{ratio:.2f}"])
    where = f"{given.mbit:g} Mbit/s, RTT of {RTT_MS:g} ms" if given.mbit > 0 else "loopback"
    head = (f"{given.small_mib} MiB beside {given.large_mib} MiB, {where}", "time", "÷ alone")
    print(table(head, rows) + report)
    return int(not sound)


if __name__ == "__main__":
    run_main(main)
