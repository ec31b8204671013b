"""System calls and context switches of one all-reduce, per MiB: pccl beside Gloo.

    tools/stock-network.sh .venv/bin/python benchmarks/counters.py --worlds 2 --mib 64

Figures are per MiB of a rank's tensor: mean of the ranks, median of the rounds. pccl itself counts
the calls "send" and "receive" on its data connections. perf counts all system calls (needs root and
linux-perf). The kernel counts context switches, on all threads of a rank. Unknown figures are left
empty.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import records
from all_reduce import MIB, Case, World
from options import add_worlds, at_least_one
from processes import run_main

KINDS = ("send_calls", "receive_calls", "voluntary", "involuntary")


@dataclass(kw_only=True)
class Row:
    """A backend's counts in each round, per MiB of a tensor and per rank.

    Attributes:
        counts: send_calls, receive_calls, voluntary and involuntary switches, if known.
        system_calls: system calls of all kinds, over all rounds; None: perf could not count them.
    """

    backend: str
    world: int
    mib: int
    counts: dict[str, list[float]]
    system_calls: float | None

    def median(self, kind: str) -> float | None:
        """Return the median of a count, or None if unknown."""
        return statistics.median(self.counts[kind]) if self.counts.get(kind) else None


class SystemCalls:
    """perf attached to processes; it counts inside `with calls.counted()`."""

    def __init__(self, pids: list[int]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._out = Path(self._folder.name) / "perf"
        self._perf: subprocess.Popen[bytes] | None = None
        if not shutil.which("perf"):
            return
        heard, self._say = os.pipe()
        self._hear, said = os.pipe()
        command = ["perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-o", str(self._out)]
        command += ["-D", "-1", "--control", f"fd:{heard},{said}", "-p", ",".join(map(str, pids))]
        self._perf = subprocess.Popen(
            command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(heard, said)
        )
        for inherited in (heard, said):
            os.close(inherited)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        self._tell("enable")
        try:
            yield
        finally:
            self._tell("disable")

    def _tell(self, command: str) -> None:
        """Send a command and wait until it is done; do nothing if perf has already ended."""
        if self._perf is None:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._say, f"{command}\n".encode())
            os.read(self._hear, 16)  # "ack", or nothing if perf ends

    def stop(self) -> int | None:
        """End perf; return the number of system calls, or None if unknown."""
        with self._folder:
            if self._perf is None:
                return None
            self._perf.send_signal(signal.SIGINT)
            self._perf.wait(timeout=10)
            for own in (self._say, self._hear):
                os.close(own)
            return parse_perf(self._out.read_text()) if self._out.exists() else None


def parse_perf(text: str) -> int | None:
    """Return the count in the output of `perf stat -x ,`, if there is one."""
    for fields in (line.split(",") for line in text.splitlines()):
        if len(fields) > 2 and fields[2] == "raw_syscalls:sys_enter" and fields[0].isdigit():
            return int(fields[0])
    return None


def measure(backend: str, world: int, mib: int, rounds: int) -> Row:
    """Return the counts of a backend in a world."""
    case = Case(name="", tensor_bytes=mib * MIB, goals={})
    ranks = World("gloo" if backend == "Gloo" else backend, world)
    counts: dict[str, list[float]] = {}
    try:
        ranks.all_reduce_counted(case)  # warm-up
        calls = SystemCalls([process.pid for process in ranks.ranks])
        try:
            for _ in range(rounds):
                with calls.counted():
                    _, seen = ranks.all_reduce_counted(case)
                for kind in KINDS:
                    if all(kind in of_rank for of_rank in seen):
                        mean = statistics.mean(of_rank[kind] for of_rank in seen)
                        counts.setdefault(kind, []).append(mean / mib)
        finally:
            total = calls.stop()
    finally:
        ranks.close()
    return Row(
        backend=backend,
        world=world,
        mib=mib,
        counts=counts,
        system_calls=None if total is None else total / rounds / world / mib,
    )


HEAD = (
    "| world | | system calls per MiB | of them send | receive "
    "| context switches per MiB: voluntary | involuntary |\n" + "|---" * 7 + "|"
)


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    figures = [row.system_calls, *(row.median(kind) for kind in KINDS)]
    cells = [str(row.world), row.backend]
    cells += ["" if figure is None else f"{figure:.1f}" for figure in figures]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_worlds(parser, "--worlds", [2, 4])
    parser.add_argument("--mib", type=at_least_one, default=64, help="of float32 per rank")
    parser.add_argument("--rounds", type=at_least_one, default=7)
    records.add_option(parser)
    given = parser.parse_args()
    print(HEAD)
    rows = []
    for world in given.worlds:
        for backend in ("pccl", "Gloo"):
            rows.append(measure(backend, world, given.mib, given.rounds))
            print(line(rows[-1]), flush=True)
    congestion = records.congestion_here()
    records.write(records.Record(congestion=congestion, rounds=given.rounds, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
