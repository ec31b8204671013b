"""All-reduce between two hosts: plain text, TLS and Gloo, beside the cost of AES alone.

    sudo .venv/bin/python benchmarks/hosts.py
    sudo .venv/bin/python benchmarks/hosts.py --mib 256 --rounds 3

The hosts are network namespaces, joined by a veth pair with an MTU of 1500. All contenders take
turns within a round. CPU is the time of all threads of all ranks (and of pccl's master) per GB (1e9
bytes) that a rank sends. The pump (aead_pump.c) seals and opens the same bytes with AES-128-GCM,
without a network; its figure counts for one rank's bytes, sent and received, as the CPU figures of
the contenders do. "TLS - plain" is the cost of encryption; in pumps, it is as close to 1 as it can
be when nothing else is added. It needs root, iproute2, a C compiler and OpenSSL's headers.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "wan"))

import all_reduce
import lab
import records
from all_reduce import KIB, MIB, Case
from carriers import DEVICE, Host
from options import at_least_one
from processes import missing, run_main
from programs import Program
from verdict import bootstrap_median

HERE = Path(__file__).resolve().parent
NEEDS = ("root", "cc", "ip", "nsenter", "sysctl")
CONTENDERS = {"gloo": "Gloo", "pccl": "pccl, plain text", "pccl-tls": "pccl, TLS"}
PUMP = "pump"


@dataclass(kw_only=True)
class Row:
    """A size: the figures of each contender in every round, by its name.

    Attributes:
        wall: seconds per call.
        cpu: seconds per GB that a rank sends, of all ranks together.
        pump: the same of sealing and opening alone; the same for all sizes.
    """

    case: str
    bytes: int
    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    pump: list[float] = field(default_factory=list)

    def ratios(self, name: str, other: str) -> list[float]:
        """Return the ratios of the wall times of two contenders, round by round."""
        return [a / b for a, b in zip(self.wall[name], self.wall[other], strict=True)]

    def pumps(self) -> list[float]:
        """Return the CPU time that TLS adds to plain text, in pumps, round by round."""
        rounds = zip(self.cpu["pccl-tls"], self.cpu["pccl"], self.pump, strict=True)
        return [(tls - plain) / pump for tls, plain, pump in rounds]


def cases(mib: int) -> list[Case]:
    """Return the sizes, the largest of them last."""
    sizes = [(1 * KIB, 1000), (1 * MIB, 40), (mib * MIB, 1)]
    return [
        Case(name=records.size_name(size), tensor_bytes=size, loops=loops, goals={})
        for size, loops in sizes
    ]


@contextmanager
def cable() -> Iterator[list[Host]]:
    """Two hosts, joined by a veth pair."""
    with ExitStack() as stack:
        permission = Program([lab.ALLOW_CUBIC], stdin=subprocess.PIPE)
        stack.callback(permission.communicate)
        if permission.line() != "ready\n":
            raise SystemExit(f"{lab.ALLOW_CUBIC.name} has failed: see its error above")
        hosts = []
        for number in range(2):
            hosts.append(Host(number))
            stack.callback(hosts[-1].inside.close)
        ends = [f"name {DEVICE} netns {host.inside.pid}" for host in hosts]
        hosts[0].inside.run(*f"ip link add {ends[0]} type veth peer {ends[1]}".split())
        for host in hosts:
            host.configure(lab.SETTINGS)
        yield hosts


def build_pump(folder: str) -> Path:
    """Compile the pump; return the program."""
    program = Path(folder) / "aead_pump"
    source = HERE / "aead_pump.c"
    subprocess.run(["cc", "-O2", "-o", program, source, "-lcrypto"], check=True)
    return program


def pump(program: Path, mib: int) -> float:
    """Return CPU seconds per GB of sealing and opening, for two ranks: each does both."""
    words = subprocess.run(
        [program, str(mib)], check=True, capture_output=True, text=True
    ).stdout.split()
    return 2 * (float(words[1]) + float(words[4]))


def measure(mib: int, rounds: int, contenders: Sequence[str]) -> list[Row]:
    """Return a row for each size."""
    rows = [Row(case=case.name, bytes=case.tensor_bytes) for case in cases(mib)]
    with cable() as hosts, ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pccl-bench-"))
        program = build_pump(folder)
        places = [host.inside.command() for host in hosts]
        worlds = {
            name: stack.enter_context(
                closing(
                    all_reduce.World(
                        name, 2, places=places, address=hosts[0].address, device=DEVICE
                    )
                )
            )
            for name in contenders
        }
        for number in range(-1, rounds):  # the first round is a warm-up
            pumped = pump(program, mib)
            for row, case in zip(rows, cases(mib), strict=True):
                if number >= 0:
                    row.pump.append(pumped)
                for name, world in worlds.items():
                    wall, cpu = world.all_reduce(case)
                    if number >= 0:
                        row.wall.setdefault(name, []).append(wall)
                        row.cpu.setdefault(name, []).append(cpu)
    return rows


_COLUMNS = (
    *("two hosts", *CONTENDERS.values(), "plain ÷ Gloo", "TLS ÷ Gloo"),
    *("CPU s/GB: Gloo", "plain", "TLS", PUMP, "TLS - plain, in pumps"),
)
HEAD = f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|"


def interval(values: Sequence[float]) -> str:
    """Return the median and its 90 % interval: `0.95 (0.91-0.98)`."""
    low, high = bootstrap_median(values)
    return f"{statistics.median(values):.2f} ({low:.2f}-{high:.2f})"


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    walls = [records.spread(row.wall[name]) for name in CONTENDERS]
    ratios = [interval(row.ratios(name, "gloo")) for name in ("pccl", "pccl-tls")]
    if row.bytes < MIB:  # CPU per GB says nothing about calls without bytes
        cells = [row.case, *walls, *ratios, *[""] * 5]
    else:
        cpu = [f"{statistics.median(row.cpu[name]):.2f}" for name in CONTENDERS]
        pumped = f"{statistics.median(row.pump):.2f}"
        cells = [row.case, *walls, *ratios, *cpu, pumped, interval(row.pumps())]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=7)
    parser.add_argument("--mib", type=at_least_one, default=256, help="the largest tensor")
    records.add_option(parser)
    given = parser.parse_args()
    if without := missing(NEEDS):
        raise SystemExit(f"two hosts need {', '.join(without)}")
    rows = measure(given.mib, given.rounds, list(CONTENDERS))
    print("\n".join([HEAD, *map(line, rows)]))
    congestion = lab.CONGESTION
    records.write(records.Record(congestion=congestion, rounds=given.rounds, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
