"""A wide-area network on one machine: hosts in namespaces, links in user space (emulator.cc).

    sudo .venv/bin/python benchmarks/wan/lab.py benchmarks/wan/atlantic.toml

prints what the network does to ping and to iperf3: round trips, one flow, several, both ways.
A scenario names regions and the ways between them:

    hosts = ["home", "centre"]        # the region of each host
    uplink_mbit = 500.0               # of each host; left out: unlimited
    buffer_kib = 96                   # the most a connection may have under way; left out: as ever
    default = { mbit = 400.0, queue_ms = 40.0, loss = 2e-6 }   # of each pair of hosts, each way
    ways = [                          # exceptions, one way; "*" is any region; the later ones win
      { from = "home", to = "*", mbit = 60.0 },
    ]

    [rtt_ms]
    home-centre = 35.0

    [[slow]]                          # one connection from a host to another, counted from 1
    from = 0
    to = 1
    connection = 5
    mbit = 4.0

A queue is given in milliseconds of its rate, a loss as the chance of a packet.

Needs root, TUN, iproute2, iperf3 and a C++ compiler. Nothing stays behind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import tomllib

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))

import paths
from network import Namespace
from processes import cpu_seconds, run_main

HERE = Path(__file__).resolve().parent
SUBNET = "10.88.0"
# What a namespace may choose; a machine whose own default is another one may not list cubic.
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
CONGESTION = "cubic"
SETTINGS = (
    f"net.ipv4.tcp_congestion_control={CONGESTION}",
    "net.ipv4.tcp_no_metrics_save=1",  # what a connection has learned is not passed on to the next
)
# Beyond these a result says more of the emulator than of what it carries.
CORE_SHARE_MAX = 0.85
LATE_SHARE_MAX = 0.01  # a virtual machine whose processor is shared with others misses this often


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the emulator saw.

    Attributes:
        core: the share of a core that each of its threads was busy.
        late: the share of packets that it passed on more than a millisecond too late.
        dropped: by a device, because the emulator did not keep up.
        lost: the share that was lost by chance, or found a queue full.
    """

    core: float
    late: float
    dropped: int
    lost: float

    @property
    def sound(self) -> bool:
        """Whether results of this run may be used."""
        return self.core <= CORE_SHARE_MAX and self.late <= LATE_SHARE_MAX and self.dropped == 0

    def __str__(self) -> str:
        verdict = "sound" if self.sound else "NOT SOUND: the emulator was too slow"
        return (
            f"emulator: {self.core:.2f} of a core, {self.late:.2%} late, {self.dropped} dropped by "
            f"devices, {self.lost:.4%} of packets lost; {verdict}"
        )


class Host:
    """One machine: a network namespace with a device that the emulator has made."""

    def __init__(self, number: int) -> None:
        self.address = f"{SUBNET}.{10 + number}"
        self.inside = Namespace()

    def configure(self, settings: Sequence[str]) -> None:
        """Give the device that is there by now its address, and the machine these settings."""
        for command in (
            "ip link set lo up",
            f"ip address add {self.address}/24 dev wan0",
            "ip link set wan0 txqueuelen 10000 mtu 1500 up",
        ):
            self.inside.run(*command.split())
        for setting in (*SETTINGS, *settings):
            self.inside.run("sysctl", "-qw", setting)

    def drops(self) -> int:
        """Packets that its device has thrown away."""
        words = self.inside.run("cat", "/proc/net/dev")
        line = next(line for line in words.splitlines() if "wan0:" in line).split(":")[1].split()
        return int(line[3]) + int(line[11])


class Lab:
    """A scenario that runs, as a context."""

    congestion = CONGESTION

    def __init__(self, scenario: Path | dict[str, Any]) -> None:
        """Take a scenario: the file that has it, or itself."""
        self.scenario: dict[str, Any] = (
            scenario if isinstance(scenario, dict) else tomllib.loads(scenario.read_text())
        )
        self.hosts: list[Host] = []
        self._emulator: subprocess.Popen[str] | None = None
        self._folder = tempfile.mkdtemp(prefix="pccl-wan-")
        self._allowed_before = ALLOWED.read_text()
        self.report: Report | None = None

    def __enter__(self) -> Lab:
        try:
            self._start()
        except BaseException:
            self._undo()
            raise
        return self

    def _start(self) -> None:
        program = Path(self._folder) / "emulator"
        subprocess.run(
            ["c++", "-std=c++20", "-O2", "-pthread", "-o", program, HERE / "emulator.cc"],
            check=True,
        )
        if CONGESTION not in self._allowed_before.split():
            ALLOWED.write_text(f"{self._allowed_before.strip()} {CONGESTION}")
        self.hosts = [Host(number) for number in range(len(self.scenario["hosts"]))]
        self._emulator = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        plan = "\n".join([*self._plan(), "go", ""])
        _input(self._emulator).write(plan)
        _input(self._emulator).flush()
        if _output(self._emulator).readline().strip() != "ready":
            raise SystemExit("the emulator has not started: see its error above")
        for host in self.hosts:
            host.configure(self._buffers())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.report = self._end()
        finally:
            self._undo()

    def _end(self) -> Report:
        """End the emulator; return what it saw."""
        assert self._emulator is not None
        dropped = sum(host.drops() for host in self.hosts)
        _input(self._emulator).close()
        seen = json.loads(_output(self._emulator).read())
        packets = max(seen["packets"], 1)
        return Report(
            core=seen["cpu"] / seen["wall"] / seen["threads"],
            late=seen["late"] / max(seen["delivered"], 1),
            dropped=dropped + seen["refused"],
            lost=(seen["lost"] + seen["overflowed"]) / packets,
        )

    def _undo(self) -> None:
        """Leave the machine as it was, however far it came."""
        ALLOWED.write_text(self._allowed_before)
        if self._emulator is not None:
            self._emulator.kill()
            self._emulator.wait()
        for host in self.hosts:
            host.inside.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def load(self, cpu_before: float, seconds: float) -> float:
        """Return the share of a core that each thread of the emulator has taken.

        Args:
            cpu_before: cpu() so many seconds ago.
            seconds: of wall time.
        """
        threads = min(os.cpu_count() or 1, len(self.hosts))  # as carry_all() of emulator.cc
        return (self.cpu() - cpu_before) / seconds / threads

    def cpu(self) -> float:
        """Return the CPU seconds that the emulator has taken so far."""
        assert self._emulator is not None
        return cpu_seconds(self._emulator.pid)

    def places(self) -> list[list[str]]:
        """Return what comes before a command that runs on each host."""
        return [host.inside.command() for host in self.hosts]

    def namespaces(self) -> list[tuple[str, str]]:
        """Return the network namespace and the address of each host."""
        return [(host.inside.path, host.address) for host in self.hosts]

    def _plan(self) -> list[str]:
        regions = self.scenario["hosts"]
        uplink = self.scenario.get("uplink_mbit", 0)
        lines = [f"host {host.inside.path} {host.address} {uplink}" for host in self.hosts]
        for i, source in enumerate(regions):
            for j, target in enumerate(regions):
                if i == j:
                    continue
                way = self.way(source, target)
                queue_kib = way["mbit"] * 125 * way["queue_ms"] / 1024
                lines.append(
                    f"path {i} {j} {way['mbit']} {way['rtt_ms'] / 2} {queue_kib} {way['loss']}"
                )
        for slow in self.scenario.get("slow", []):
            lines.append(f"slow {slow['from']} {slow['to']} {slow['connection']} {slow['mbit']}")
        return lines

    def _buffers(self) -> list[str]:
        if "buffer_kib" not in self.scenario:
            return []
        most = int(self.scenario["buffer_kib"] * 1024)
        # Of what is received, the system keeps as much again for itself.
        return [
            f"net.ipv4.tcp_wmem=4096 {min(16384, most)} {most}",
            f"net.ipv4.tcp_rmem=4096 {min(131072, 2 * most)} {2 * most}",
        ]

    def way(self, source: str, target: str) -> dict[str, float]:
        """Return the way between two regions: rtt_ms, mbit, queue_ms, loss."""
        times = self.scenario["rtt_ms"]
        name = next((n for n in (f"{source}-{target}", f"{target}-{source}") if n in times), None)
        if name is None:
            raise SystemExit(f"the scenario has no rtt_ms from {source} to {target}")
        way = {**self.scenario["default"], "rtt_ms": times[name]}
        for other in self.scenario.get("ways", []):
            if other["from"] in (source, "*") and other["to"] in (target, "*"):
                way |= {key: value for key, value in other.items() if key not in ("from", "to")}
        return way


def _input(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdin is not None
    return process.stdin


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


# ---- What the network does to ordinary programs --------------------------------------------------


def ping(lab: Lab, source: int, target: int) -> float:
    """Return the median round trip in milliseconds."""
    return paths.ping(lab.hosts[target].address, lab.hosts[source].inside.command())


def iperf(
    lab: Lab,
    source: int,
    target: int,
    *,
    streams: int,
    both_ways: bool = False,
    pace_mbit: float = 0.0,
    seconds: float = 8.0,
) -> tuple[float, float]:
    """Return Mbit/s from source to target and, both ways, back; the first seconds are left out."""
    return paths.iperf(
        lab.hosts[target].address,
        source=lab.hosts[source].inside.command(),
        target=lab.hosts[target].inside.command(),
        streams=streams,
        both_ways=both_ways,
        pace_mbit=pace_mbit,
        seconds=seconds,
    )


def main() -> None:
    """Show what ping and iperf3 find in a scenario."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--from", dest="source", type=int, default=0, help="a host")
    parser.add_argument("--to", dest="target", type=int, default=1, help="another")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8, 16])
    options = parser.parse_args()
    source, target = options.source, options.target
    lab = Lab(options.scenario)
    with lab:
        print(f"round trip {ping(lab, source, target):.1f} ms")
        for streams in options.streams:
            one_way, _ = iperf(lab, source, target, streams=streams)
            there, back = iperf(lab, source, target, streams=streams, both_ways=True)
            print(
                f"{streams:3} streams: one way {one_way:6.0f} Mbit/s, both ways {there:6.0f} and "
                f"{back:6.0f}",
                flush=True,
            )
    print(lab.report)


if __name__ == "__main__":
    run_main(main)
