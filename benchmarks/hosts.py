"""All-reduce between hosts: plain text, TLS and Gloo, beside the cost of AES alone.

    sudo .venv/bin/python benchmarks/hosts.py
    sudo .venv/bin/python benchmarks/hosts.py --hosts 2 --mib 256 --rounds 3

The hosts are network namespaces with an MTU of 1500 and with boot ids of their own, so that pccl
takes them for machines: two are joined by a veth pair, more by a bridge. All contenders take turns
within a round. CPU is the time of all threads of all ranks (and of pccl's master) per GB (1e9
bytes) of one rank's tensor. The pump (aead_pump.c) seals and opens the bytes that all ranks send
for it with AES-128-GCM, without a network. "TLS - plain" is the cost of encryption; in pumps, it is
as close to 1 as it can be when nothing else is added. It needs root, iproute2, a C compiler and
OpenSSL's headers.
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
from network import Namespace, own_boot_id
from options import add_worlds, at_least_one
from processes import missing, run_main
from programs import Program
from verdict import bootstrap_median

HERE = Path(__file__).resolve().parent
NEEDS = ("root", "cc", "ip", "nsenter", "sysctl")
CONTENDERS = {"gloo": "Gloo", "pccl": "pccl, plain text", "pccl-tls": "pccl, TLS"}
PUMP = "pump"


@dataclass(kw_only=True)
class Row:
    """A size among so many hosts: the figures of each contender in every round, by its name.

    Attributes:
        wall: seconds per call.
        cpu: seconds per GB of one rank's tensor, of all ranks together.
        pump: the same of sealing and opening alone, of the largest size.
    """

    hosts: int
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
    sizes = [(1 * KIB, 100), (1 * MIB, 20), (mib * MIB, 1)]
    return [
        Case(name=records.size_name(size), tensor_bytes=size, loops=loops, goals={})
        for size, loops in sizes
    ]


@contextmanager
def network(count: int) -> Iterator[list[Host]]:
    """Hosts that are joined by a veth pair, or by a bridge if they are more than two."""
    with ExitStack() as stack:
        permission = Program([lab.ALLOW_CUBIC], stdin=subprocess.PIPE)
        stack.callback(permission.communicate)
        if permission.line() != "ready\n":
            raise SystemExit(f"{lab.ALLOW_CUBIC.name} has failed: see its error above")
        hosts = []
        for number in range(count):
            hosts.append(Host(number))
            stack.callback(hosts[-1].inside.close)
        ends = [f"name {DEVICE} netns {host.inside.pid}" for host in hosts]
        if count == 2:
            hosts[0].inside.run(*f"ip link add {ends[0]} type veth peer {ends[1]}".split())
        else:
            switch = Namespace()
            stack.callback(switch.close)
            switch.run("ip", "link", "add", "bridge", "type", "bridge")
            switch.run("ip", "link", "set", "bridge", "up")
            for number, end in enumerate(ends):
                switch.run(*f"ip link add port{number} type veth peer {end}".split())
                switch.run(*f"ip link set port{number} master bridge up".split())
        for host in hosts:
            host.configure(lab.SETTINGS)
        yield hosts


def build_pump(folder: str) -> Path:
    """Compile the pump; return the program."""
    program = Path(folder) / "aead_pump"
    source = HERE / "aead_pump.c"
    subprocess.run(["cc", "-O2", "-o", program, source, "-lcrypto"], check=True)
    return program


def pump(program: Path, mib: int, hosts: int) -> float:
    """Return CPU seconds per GB of one rank's tensor, of which all ranks send 2(N-1) times that.

    All ranks seal and open at once, as the ranks of the contenders do: cores that share hardware
    are slower together.
    """
    ranks = [Program([program, str(mib)]) for _ in range(hosts)]
    words = [rank.communicate()[0].split() for rank in ranks]
    return 2 * (hosts - 1) * statistics.mean(float(word[1]) + float(word[4]) for word in words)


def measure(count: int, mib: int, rounds: int, contenders: Sequence[str]) -> list[Row]:
    """Return a row for each size, among this number of hosts."""
    rows = [Row(hosts=count, case=case.name, bytes=case.tensor_bytes) for case in cases(mib)]
    with network(count) as hosts, ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pccl-bench-"))
        program = build_pump(folder)
        places = [
            [*host.inside.command(), *own_boot_id(Path(folder), number)]
            for number, host in enumerate(hosts)
        ]
        worlds = {
            name: stack.enter_context(
                closing(
                    all_reduce.World(
                        name, count, places=places, address=hosts[0].address, device=DEVICE
                    )
                )
            )
            for name in contenders
        }
        # One size after the other: calls of one size would free the memory that a larger one keeps.
        for row, case in zip(rows, cases(mib), strict=True):
            for number in range(-1, rounds):  # the first round is a warm-up
                pumped = pump(program, mib, count)
                measured = {name: world.all_reduce(case) for name, world in worlds.items()}
                if number < 0:
                    continue
                row.pump.append(pumped)
                for name, (wall, cpu) in measured.items():
                    row.wall.setdefault(name, []).append(wall)
                    row.cpu.setdefault(name, []).append(cpu)
    return rows


_COLUMNS = (
    *("hosts", "size", *CONTENDERS.values(), "plain ÷ Gloo", "TLS ÷ Gloo"),
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
        cells = [*walls, *ratios, *[""] * 5]
    else:
        cpu = [f"{statistics.median(row.cpu[name]):.2f}" for name in CONTENDERS]
        pumped = f"{statistics.median(row.pump):.2f}"
        cells = [*walls, *ratios, *cpu, pumped, interval(row.pumps())]
    return f"| {' | '.join([str(row.hosts), row.case, *cells])} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=7)
    add_worlds(parser, "--hosts", [2, 4])
    parser.add_argument("--mib", type=at_least_one, default=256, help="the largest tensor")
    records.add_option(parser)
    given = parser.parse_args()
    if without := missing(NEEDS):
        raise SystemExit(f"these hosts need {', '.join(without)}")
    rows = [
        row
        for count in given.hosts
        for row in measure(count, given.mib, given.rounds, list(CONTENDERS))
    ]
    print("\n".join([HEAD, *map(line, rows)]))
    congestion = lab.CONGESTION
    records.write(records.Record(congestion=congestion, rounds=given.rounds, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
