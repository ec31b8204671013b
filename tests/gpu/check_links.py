"""A link between two hosts: encrypted against plain text, with and without helper threads."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from check import ROOT, end, expect, report, skip

sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "benchmarks" / "wan"))

import hosts
from all_reduce import MIB, Case, World
from network import own_boot_id
from processes import missing

ROUNDS = 7
CASE = Case(name="256 MiB", tensor_bytes=256 * MIB, loops=1, goals={})
CORES_MIN = 8  # a process with fewer has one helper or none
# A process with these cores alone has no helpers (csrc/base/helper_threads.h).
FEW_CORES = {0: "0-2", 1: "3-5"}
MOST = 1.3  # of the time of plain text


def main() -> None:
    if lacking := missing(("root", "ip", "nsenter", "sysctl", "taskset")):
        skip(f"without {', '.join(lacking)}")
    if len(os.sched_getaffinity(0)) < CORES_MIN:
        skip(f"fewer than {CORES_MIN} cores")
    with hosts.network(2) as machines, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = [
            [*machine.inside.command(), *own_boot_id(folder, number)]
            for number, machine in enumerate(machines)
        ]
        pinned = [[*place, "taskset", "-c", FEW_CORES[i]] for i, place in enumerate(places)]

        def world(backend: str, at: list[list[str]]) -> World:
            made = World(backend, 2, places=at, address=machines[0].address, device=hosts.DEVICE)
            return stack.enter_context(closing(made))

        worlds = {
            "plain": world("pccl", places),
            "tls": world("pccl-tls", places),
            "tls_without_helpers": world("pccl-tls", pinned),
            "plain_few_cores": world("pccl", pinned),
            "gloo": world("gloo", places),
        }
        seconds: dict[str, list[float]] = {name: [] for name in worlds}
        for number in range(-1, ROUNDS):  # the first round is a warm-up
            for name, made in worlds.items():
                wall, _ = made.all_reduce(CASE)
                if number >= 0:
                    seconds[name].append(wall)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    report(**{f"{name}_ms": round(1e3 * value, 1) for name, value in median.items()})
    report(
        ratio=round(median["tls"] / median["plain"], 2),
        ratio_without_helpers=round(median["tls_without_helpers"] / median["plain_few_cores"], 2),
    )
    expect(median["tls"] <= MOST * median["plain"], f"TLS takes more than {MOST} times plain text")
    end()


if __name__ == "__main__":
    main()
