"""Memory of one call beyond its tensor: the peak of a process during the call.

    .venv/bin/python benchmarks/memory.py --mib 1024 --worlds 2 4

An all-reduce with restore on keeps overwritten bytes until the outcome is settled. The goal is then
at most one tensor plus 64 MiB of scratch and other buffers. With `PCCL_RESTORE=off` it is 64 MiB
alone. So it is for newcomers that receive a shared state (`receive_only`) from one peer.
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
ALL_REDUCE, SYNC = "all_reduce", "sync_shared_state"
CASES = ((ALL_REDUCE, "on"), (ALL_REDUCE, "off"), (SYNC, "on"))  # the call, and PCCL_RESTORE


@dataclass(kw_only=True)
class Row:
    """The largest memory of any rank beyond a tensor, and its goal."""

    world: int
    mib: int
    call: str
    restore: str
    most_mib: float
    goal_mib: int


def status_mib(field: str) -> float:
    """Return a field of this process's status, in MiB."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def rank_main(init_method: str, mib: int, call: str) -> None:
    """Join, make the call once, print the peak beyond the memory held before."""
    import torch
    import torch.distributed as dist

    import pccl_backend as pccl

    torch.set_num_threads(1)
    dist.init_process_group("pccl", init_method=init_method)
    tensor = torch.ones(mib * MIB // 4)
    dist.all_reduce(torch.ones(1))  # loads everything that a first call loads
    full = dist.get_rank() == 0
    want = dist.get_world_size() if call == ALL_REDUCE else 2
    if call == SYNC and full:
        tensor.fill_(want)
    before = status_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak: man 5 proc
    if call == ALL_REDUCE:
        dist.all_reduce(tensor)
    else:
        state = pccl.SharedState({"w": tensor}, revision=int(full))
        pccl.sync_shared_state(state, strategy="send_only" if full else "receive_only")
    print(status_mib("VmHWM") - before, bool((tensor == want).all()), flush=True)
    dist.destroy_process_group()


def measure(mib: int, world: int, call: str, restore: str) -> list[float]:
    """Return the peak of each rank in MiB."""
    master = Master()
    init_method = f"pccl://{master.address}/memory?min_peers={world}"
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, call, "--rank-of", init_method, "--mib", str(mib)],
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
            assert right == "True", "wrong numbers"
            peaks.append(float(peak))
    finally:
        for process in ranks:
            process.kill()
        master.close()
    return peaks


def measure_row(mib: int, world: int, call: str, restore: str) -> Row:
    """Return the memory of a world."""
    keeps = call == ALL_REDUCE and restore == "on"
    return Row(
        world=world,
        mib=mib,
        call=call,
        restore=restore,
        most_mib=max(measure(mib, world, call, restore)),
        goal_mib=EXTRA_MIB + (mib if keeps else 0),
    )


HEAD = "| world | call | restore | most beyond the tensor, MiB | goal |\n|---|---|---|---|---|"


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    return f"| {row.world} | {row.call} | {row.restore} | {row.most_mib:.0f} | {row.goal_mib} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("call", nargs="?", choices=(ALL_REDUCE, SYNC), help=argparse.SUPPRESS)
    parser.add_argument("--mib", type=at_least_one, default=1024, help="of the tensor")
    add_worlds(parser, "--worlds", [2, 4])
    records.add_option(parser)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_main(given.rank_of, given.mib, given.call)
        return
    print(HEAD)
    rows = []
    for world in given.worlds:
        for call, restore in CASES:
            rows.append(measure_row(given.mib, world, call, restore))
            print(line(rows[-1]), flush=True)
    congestion = records.congestion_here()
    records.write(records.Record(congestion=congestion, rounds=1, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
