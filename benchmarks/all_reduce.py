"""All-reduce on loopback: pccl, Gloo, and the floor under any TCP ring, side by side in one run.

    make bench          # or: .venv/bin/python benchmarks/all_reduce.py --rounds 7

How to read the table. One row per world size; figures are medians over alternating rounds (the
slowest and fastest beside them), so that a noisy machine disturbs all alike: compare within a
row, not between runs. Wall time runs from the common start to the end of the last rank; CPU is
that of all threads of all ranks (and of pccl's master) per GB (1e9 bytes) of one rank's tensor.
"floor" is `ringfloor.c`: send, recv and add, nothing else; "floor with save" also keeps every
byte before it is overwritten, as pccl does. Both take the faster of two buffer settings.

`make bench` runs it in a network namespace of its own with the cubic congestion control that
nearly every Linux host has, where it may; else with whatever this machine uses. The first line
says which.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
GB = 1e9
FLOOR_SETTINGS = (
    ("1024", "4096", "512"),
    ("256", "1024", "128"),
)  # block, socket buffer, low-water mark in KiB
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


@dataclass(kw_only=True)
class Series:
    """What one contender did in every round: wall in seconds, CPU in seconds per GB."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def cell(self) -> tuple[str, str]:
        wall = sorted(self.wall)
        middle = statistics.median(wall) * 1e3
        return (
            f"{middle:.1f} ({wall[0] * 1e3:.1f}-{wall[-1] * 1e3:.1f})",
            f"{statistics.median(self.cpu):.2f}",
        )


# ---- One rank, in a process of its own -----------------------------------------------------------


def rank_main(backend: str, init_method: str, rank: int, world: int, elements: int) -> None:
    """Joins, then all-reduces once per line on stdin, at the monotonic time that the line gives."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend == "pccl":
        dist.init_process_group("pccl", init_method=init_method)
    else:
        dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world)
    tensor = torch.empty(elements, dtype=torch.float32)
    print("ready", flush=True)
    for line in sys.stdin:
        start_at = float(line)
        tensor.fill_(float(dist.get_rank() + 1))
        time.sleep(max(0.0, start_at - time.monotonic()))
        cpu, start = time.process_time(), time.monotonic()
        dist.all_reduce(tensor)
        end, cpu = time.monotonic(), time.process_time() - cpu
        expected = world * (world + 1) / 2
        right = bool((tensor == expected).all())
        print(json.dumps({"start": start, "end": end, "cpu": cpu, "right": right}), flush=True)
    dist.destroy_process_group()


class World:
    """`world` rank processes of one backend, started once and used in every round."""

    def __init__(self, backend: str, world: int, elements: int) -> None:
        self.world, self.elements = world, elements
        self.master: subprocess.Popen[str] | None = None
        self.folder: str | None = None
        env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        if backend == "pccl":
            master = Path(sys.executable).with_name("pccl")
            self.master = subprocess.Popen(
                [master, "master", "--port", "0"], stdout=subprocess.PIPE, text=True
            )
            assert self.master.stdout is not None
            address = self.master.stdout.readline().split()[-1]
            init_method = f"pccl://{address}/bench?min_peers={world}"
        else:
            self.folder = tempfile.mkdtemp(prefix="pccl-bench-")
            init_method = f"file://{self.folder}/store"
        arguments = [sys.executable, __file__, "--rank-of", backend, init_method]
        self.ranks = [
            subprocess.Popen(
                [*arguments, str(rank), str(world), str(elements)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=env,
            )
            for rank in range(world)
        ]
        for process in self.ranks:
            assert self._line(process).strip() == "ready"

    @staticmethod
    def _line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"a rank process ended with {process.wait()}: see its error above")
        return line

    def _master_cpu(self) -> float:
        if self.master is None:
            return 0.0
        fields = Path(f"/proc/{self.master.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def all_reduce(self) -> tuple[float, float]:
        """Returns wall seconds and CPU seconds per GB of one all-reduce."""
        before = self._master_cpu()
        start_at = time.monotonic() + 0.05
        for process in self.ranks:
            assert process.stdin is not None
            process.stdin.write(f"{start_at}\n")
            process.stdin.flush()
        results = [json.loads(self._line(process)) for process in self.ranks]
        assert all(result["right"] for result in results), "wrong sum"
        wall = max(r["end"] for r in results) - min(r["start"] for r in results)
        cpu = sum(r["cpu"] for r in results) + self._master_cpu() - before
        return wall, cpu / (self.elements * 4 / GB)

    def close(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder)
        for process in self.ranks:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.ranks:
            process.wait(timeout=30)
        if self.master is not None:
            self.master.terminate()
            self.master.wait(timeout=10)


# ---- The floor -----------------------------------------------------------------------------------


def build_floor(folder: str) -> Path:
    program = Path(folder) / "ringfloor"
    source = HERE / "ringfloor.c"
    subprocess.run(["cc", "-O3", "-march=native", "-o", program, source], check=True)
    return program


def floor(program: Path, world: int, mib: int, save: bool) -> tuple[float, float]:
    """The faster of the two settings, one timed all-reduce each (after one that warms up)."""
    best = (float("inf"), 0.0)
    for block, buffer, low in FLOOR_SETTINGS:
        out = subprocess.run(
            [program, str(world), str(mib), "1", block, buffer, low, str(int(save))],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        wall = float(out.split("wall ")[1].split(" ms")[0]) / 1e3
        cpu = float(out.split("CPU ")[1].split(" s/GB")[0])
        best = min(best, (wall, cpu))
    return best


# ---- The table -----------------------------------------------------------------------------------


def measure(world: int, mib: int, rounds: int, program: Path) -> dict[str, Series]:
    elements = mib * (1 << 20) // 4
    series = {name: Series() for name in ("pccl", "Gloo", "floor", "floor with save")}
    worlds = {"pccl": World("pccl", world, elements), "Gloo": World("gloo", world, elements)}
    try:
        for round_number in range(-1, rounds):  # the first one warms up
            for name, entry in series.items():
                if name in worlds:
                    wall, cpu = worlds[name].all_reduce()
                else:
                    wall, cpu = floor(program, world, mib, save=name.endswith("save"))
                if round_number >= 0:
                    entry.wall.append(wall)
                    entry.cpu.append(cpu)
    finally:
        for contender in worlds.values():
            contender.close()
    return series


def show(world: int, mib: int, series: dict[str, Series]) -> None:
    print(f"\nall_reduce, {mib} MiB float32 SUM, world {world}")
    print(
        f"  {'':16} {'wall ms (min-max)':>24} {'CPU s/GB':>9} {'÷ Gloo':>12} {'÷ floor+save':>13}"
    )
    gloo = statistics.median(series["Gloo"].wall)
    saved = statistics.median(series["floor with save"].wall)
    for name, entry in series.items():
        wall, cpu = entry.cell()
        middle = statistics.median(entry.wall)
        print(f"  {name:16} {wall:>24} {cpu:>9} {middle / gloo:>12.2f} {middle / saved:>13.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds per world size (default 7)")
    parser.add_argument("--mib", type=int, default=64, help="tensor size in MiB (default 64)")
    parser.add_argument(
        "--worlds", type=int, nargs="+", default=[2, 4], help="world sizes (default 2 4)"
    )
    parser.add_argument("--rank-of", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        backend, init_method, rank, world, elements = given.rank_of
        rank_main(backend, init_method, int(rank), int(world), int(elements))
        return
    congestion = CONGESTION.read_text().strip()
    print(f"congestion control: {congestion}; {os.cpu_count()} cores; {given.rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        program = build_floor(folder)
        for world in given.worlds:
            show(world, given.mib, measure(world, given.mib, given.rounds, program))


if __name__ == "__main__":
    main()
