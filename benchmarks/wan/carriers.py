"""Carriers of packets between the hosts of a lab: Linux's netem, or our emulator (emulator.cc).

netem is well known and trusted, and it needs no core of its own to be punctual; not every kernel
has it. The emulator runs on all kernels. It can slow down a single connection, flip bits in a way
that TCP does not notice, and record the packets that it carries. It takes whole segments of up to
64 KiB from the hosts. netem needs packets of 1,500 bytes, so that its losses and queues resemble a
network's.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))

from network import COMMAND_S, Namespace
from processes import cpu_seconds
from programs import Program

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SUBNET = "10.88.0"
DEVICE = "wan0"  # on each host
MTU = 1500
# Beyond these limits a result depends more on the carrier than on the traffic.
CORE_SHARE_MAX = 0.85
LATE_SHARE_MAX = 0.01  # a virtual machine on a shared processor is late this often


@dataclass(frozen=True, kw_only=True)
class Report:
    """The carrier's observations.

    Attributes:
        carrier: its name.
        core: share of a core that each of its threads was busy. For netem: the share of all cores
            that soft interrupts took; netem and TCP's receiving side run in soft interrupts.
        flips: for each bit that was flipped, the milliseconds until the receiver has ended the
            connection; None: it never did.
        late: share of packets passed on more than a millisecond too late; None: unknown.
        dropped: packets that a device dropped because the carrier was too slow.
        lost: share of packets lost by chance or by a full queue.
    """

    carrier: str
    core: float
    late: float | None
    dropped: int
    lost: float
    flips: Sequence[float | None] = ()

    @property
    def sound(self) -> bool:
        """Whether the results of this run may be used."""
        on_time = self.late is None or self.late <= LATE_SHARE_MAX
        return self.core <= CORE_SHARE_MAX and on_time and self.dropped == 0

    def __str__(self) -> str:
        verdict = "sound" if self.sound else f"NOT SOUND: the {self.carrier} was too slow"
        late = "" if self.late is None else f"{self.late:.2%} late, "
        return (
            f"{self.carrier}: {self.core:.2f} of a core, {late}{self.dropped} dropped by "
            f"devices, {self.lost:.4%} of packets lost; {verdict}"
        )


class Host:
    """One machine: a network namespace. The carrier makes its device."""

    def __init__(self, number: int) -> None:
        self.address = f"{SUBNET}.{10 + number}"
        self.inside = Namespace()

    def configure(self, settings: Sequence[str]) -> None:
        """Give the device, which exists by now, its address, and the machine these settings."""
        for command in (
            "ip link set lo up",
            f"ip address add {self.address}/24 dev {DEVICE}",
            f"ip link set {DEVICE} txqueuelen 10000 mtu {MTU} up",
        ):
            self.inside.run(*command.split())
        for setting in settings:
            self.inside.run("sysctl", "-qw", setting)

    def drops(self) -> int:
        """Return the number of packets that its device has dropped."""
        words = self.inside.run("cat", "/proc/net/dev")
        line = next(line for line in words.splitlines() if f"{DEVICE}:" in line)
        counts = line.split(":")[1].split()
        return int(counts[3]) + int(counts[11])


@dataclass(frozen=True, kw_only=True)
class NetworkPath:
    """A path from one host to another.

    Attributes:
        queue_ms: queue length, in milliseconds at its rate.
        loss: chance that a packet is lost.
        flips: chance that a bit of TCP's payload arrives flipped, in a packet whose checksum is
            right.
    """

    mbit: float
    rtt_ms: float
    queue_ms: float
    loss: float
    flips: float = 0.0

    @property
    def queue_bytes(self) -> float:
        """Bytes that may wait before it."""
        return self.mbit * 125 * self.queue_ms

    @property
    def packets_max(self) -> int:
        """Packets of the largest size that may wait or be in flight in one direction."""
        return math.ceil(self.mbit * 125 * (self.rtt_ms / 2 + self.queue_ms) / MTU) + 1


@dataclass(frozen=True, kw_only=True)
class Trunk:
    """A rate that several paths share.

    Attributes:
        queue_ms: queue length, in milliseconds at its rate.
        paths: pairs of hosts, each in one direction.
    """

    mbit: float
    queue_ms: float
    paths: Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A network.

    Attributes:
        uplink_mbit: uplink of each host; 0: unlimited.
        paths: path of each pair of hosts that may communicate.
        trunks: rates that several paths share.
        slow: slow single connections, as in the scenario.
        seed: seed of all chances, for the emulator.
    """

    hosts: Sequence[Host]
    uplink_mbit: float
    paths: Mapping[tuple[int, int], NetworkPath]
    trunks: Sequence[Trunk] = ()
    slow: Sequence[Mapping[str, Any]] = ()
    seed: int = 20260101


class Carrier(Protocol):
    """Carries packets after start(). close() restores the machine, even after a failed start()."""

    threads: int

    def start(self, plan: Plan) -> None:
        """Give each host its device."""

    def change(self, source: int, target: int, mbit: float) -> None:
        """Change the rate of a path between two hosts."""

    def trace(self, file: Path | None) -> None:
        """Record all packets from now on; with a file, write them to it, and record no more."""

    def cpu(self) -> float:
        """Return its CPU seconds so far."""

    def end(self) -> Report:
        """End it; return its observations."""

    def close(self) -> None:
        """Remove everything that it has made."""


# ---- Our emulator --------------------------------------------------------------------------------


class Emulator:
    """emulator.cc, in a process of its own."""

    def __init__(self) -> None:
        self.threads = 1
        self._folder: Path | None = None
        self._process: Program | None = None

    def start(self, plan: Plan) -> None:
        self.threads = min(os.cpu_count() or 1, len(plan.hosts))  # as in carry_all() of emulator.cc
        self._folder = Path(tempfile.mkdtemp(prefix="pccl-wan-"))
        program = self._folder / "emulator"
        source = HERE / "emulator.cc"
        compile = ["c++", "-std=c++20", "-O2", "-pthread", f"-I{ROOT}", "-o", program, source]
        subprocess.run(compile, check=True, timeout=5 * COMMAND_S)
        self._process = Program([program], stdin=subprocess.PIPE)
        assert self._process.stdin is not None
        self._process.stdin.write("\n".join([*self._lines(plan), "go", ""]))
        self._process.stdin.flush()
        if self._process.line(COMMAND_S).strip() != "ready":
            raise SystemExit("the emulator has not started: see its error above")

    @staticmethod
    def _lines(plan: Plan) -> Iterable[str]:
        yield f"seed {plan.seed}"
        for host in plan.hosts:
            yield f"host {host.inside.path} {host.address} {plan.uplink_mbit}"
        for (source, target), path in plan.paths.items():
            queue_kib = path.queue_bytes / 1024
            chances = f"{path.loss} {path.flips}"
            yield f"path {source} {target} {path.mbit} {path.rtt_ms / 2} {queue_kib} {chances}"
        for trunk in plan.trunks:
            yield f"trunk {trunk.mbit} {trunk.mbit * 125 * trunk.queue_ms / 1024}"
            yield from (f"cross {source} {target}" for source, target in trunk.paths)
        for slow in plan.slow:
            yield f"slow {slow['from']} {slow['to']} {slow['connection']} {slow['mbit']}"

    def change(self, source: int, target: int, mbit: float) -> None:
        self._write(f"change {source} {target} {mbit}")

    def trace(self, file: Path | None) -> None:
        self._write("trace on" if file is None else f"trace off {file}")
        assert self._process is not None
        answer = self._process.line(COMMAND_S).strip()
        if answer != ("tracing" if file is None else "traced"):
            raise SystemExit("the emulator has ended: see its error above")

    def _write(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def cpu(self) -> float:
        assert self._process is not None
        return cpu_seconds(self._process.pid)

    def end(self) -> Report:
        assert self._process is not None
        seen = json.loads(self._process.communicate()[0])
        return Report(
            carrier="emulator",
            core=seen["cpu"] / seen["wall"] / seen["threads"],
            late=seen["late"] / max(seen["delivered"], 1),
            dropped=seen["refused"],
            lost=(seen["lost"] + seen["overflowed"]) / max(seen["packets"], 1),
            flips=seen["flips"],
        )

    def close(self) -> None:
        if self._process is not None:
            self._process.end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


# ---- Linux's netem -------------------------------------------------------------------------------

UPLINK_QUEUE_MS = 50  # as kUplinkQueue of emulator.cc
ETHERNET_BYTES = 14  # of a frame's header, which no rate counts
NO_LIMIT = "rate 100gbit quantum 60000"


class Netem:
    """Hosts joined by a bridge. Each host's device has a token bucket. Each bridge port has one
    netem for each other host that sends to the port's host."""

    def __init__(self) -> None:
        self.threads = os.cpu_count() or 1
        self._bridge: Namespace | None = None
        self._ports = 0
        self._wall = self._cpu_before = 0.0

    @staticmethod
    def is_there() -> bool:
        """Return whether this kernel has netem."""
        place = Namespace()
        try:
            added = place.command("tc", "qdisc", "add", "dev", "lo", "root", "netem", "limit", "1")
            done = subprocess.run(added, check=False, stderr=subprocess.DEVNULL, timeout=COMMAND_S)
        finally:
            place.close()
        return done.returncode == 0

    def start(self, plan: Plan) -> None:
        if plan.slow or plan.trunks or any(path.flips > 0 for path in plan.paths.values()):
            raise SystemExit(
                "netem can neither share a rate among paths, nor slow one connection down, nor "
                "flip bits unnoticed"
            )
        self._ports = len(plan.hosts)
        self._bridge = Namespace()
        _batch(self._bridge, "ip", self._cables(plan))
        _batch(self._bridge, "tc", self._disciplines(plan))
        if plan.uplink_mbit > 0:
            for host in plan.hosts:
                _batch(host.inside, "tc", [self._uplink(plan.uplink_mbit)])
        self._wall, self._cpu_before = _uptime(), self.cpu()

    @staticmethod
    def _cables(plan: Plan) -> Iterable[str]:
        yield "link add bridge type bridge"
        yield "link set bridge up"
        for number, host in enumerate(plan.hosts):
            # Packets leave one by one: a lost segment of 64 KiB would be 44 lost packets at once.
            peer = f"peer name {DEVICE} gso_max_segs 1 netns {host.inside.pid}"
            yield f"link add port{number} type veth {peer}"
            yield f"link set port{number} master bridge up"

    @staticmethod
    def _disciplines(plan: Plan) -> Iterable[str]:
        for number in range(len(plan.hosts)):
            yield f"qdisc add dev port{number} root handle 1: htb"
        for (source, target), path in plan.paths.items():
            port, own = f"dev port{target}", f"1:{source + 1:x}"
            yield f"class add {port} parent 1: classid {own} htb {NO_LIMIT}"
            yield (
                f"qdisc add {port} parent {own} netem limit {path.packets_max} "
                f"delay {path.rtt_ms / 2}ms loss {path.loss:.9%} rate {path.mbit}mbit "
                f"-{ETHERNET_BYTES}"
            )
            yield (
                f"filter add {port} parent 1: protocol ip prio 1 u32 "
                f"match ip src {plan.hosts[source].address}/32 flowid {own}"
            )

    @staticmethod
    def _uplink(mbit: float) -> str:
        burst = max(10 * MTU, round(mbit * 125))  # one millisecond at the uplink's rate
        return (
            f"qdisc add dev {DEVICE} root stab overhead -{ETHERNET_BYTES} tbf rate {mbit}mbit "
            f"burst {burst} latency {UPLINK_QUEUE_MS}ms"
        )

    def change(self, source: int, target: int, mbit: float) -> None:
        raise SystemExit("netem keeps the rates of its paths: set WAN_LAB=emulator")

    def trace(self, file: Path | None) -> None:
        raise SystemExit("netem records no packets: set WAN_LAB=emulator")

    def cpu(self) -> float:
        """Return the seconds of all soft interrupts of this machine (man 5 proc_stat)."""
        counts = Path("/proc/stat").read_text().splitlines()[0].split()
        return int(counts[7]) / os.sysconf("SC_CLK_TCK")

    def end(self) -> Report:
        assert self._bridge is not None
        packets = lost = 0
        for number in range(self._ports):
            shown = self._bridge.run("tc", "-s", "-j", "qdisc", "show", "dev", f"port{number}")
            for one in json.loads(shown):
                if one["kind"] == "netem":
                    packets += one["packets"] + one["drops"]
                    lost += one["drops"]
        seconds = max(_uptime() - self._wall, 1e-3)
        return Report(
            carrier="netem",
            core=(self.cpu() - self._cpu_before) / seconds / self.threads,
            late=None,
            dropped=0,
            lost=lost / max(packets, 1),
        )

    def close(self) -> None:
        if self._bridge is not None:
            self._bridge.close()


def _uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def _batch(place: Namespace, program: str, lines: Iterable[str]) -> None:
    subprocess.run(
        place.command(program, "-batch", "-"),
        input="\n".join([*lines, ""]),
        check=True,
        text=True,
        timeout=COMMAND_S,
    )


CARRIERS: dict[str, type[Emulator | Netem]] = {"emulator": Emulator, "netem": Netem}
