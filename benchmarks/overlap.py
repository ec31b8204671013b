"""How much of an outer step's communication hides behind inner steps.

    sudo tools/stock-network.sh .venv/bin/python benchmarks/overlap.py

Two peers train with DiLoCo. Their inner steps are sleeps of 2 s in all, as if a GPU worked, and the
link between them is limited (tc's token bucket on loopback, in a network namespace of its own) so
that the all-reduce alone takes 2 s. A line for each setting: the median time from one outer step to
the next, after the third, over the time of the inner steps alone. The goal is 1.10 for settings
that overlap; a blocking trainer needs 2.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from processes import Master, end, missing, read_line, run_main

EVERY = 20
COMPUTE_S = 2.0
PARAMETERS = 1_500_000
BURST_BYTES = 1 << 17
OUTER_STEPS = 9
SKIPPED = 3
GOAL = 1.10
SETTINGS = {
    "blocking": {},
    "auto": {"overlap": "auto", "mix": 0.5},
    "carry": {"overlap": EVERY, "mix": "carry"},
}


def rank_main(init_method: str, setting: str) -> None:
    """Train; print the seconds of each outer step, of its waits, and of its reduce."""
    import torch
    import torch.distributed as dist

    from pccl_backend.trainers import DiLoCo

    torch.set_num_threads(1)
    dist.init_process_group("pccl", init_method=init_method)
    model = torch.nn.Linear(PARAMETERS // 1000, 1000, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # without gradients it moves nothing
    rows = []
    with DiLoCo(model, optimizer, every=EVERY, **SETTINGS[setting]) as outer:
        last, at = None, time.monotonic()
        while len(rows) < OUTER_STEPS:
            time.sleep(COMPUTE_S / EVERY)  # stands for a GPU's work, which needs no core
            optimizer.step()
            if outer.last is not last:
                last, now = outer.last, time.monotonic()
                rows.append((now - at, last.waited_s, last.reduce_s))
                at = now
    print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


def limit_link() -> None:
    """Limit loopback: what both peers send to each other passes in COMPUTE_S."""
    rate = int(2 * PARAMETERS * 4 * 8 / COMPUTE_S)
    command = f"tc qdisc replace dev lo root tbf rate {rate} burst {BURST_BYTES} latency 1s"
    subprocess.run(command.split(), check=True)


def measure(setting: str) -> list[tuple[float, float, float]]:
    """Run two peers; return the rows of the first."""
    master = Master()
    url = f"pccl://{master.address}/{setting}?min_peers=2"
    command = [sys.executable, __file__, "--rank", url, "--setting", setting]
    ranks = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        first, _ = (json.loads(read_line(rank)) for rank in ranks)
        return [tuple(row) for row in first]
    finally:
        end(ranks, master)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--setting", choices=SETTINGS, help="only this one")
    arguments = parser.parse_args()
    if arguments.rank:
        rank_main(arguments.rank, arguments.setting)
        return 0
    if lacking := missing(["tc", "root"]):
        raise SystemExit(f"this needs {', '.join(lacking)}")
    limit_link()
    code = 0
    for setting in [arguments.setting] if arguments.setting else SETTINGS:
        rows = measure(setting)[SKIPPED:]
        step, waited, reduce = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = step / COMPUTE_S
        print(
            f"{setting:9} outer step {step:.2f} s, {ratio:.2f} x compute; waited {waited:.2f} s, "
            f"reduce {reduce:.2f} s",
            flush=True,
        )
        code |= SETTINGS[setting] != {} and ratio > GOAL
    return code


if __name__ == "__main__":
    run_main(main)
