"""How long torch's `reconfigure` takes: pccl and Gloo, side by side in one run.

    tools/stock-network.sh .venv/bin/python benchmarks/reconfigure.py
    tools/stock-network.sh .venv/bin/python benchmarks/reconfigure.py --worlds 4 --rounds 100
    sudo tools/stock-network.sh .venv/bin/python benchmarks/reconfigure.py --rtts 0 50 \\
        --picture benchmarks/plots/reconfigure.png

The ranks are on loopback, or, with an RTT, each on a host of its own in an emulated network
(wan/lab.py), which needs root. There pccl runs in plain text, as Gloo does.
The ranks of both backends are there all the time, and take turns. In a round the same ranks meet
again ("same"), then without the last one ("shrink"), then with it ("grow"). A time lasts from a
common start until reconfigure has returned on the slowest rank, and until an all-reduce of 1 MiB
after it has returned there. The ratio of a row is the median of the ratios of the rounds.
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
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import records
from options import add_worlds, at_least_one
from processes import ask, ask_together, end, read_line, run_main, wait_for_start
from sections import table

WAN = Path(__file__).resolve().parent / "wan"

BACKENDS = ("pccl", "gloo")
KINDS = ("same", "shrink", "grow")
ELEMENTS = 1 << 18  # 1 MiB of float32
LIMIT = timedelta(seconds=60)
MBIT = 1000.0  # of each path of the emulated network
QUEUE_MS = 50.0


@dataclass(kw_only=True)
class Row:
    """A kind of change at a world size: the seconds of each round, by backend.

    Attributes:
        rtt_ms: RTT of the emulated network; 0: loopback.
        alone: until reconfigure has returned on the slowest rank.
        with_call: until the all-reduce after it has returned there.
        emulator: the emulator's observations.
        sound: whether the figures may be used.
    """

    world: int
    kind: str
    rtt_ms: float = 0.0
    alone: dict[str, list[float]] = field(default_factory=dict)
    with_call: dict[str, list[float]] = field(default_factory=dict)
    emulator: str = ""
    sound: bool = True


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Machines of the ranks.

    Attributes:
        places: command prefix of each rank.
        address: address of the first machine, which has the store.
        device: network device of all machines.
    """

    places: Sequence[Sequence[str]]
    address: str
    device: str

    def start(self, rank: int, *options: str) -> subprocess.Popen[str]:
        """Start this script on the machine of a rank."""
        environment = {"GLOO_SOCKET_IFNAME": self.device, "OMP_NUM_THREADS": "1"}
        # torch's store looks for the names of addresses, and warns if a namespace has none.
        environment["TORCH_CPP_LOG_LEVEL"] = "ERROR"
        if self.device != "lo":
            environment["PCCL_INSECURE"] = "1"
        return subprocess.Popen(
            [*self.places[rank], sys.executable, __file__, "--address", self.address, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )


# ---- In the processes ----------------------------------------------------------------------------


def store_main(address: str) -> None:
    """Serve a store until the input ends, and print its port."""
    import torch.distributed as dist

    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    print(store.port, flush=True)
    sys.stdin.read()


def rank_main(given: argparse.Namespace) -> None:
    """Answer one line for each line: a handle, or the seconds of a reconfigure."""
    import torch
    import torch.distributed as dist

    import pccl_backend  # noqa: F401, torch knows the backend then

    backend, rank, world = given.backend, given.rank, given.world
    torch.set_num_threads(1)
    store = dist.TCPStore(given.address, given.port, world, is_master=False)
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(backend, store),
        rank=rank,
        world_size=world,
        timeout=LIMIT,
        enable_reconfigure=True,
    )
    tensor = torch.ones(ELEMENTS)
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "handle\n":
            print(dist._get_reconfigure_handle(), flush=True)
            continue
        uuid, handles = json.loads(line)
        wait_for_start()
        began = time.perf_counter()
        dist._reconfigure(uuid, handles, timeout=LIMIT).wait()
        alone = time.perf_counter() - began
        dist.all_reduce(tensor)
        print(json.dumps([alone, time.perf_counter() - began]), flush=True)
    dist.destroy_process_group()


# ---- Measuring -----------------------------------------------------------------------------------


class Ranks:
    """The rank processes of one backend."""

    def __init__(self, backend: str, machines: Machines, port: int) -> None:
        world = len(machines.places)
        options = ["--backend", backend, "--world", str(world), "--port", str(port)]
        self.uuid = 0
        self.processes = [
            machines.start(rank, *options, "--rank", str(rank)) for rank in range(world)
        ]

    def meet(self, count: int) -> tuple[float, float]:
        """Let the first `count` ranks meet; return the seconds of the slowest one."""
        some = self.processes[:count]
        handles = [line.strip() for line in ask(some, "handle")]
        self.uuid += 1
        said = ask_together(some, json.dumps([self.uuid, handles]))
        times = [json.loads(line) for line in said]
        return max(time[0] for time in times), max(time[1] for time in times)


def take_turns(machines: Machines, rows: Sequence[Row], rounds: int) -> None:
    """Fill the rows. The store is on the first machine, as torchrun has it."""
    world = len(machines.places)
    store = machines.start(0, "--store")
    ranks: dict[str, Ranks] = {}
    try:
        port = int(read_line(store))
        for backend in BACKENDS:
            ranks[backend] = Ranks(backend, machines, port)
        for some in ranks.values():
            for process in some.processes:
                read_line(process)
            some.meet(world)  # the first meeting is not counted
        for _ in range(rounds):
            for row in rows:
                for backend, some in ranks.items():
                    alone, both = some.meet(world - (row.kind == "shrink"))
                    row.alone.setdefault(backend, []).append(alone)
                    row.with_call.setdefault(backend, []).append(both)
    finally:
        end([process for some in ranks.values() for process in some.processes], None)
        end([store], None)


def in_lab(rows: Sequence[Row], rounds: int) -> None:
    """Fill the rows in an emulated network: all hosts have the same RTT to each other."""
    sys.path.insert(0, str(WAN))
    from lab import Lab
    from network import own_boot_id

    world, rtt_ms = rows[0].world, rows[0].rtt_ms
    lab = Lab(
        {
            "hosts": ["town"] * world,
            "default": {"mbit": MBIT, "queue_ms": QUEUE_MS, "loss": 0.0},
            "rtt_ms": {"town-town": rtt_ms},
        }
    )
    with lab, tempfile.TemporaryDirectory(prefix="pccl-bench-") as folder:
        places = [
            [*place, *own_boot_id(Path(folder), number)]
            for number, place in enumerate(lab.places())
        ]
        machines = Machines(places=places, address=lab.hosts[0].address, device="wan0")
        take_turns(machines, rows, rounds)
    assert lab.report is not None
    for row in rows:
        row.emulator, row.sound = str(lab.report), lab.report.sound


def measure(world: int, rounds: int, rtt_ms: float) -> list[Row]:
    """Return a row for each kind."""
    kinds = [kind for kind in KINDS if world > 2 or kind == "same"]
    rows = [Row(world=world, kind=kind, rtt_ms=rtt_ms) for kind in kinds]
    if rtt_ms > 0:
        in_lab(rows, rounds)
    else:
        take_turns(Machines(places=[[]] * world, address="127.0.0.1", device="lo"), rows, rounds)
    return rows


# ---- The table -----------------------------------------------------------------------------------


HEAD = ("network", "world", "change", "pccl (min-max)", "Gloo", "pccl ÷ Gloo")
HEAD += ("with an all-reduce: pccl", "Gloo", "pccl ÷ Gloo")


def network_name(rtt_ms: float) -> str:
    """Return the name of a network, for people."""
    return f"RTT of {rtt_ms:g} ms" if rtt_ms > 0 else "loopback"


def ratio(times: dict[str, list[float]]) -> float:
    """Return the median of the ratios of the rounds."""
    pairs = zip(times["pccl"], times["gloo"], strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs)


def cells(row: Row) -> list[str]:
    """Return a row of the table."""
    found = [network_name(row.rtt_ms), str(row.world), row.kind]
    for times in (row.alone, row.with_call):
        found += [records.spread(times["pccl"]), records.spread(times["gloo"])]
        found.append(f"{ratio(times):.2f}")
    return found


def milliseconds(text: str) -> float:
    """Return an RTT.

    Raises:
        argparse.ArgumentTypeError: the text is no number from 0 on.
    """
    try:
        if (given := float(text)) >= 0:
            return given
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} must be a number of milliseconds, from 0 on")


def main() -> int:
    """Print a table for each world; return 1 if the emulator did not keep up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=20)
    add_worlds(parser, "--worlds", [2, 4, 8, 16])
    rtts = "of the emulated network, in milliseconds; 0: loopback (default 0)"
    parser.add_argument("--rtts", type=milliseconds, nargs="+", default=[0.0], help=rtts)
    parser.add_argument("--picture", type=Path, help="draw the times there")
    records.add_option(parser)
    parser.add_argument("--backend", choices=BACKENDS, help=argparse.SUPPRESS)
    parser.add_argument("--store", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    for name in ("--rank", "--world", "--port"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.store:
        store_main(given.address)
        return 0
    if given.backend is not None:
        rank_main(given)
        return 0
    rows: list[Row] = []
    for rtt_ms in given.rtts:
        for world in given.worlds:
            measured = measure(world, given.rounds, rtt_ms)
            rows += measured
            print(table(HEAD, [cells(row) for row in measured]) + measured[0].emulator, flush=True)
    congestion = records.congestion_here()
    records.write(records.Record(congestion=congestion, rounds=given.rounds, rows=rows), given.json)
    sound = [row for row in rows if row.sound]
    if given.picture is not None and sound:
        sys.path.insert(0, str(WAN))  # plots.py draws its results, too
        import plots

        plots.reconfigures(sound, given.picture)
    return int(len(sound) < len(rows))


if __name__ == "__main__":
    run_main(main)
