"""Memory of one all-reduce beyond its tensor: the peak of a process during the call.

    .venv/bin/python benchmarks/memory.py --mib 1024 --worlds 2 4

With restore on, overwritten bytes are kept until the outcome is settled. The goal is then at most
one tensor plus 64 MiB of scratch and other buffers. With `PCCL_RESTORE=off` it is 64 MiB alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import records
from options import add_worlds, at_least_one
from processes import Master, run_main

MIB = 1 << 20
EXTRA_MIB = 64


@dataclass(kw_only=True)
class Row:
    """The largest memory of any rank beyond a tensor, and its goal."""

    world: int
    mib: int
    restore: str
    most_mib: float
    goal_mib: int


def status_mib(field: str) -> float:
    """Return a field of this process's status, in MiB."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def rank_main(init_method: str, mib: int) -> None:
    """Join, all-reduce once, print the peak beyond the memory held before."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("pccl", init_method=init_method)
    tensor = torch.ones(mib * MIB // 4)
    dist.all_reduce(torch.ones(1))  # loads everything that a first call loads
    before = status_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak: man 5 proc
    dist.all_reduce(tensor)
    print(status_mib("VmHWM") - before, bool((tensor == dist.get_world_size()).all()), flush=True)
    dist.destroy_process_group()


def measure(mib: int, world: int, restore: str) -> list[float]:
    """Return the peak of each rank in MiB."""
    master = Master()
    init_method = f"pccl://{master.address}/memory?min_peers={world}"
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank-of", init_method, "--mib", str(mib)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PCCL_RESTORE": restore, "OMP_NUM_THREADS": "1"},
        )
        for _ in range(world)
    ]
    peaks = []
    try:
        for process in ranks:
            out, _ = process.communicate()
            if process.returncode != 0:
                raise SystemExit("a rank process failed: see its error above")
            peak, right = out.split()
            assert right == "True", "wrong sum"
            peaks.append(float(peak))
    finally:
        for process in ranks:
            process.kill()
        master.close()
    return peaks


def measure_row(mib: int, world: int, restore: str) -> Row:
    """Return the memory of a world."""
    return Row(
        world=world,
        mib=mib,
        restore=restore,
        most_mib=max(measure(mib, world, restore)),
        goal_mib=EXTRA_MIB + (mib if restore == "on" else 0),
    )


HEAD = "| world | restore | most beyond the tensor, MiB | goal |\n|---|---|---|---|"


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    return f"| {row.world} | {row.restore} | {row.most_mib:.0f} | {row.goal_mib} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=at_least_one, default=1024, help="of the tensor")
    add_worlds(parser, "--worlds", [2, 4])
    records.add_option(parser)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_main(given.rank_of, given.mib)
        return
    print(HEAD)
    rows = []
    for world in given.worlds:
        for restore in ("on", "off"):
            rows.append(measure_row(given.mib, world, restore))
            print(line(rows[-1]), flush=True)
    congestion = records.congestion_here()
    records.write(records.Record(congestion=congestion, rounds=1, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
