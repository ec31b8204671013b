"""All-reduce on loopback: pccl, Gloo, and the floor under any TCP ring, side by side in one run.

    make bench                  # all of it; QUICK=1: a few cases, in under five minutes
    tools/stock-network.sh .venv/bin/python benchmarks/all_reduce.py --cases "64 MiB" --worlds 2

How to read the table. There is one row per case and world size. The figures are medians over
alternating rounds, with the fastest and slowest round beside them. A noisy machine disturbs all
contenders alike, so compare within a row, not between runs. Wall time runs from the common start to
the end of the last rank. CPU is the time of all threads of all ranks (and of pccl's master) per GB
(1e9 bytes) of one rank's tensors. Up to 64 KiB, a round is the mean of 1,000 calls back to back.
"floor" is `ringfloor.c`: only send, recv and add. Like pccl, it saves every byte before overwriting
it. The table shows the faster of two buffer settings. The limit is the time that the loopback
device needs: the bytes that all ranks have to send, 2(N-1) tensors, at the rate of iperf3 with one
flow from each rank to the next, all at once; plus the 2(N-1) hops of a byte.

`make bench` runs it, where permitted, in a network namespace of its own with the congestion control
of nearly every Linux host, cubic; otherwise with the setting of this machine. The first line of the
output names it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import records
from options import add_worlds, at_least_one
from paths import LOOPBACK, loopback_aggregate, ping
from processes import (
    Master,
    ask_together,
    cpu_seconds,
    end,
    environment_of,
    read_line,
    run_main,
    wait_for_start,
)

HERE = Path(__file__).resolve().parent
GB = 1e9
PATTERNS = {"pccl-direct": "direct", "pccl-ring": "ring"}  # with PCCL_PATTERN
PLANNED = "pccl-planned"  # optimize_topology follows the first all-reduce
PLAN_BUDGET_S = 60.0
PCCL = ("pccl", "pccl-tls", PLANNED, *PATTERNS)  # pccl-tls: encrypted
KIB, MIB = 1 << 10, 1 << 20
FORMATS = ("8bit", "4bit", "bfloat16")  # of a quantized all-reduce
QUANTIZED_ERROR_MAX = 0.02  # of a sum of tensors of one value, as a part of it
PART = MIB  # elements that are compared at once, because a comparison takes memory
FLOOR_SETTINGS = (
    ("1024", "4096", "512"),
    ("256", "1024", "128"),
)  # block, socket buffer, low-water mark in KiB
IPERF_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """The all-reduce of one round.

    Attributes:
        tensor_bytes: bytes of each tensor (float32).
        tensors: number of tensors that are reduced at once.
        loops: number of repetitions back to back, measured together.
        series: number of calls, each timed; the next call begins on all ranks at once, as soon as
            all ranks have finished.
        groups: number of parts of the tensor, each reduced in a group of its own, all at once.
            0: the whole tensor, in the default group.
        quantize: the name of pccl's format (FORMATS) for them; "": as they are.
        goals: by world size, highest ratio of the wall time to Gloo's.
        quick: whether a quick run includes the case.
    """

    name: str
    tensor_bytes: int
    tensors: int = 1
    loops: int = 1
    series: int = 1
    groups: int = 0
    quantize: str = ""
    goals: dict[int, float]
    quick: bool = False

    @property
    def bytes(self) -> int:
        return self.tensor_bytes * self.tensors * self.loops * self.series

    def request(self) -> dict[str, Any]:
        return {
            "elements": self.tensor_bytes // 4,
            "tensors": self.tensors,
            "loops": self.loops,
            "series": self.series,
            "groups": self.groups,
            "quantize": self.quantize,
        }


CASES = (
    Case(
        name="1 KiB",
        tensor_bytes=KIB,
        loops=1000,
        goals={2: 0.6, 4: 0.3, 8: 0.2},
        quick=True,
    ),
    Case(name="64 KiB", tensor_bytes=64 * KIB, loops=1000, goals={2: 0.7, 4: 0.35, 8: 0.25}),
    Case(name="8 x 8 MiB", tensor_bytes=8 * MIB, tensors=8, goals={2: 0.75, 4: 1.0}, quick=True),
    Case(name="64 MiB", tensor_bytes=64 * MIB, goals={2: 0.75, 4: 0.95, 8: 1.0}, quick=True),
    Case(name="256 MiB", tensor_bytes=256 * MIB, goals={2: 0.7, 4: 1.0}),
    Case(name="1 GiB", tensor_bytes=1024 * MIB, goals={2: 0.9}),
)


@dataclass(kw_only=True)
class Row:
    """A case in a world: the figures of each contender in every round, by its name.

    Attributes:
        goal: highest ratio of the wall time to Gloo's.
        limit: seconds that the loopback device needs; None: iperf3 or ping is missing.
        wall: seconds per loop.
        cpu: seconds per GB.
    """

    case: str
    world: int
    bytes: int
    goal: float | None
    limit: float | None
    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def median_wall(self, name: str) -> float:
        """Return seconds."""
        return statistics.median(self.wall[name])

    def median_cpu(self, name: str) -> float:
        """Return seconds per GB."""
        return statistics.median(self.cpu[name])


# ---- One rank, in a process of its own -----------------------------------------------------------


def count(backend: str) -> dict[str, int]:
    """Return this process's context switches so far, on all threads; for pccl, also its traffic."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    counts = {"voluntary": usage.ru_nvcsw, "involuntary": usage.ru_nivcsw}
    if backend in PCCL:
        import names

        links = names.run_info().links
        for name in ("bytes_sent", "send_calls", "receive_calls"):
            if all(hasattr(link, name) for link in links):
                counts[name] = sum(getattr(link, name) for link in links)
    return counts


def rank_main(backend: str, init_method: str, rank: int, world: int) -> None:
    """Join, then serve each request line on stdin (processes.ask_together)."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend in PCCL:  # with the given ranks
        os.environ["PCCL_MASTER"] = init_method
        dist.init_process_group("pccl", store=dist.HashStore(), rank=rank, world_size=world)
    else:
        dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world)
    print("ready", flush=True)
    planned = backend != PLANNED
    tensors: list[torch.Tensor] = []
    groups: list[dist.ProcessGroup] = []  # one for each part of the tensor
    for line in sys.stdin:
        request = json.loads(line)
        loops: int = request["loops"]
        # A sum of zeros remains zero over any number of repetitions.
        value = float(dist.get_rank() + 1) if loops == 1 else 0.0
        if [t.numel() for t in tensors] != [request["elements"]] * request["tensors"]:
            tensors = [torch.empty(request["elements"]) for _ in range(request["tensors"])]
        if not planned:
            planned = plan_routes(rank, request["elements"])
        for tensor in tensors:
            tensor.fill_(value)
        groups += [dist.new_group() for _ in range(len(groups), request["groups"])]
        together: list[tuple[torch.Tensor, dist.ProcessGroup | None]]
        together = [(tensor, None) for tensor in tensors]
        if request["groups"] > 0:
            own = groups[: request["groups"]]
            together = list(zip(tensors[0].tensor_split(len(own)), own, strict=True))
        lossy: str = request["quantize"]
        before = count(backend) if request["counted"] else {}
        cpu = 0.0
        calls = []
        for _ in range(request["series"]):
            wait_for_start()  # a late rank counts: the wall time runs from the first start
            cpu_before, start = time.process_time(), time.monotonic()
            with format_of(lossy):
                for _ in range(loops):
                    if len(together) == 1:
                        dist.all_reduce(tensors[0])
                    else:
                        for work in [
                            dist.all_reduce(part, group=group, async_op=True)
                            for part, group in together
                        ]:
                            work.wait()
            calls.append((start, time.monotonic()))
            cpu += time.process_time() - cpu_before
        after = count(backend) if request["counted"] else {}
        expected = world * (world + 1) / 2 if loops == 1 else 0.0
        expected *= world ** (len(calls) - 1)  # each later call sums the earlier sums
        most = QUANTIZED_ERROR_MAX * len(calls) * expected if lossy else 0.0
        right = all(
            bool(((part - expected).abs() <= most).all())
            for tensor in tensors
            for part in tensor.split(PART)
        )
        answer: dict[str, Any] = {"calls": calls, "cpu": cpu, "right": right}
        answer["counts"] = {name: after[name] - before.get(name, 0) for name in after}
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


def plan_routes(rank: int, elements: int) -> bool:
    """Measure the links, change to the best plan, and print it to stderr at rank 0; return True.

    The plan is for tensors of this size, because the master has seen one.
    """
    import torch
    import torch.distributed as dist

    import pccl_backend as pccl

    dist.all_reduce(torch.zeros(elements))
    begin = time.monotonic()
    plan = pccl.optimize_topology(budget=PLAN_BUDGET_S)
    if rank == 0:
        text = (
            f"measured {len(plan.measured)} pairs in {time.monotonic() - begin:.1f} s; ring "
            f"{list(plan.ring)}, shares {list(plan.shares)}, direct {plan.direct}, predicted "
            f"{plan.predicted} s/GiB (before: {plan.predicted_before}). {plan.note}"
        )
        print(text, file=sys.stderr, flush=True)
    return True


def format_of(name: str) -> AbstractContextManager[None]:
    """Return a block that sets this format for all-reduces."""
    if not name:
        return nullcontext()
    from pccl_backend.quantization import BFloat16, MinMax, quantize

    formats = (MinMax(bits=8), MinMax(bits=4), BFloat16())
    return quantize(dict(zip(FORMATS, formats, strict=True))[name])


class World:
    """`world` rank processes of one backend, started once and used in every round.

    `places`: command prefix of each rank, if the ranks are on machines of their own. Then `address`
    is the address of the first machine, which also runs the master, and `device` is the machines'
    network device. `build`: folder of the package that ranks and master run
    (processes.environment_of). `shares`: of the ranks with the direct pattern, in 256ths.
    """

    def __init__(
        self,
        backend: str,
        world: int,
        *,
        places: Sequence[Sequence[str]] = (),
        address: str = "127.0.0.1",
        device: str = "lo",
        build: Path | None = None,
        shares: Sequence[int] = (),
    ) -> None:
        self.master: Master | None = None
        self.folder: str | None = None
        places = places or [[]] * world
        env = {**environment_of(build), "GLOO_SOCKET_IFNAME": device, "OMP_NUM_THREADS": "1"}
        if backend in PCCL:
            secured = backend == "pccl-tls"
            self.master = Master(address, places[0], build, secured=secured, shares=shares)
            init_method = f"pccl://{self.master.address}/bench"
            env |= self.master.environment
            if backend in PATTERNS:
                env["PCCL_PATTERN"] = PATTERNS[backend]
        else:
            self.folder = tempfile.mkdtemp(prefix="pccl-bench-")
            init_method = f"file://{self.folder}/store"
        arguments = [sys.executable, __file__, "--rank-of", backend, init_method]
        self.ranks = [
            subprocess.Popen(
                [*places[rank], *arguments, str(rank), str(world)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=env,
            )
            for rank in range(world)
        ]
        try:
            for process in self.ranks:
                assert read_line(process).strip() == "ready"
        except BaseException:
            for process in self.ranks:
                process.kill()
            self.close()
            raise

    def _master_cpu(self) -> float:
        return 0.0 if self.master is None else cpu_seconds(self.master.pid)

    def all_reduce(self, case: Case) -> tuple[float, float]:
        """Return wall seconds per loop and CPU seconds per GB."""
        walls, cpu, _ = self._all_reduce(case, counted=False)
        return walls[0], cpu

    def all_reduce_timed(self, case: Case) -> list[tuple[float, float]]:
        """Return begin and end of each rank's call, by the monotonic clock. REQUIRES: one call."""
        assert case.series == 1
        return [tuple(result["calls"][0]) for result in self._ask(case, counted=False)]

    def all_reduce_series(self, case: Case) -> tuple[list[float], float]:
        """Return wall seconds of each call of a series and CPU seconds per GB."""
        walls, cpu, _ = self._all_reduce(case, counted=False)
        return walls, cpu

    def all_reduce_counted(self, case: Case) -> tuple[float, list[dict[str, int]]]:
        """Return wall seconds per loop and the counts of each rank over all loops (see count)."""
        walls, _, counts = self._all_reduce(case, counted=True)
        return walls[0], counts

    def _all_reduce(
        self, case: Case, *, counted: bool
    ) -> tuple[list[float], float, list[dict[str, int]]]:
        before = self._master_cpu()
        results = self._ask(case, counted=counted)
        walls = []
        for calls in zip(*(result["calls"] for result in results), strict=True):
            starts, ends = zip(*calls, strict=True)
            walls.append((max(ends) - min(starts)) / case.loops)
        cpu = sum(r["cpu"] for r in results) + self._master_cpu() - before
        counts = [result["counts"] for result in results]
        return walls, cpu / (case.bytes / GB), counts

    def _ask(self, case: Case, *, counted: bool) -> list[dict[str, Any]]:
        """Return the answers of all ranks."""
        request: dict[str, Any] = {**case.request(), "counted": counted}
        results = [
            json.loads(answer)
            for answer in ask_together(self.ranks, json.dumps(request), case.series)
        ]
        assert all(result["right"] for result in results), "wrong sum"
        return results

    def close(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder)
        end(self.ranks, self.master)


# ---- The floor -----------------------------------------------------------------------------------


def build_floor(folder: str) -> Path:
    program = Path(folder) / "ringfloor"
    source = HERE / "ringfloor.c"
    subprocess.run(["cc", "-O3", "-march=native", "-o", program, source], check=True)
    return program


def floor(program: Path, world: int, mib: float) -> tuple[float, float]:
    """Return the faster of the two settings, one timed all-reduce each (after a warm-up)."""
    return min(run_floor(program, world, mib, setting) for setting in FLOOR_SETTINGS)


def floor_at(
    program: Path, mib: float, namespaces: Sequence[tuple[str, str]]
) -> tuple[float, float]:
    """Measure the first all-reduce with a rank in each namespace, with the system's buffers."""
    places = ",".join(f"{path}={address}" for path, address in namespaces)
    return run_floor(program, len(namespaces), mib, ("256", "0", "128"), "", "0", places)


def run_floor(
    program: Path, world: int, mib: float, setting: tuple[str, str, str], *more: str
) -> tuple[float, float]:
    """Return wall seconds and CPU seconds per GB of one all-reduce."""
    out = subprocess.run(
        [program, str(world), f"{mib:g}", "1", *setting, "1", *more],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    wall = float(out.split("wall ")[1].split(" ms")[0]) / 1e3
    return wall, float(out.split("CPU ")[1].split(" s/GB")[0])


# ---- The limit -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Loopback:
    """Capacity of the device: Mbit/s of all ranks' flows together, and the RTT in ms."""

    world: int
    mbit: float
    rtt_ms: float

    def limit(self, count: int) -> float:
        """Return the seconds that the device needs for an all-reduce of `count` bytes."""
        steps = 2 * (self.world - 1)
        return steps * count * 8 / (self.mbit * 1e6) + steps * self.rtt_ms / 2e3


def loopback_of(world: int) -> Loopback | None:
    """Measure the loopback device, if iperf3 and ping are installed."""
    if not (shutil.which("iperf3") and shutil.which("ping")):
        return None
    mbit = loopback_aggregate(world, IPERF_SECONDS)
    return Loopback(world=world, mbit=mbit, rtt_ms=ping(LOOPBACK))


# ---- The table -----------------------------------------------------------------------------------


def measure(case: Case, worlds: dict[str, World], rounds: int, program: Path, row: Row) -> None:
    """Let the contenders take turns; fill the row."""
    mib = case.tensor_bytes // MIB
    has_floor = mib > 0 and case.tensors == 1
    for round_number in range(-1, rounds):  # the first round is a warm-up
        for name in (*worlds, "floor") if has_floor else tuple(worlds):
            if name in worlds:
                wall, cpu = worlds[name].all_reduce(case)
            else:
                wall, cpu = floor(program, row.world, mib)
            if round_number >= 0:
                row.wall.setdefault(name, []).append(wall)
                row.cpu.setdefault(name, []).append(cpu)


def measure_all(
    cases: Sequence[Case],
    world_sizes: Sequence[int],
    rounds: int,
    seen: Callable[[Row], None],
    *,
    encrypted: bool = False,
    direct: bool = False,
) -> list[Row]:
    """Return all rows; show each row to `seen` as soon as it is measured.

    `encrypted`: pccl takes part a second time, over TLS. `direct`: likewise, with the direct
    pattern.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        program = build_floor(folder)
        for size in world_sizes:
            chosen = [case for case in cases if size in case.goals]
            if not chosen:
                continue
            loopback = loopback_of(size)
            worlds = {"pccl": World("pccl", size), "Gloo": World("gloo", size)}
            if encrypted:
                worlds["pccl-tls"] = World("pccl-tls", size)
            if direct:
                worlds["pccl-direct"] = World("pccl-direct", size)
            try:
                for case in chosen:
                    count = case.tensor_bytes * case.tensors
                    limit = None if loopback is None else loopback.limit(count)
                    row = Row(
                        case=case.name,
                        world=size,
                        bytes=count,
                        goal=case.goals.get(size),
                        limit=limit,
                    )
                    measure(case, worlds, rounds, program, row)
                    rows.append(row)
                    seen(row)
            finally:
                for contender in worlds.values():
                    contender.close()
    return rows


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    cells = [f"{row.case}, world {row.world}"]
    for name in ("pccl", "Gloo", "floor"):
        known = name in row.wall
        cells.append(
            f"{records.spread(row.wall[name])}, {row.median_cpu(name):.2f}" if known else ""
        )
    wall = row.median_wall("pccl")
    cells.append(f"{wall / row.median_wall('Gloo'):.2f}")
    cells.append("" if row.goal is None else f"{row.goal:g}")
    cells.append(f"{row.median_cpu('pccl') / row.median_cpu('Gloo'):.2f}")
    cells.append(f"{wall / row.median_wall('floor'):.2f}" if "floor" in row.wall else "")
    cells.append("" if row.limit is None else f"{row.limit / wall:.2f}")
    for name in ("pccl-tls", "pccl-direct"):
        if name in row.wall:
            cells.append(f"{records.spread(row.wall[name])}, {row.median_cpu(name):.2f}")
            cells.append(f"{row.median_wall(name) / wall:.2f}")
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| | pccl: wall (min-max), CPU s/GB | Gloo | floor "
    "| wall ÷ Gloo | goal | CPU ÷ Gloo | wall ÷ floor | of the limit |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
MORE = {
    "encrypted": " pccl over TLS | TLS ÷ plain |",
    "direct": " pccl, direct | direct ÷ ring |",
}


def head_with(chosen: Sequence[str]) -> str:
    """Return the head of the table with these further contenders."""
    head = HEAD
    for name in chosen:
        head = head.replace("\n", MORE[name] + "\n") + "---|---|"
    return head


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=at_least_one, default=7, help="of each case and world (default 7)"
    )
    parser.add_argument("--cases", nargs="+", default=[case.name for case in CASES])
    add_worlds(parser, "--worlds", [2, 4, 8])
    parser.add_argument("--quick", action="store_true", help="a few cases, three rounds")
    parser.add_argument(
        "--encrypted", action="store_true", help="also measure pccl over TLS, in two more columns"
    )
    parser.add_argument(
        "--direct", action="store_true", help="also measure the direct pattern, in two more columns"
    )
    records.add_option(parser)
    parser.add_argument("--rank-of", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        backend, init_method, rank, world = given.rank_of
        rank_main(backend, init_method, int(rank), int(world))
        return
    unknown = sorted(set(given.cases) - {case.name for case in CASES})
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(c.name for c in CASES)}")
    rounds = 3 if given.quick else given.rounds
    cases = [case for case in CASES if case.name in given.cases and (case.quick or not given.quick)]
    congestion = records.congestion_here()
    head = head_with([name for name in MORE if getattr(given, name)])
    print(f"congestion control: {congestion}; {os.cpu_count()} cores; {rounds} rounds\n\n{head}")
    rows = measure_all(
        cases,
        given.worlds,
        rounds,
        lambda row: print(line(row), flush=True),
        encrypted=given.encrypted,
        direct=given.direct,
    )
    records.write(records.Record(congestion=congestion, rounds=rounds, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
