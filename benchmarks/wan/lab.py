"""A wide-area network on one machine: hosts in namespaces, and a carrier between them.

    sudo .venv/bin/python benchmarks/wan/lab.py benchmarks/wan/atlantic.toml

prints what ping and iperf3 measure in the network: RTT, and the rate of one flow and of several, in
one direction and in both. A scenario names regions and the paths between them:

    hosts = ["home", "centre"]        # the region of each host
    uplink_mbit = 500.0               # of each host; without it: unlimited
    buffer_kib = 96                   # most in flight per connection; without it: the system's
    default = { mbit = 400.0, queue_ms = 40.0, loss = 2e-6 }   # each pair of hosts, each direction
    seed = 1                          # of all chances; without it: always the same one
    paths = [                          # exceptions, one direction; "*" is any region; the last wins
      { from = "home", to = "*", mbit = 60.0 },
      { from = "*", to = "home", flips = 1e-9 },  # chance of a bit to arrive flipped
    ]

    trunks = [                         # all hosts of these regions share it, in one direction
      { from = "home", to = "*", mbit = 60.0, queue_ms = 50.0 },
    ]
    order = [0, 1]                    # the hosts in the order of the best ring (patterns.py)
    shares = [0, 256]                 # of the hosts, in direct all-reduces (patterns.py)

    [rtt_ms]
    home-centre = 35.0

    [[slow]]                          # one connection from a host to another, counted from 1
    from = 0
    to = 1
    connection = 5
    mbit = 4.0

A queue is given in milliseconds at its rate, a loss as the chance of a packet. The lost packets of
a result include those that found a queue full. A flipped bit is in the payload of TCP, and its
packet has a right checksum, so that the kernel accepts it. The emulator passes packets on in ticks
of a millisecond, so that an RTT is one or two milliseconds longer.

The lab needs root, TUN, iproute2, iperf3 and a C++ compiler. Nothing remains afterwards. Linux's
netem carries the packets if this kernel has it, otherwise our own emulator (carriers.py).
WAN_LAB=netem or WAN_LAB=emulator in the environment decides it, for every benchmark in this folder.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import tomllib

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))

import paths
from carriers import CARRIERS, Carrier, Host, Netem, NetworkPath, Plan, Report, Trunk
from options import add_counts
from processes import missing, run_main
from programs import Program

__all__ = ["NEEDS", "Lab", "Report", "iperf", "ping"]

NEEDS = ("root", "/dev/net/tun", "c++", "cc", "ip", "nsenter", "sysctl", "ping", "iperf3")
ALLOW_CUBIC = Path(__file__).resolve().parents[2] / "tools" / "allow-cubic.sh"
CONGESTION = "cubic"
SETTINGS = (
    f"net.ipv4.tcp_congestion_control={CONGESTION}",
    "net.ipv4.tcp_no_metrics_save=1",  # a new connection does not inherit an earlier one's metrics
)


SCENARIO_NAMES = frozenset(
    {
        *("hosts", "uplink_mbit", "buffer_kib", "default", "paths", "rtt_ms", "seed", "slow"),
        *("trunks", "scale", "order", "shares"),
    }
)


def read(path: Path) -> dict[str, Any]:
    """Return the contents of a scenario.

    Raises:
        SystemExit: the file is no scenario.
    """
    try:
        scenario = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: {error}") from None
    if without := [name for name in ("hosts", "default", "rtt_ms") if name not in scenario]:
        raise SystemExit(f"{path} is no scenario: it has no {', '.join(without)}")
    if unknown := sorted(scenario.keys() - SCENARIO_NAMES):
        known = ", ".join(sorted(SCENARIO_NAMES))
        raise SystemExit(f'{path}: a scenario knows no "{unknown[0]}", only {known}')
    return scenario


def carrier_of(name: str | None, *, needs_emulator: bool = False) -> Carrier:
    """Return the carrier of this name; None: a suitable one.

    Args:
        needs_emulator: whether the scenario has what only the emulator can do.

    Raises:
        SystemExit: there is no such carrier, or not on this kernel.
    """
    if name is None:
        name = "netem" if not needs_emulator and Netem.is_there() else "emulator"
    if name not in CARRIERS:
        raise SystemExit(f"WAN_LAB={name}: it may be {' or '.join(CARRIERS)}")
    if CARRIERS[name] is Netem and not Netem.is_there():
        raise SystemExit("WAN_LAB=netem: this kernel has no netem; the emulator needs none")
    return CARRIERS[name]()


class Lab:
    """A running scenario, as a context."""

    congestion = CONGESTION

    def __init__(
        self, scenario: Path | dict[str, Any], *, changes: bool = False, traces: bool = False
    ) -> None:
        """Take a scenario: its file or its contents.

        Args:
            changes: whether the rate of a path will change, which only the emulator can do.
            traces: whether packets will be recorded, which only the emulator can do.
        """
        self.scenario = scenario if isinstance(scenario, dict) else read(scenario)
        self.hosts: list[Host] = []
        if without := missing(NEEDS):
            raise SystemExit(f"a lab needs {', '.join(without)} (tools/debian-packages.sh wan)")
        paths = [self.scenario["default"], *self.scenario.get("paths", [])]
        special = changes or traces or any(self.scenario.get(name) for name in ("slow", "trunks"))
        special = special or any("flips" in path for path in paths)
        self._carrier = carrier_of(os.environ.get("WAN_LAB"), needs_emulator=special)
        self._permission: Program | None = None
        self.report: Report | None = None

    def __enter__(self) -> Lab:
        try:
            self._start()
        except BaseException:
            self._undo()
            raise
        return self

    def _start(self) -> None:
        self._permission = Program([ALLOW_CUBIC], stdin=subprocess.PIPE)
        if self._permission.line() != "ready\n":
            raise SystemExit(f"{ALLOW_CUBIC.name} has failed: see its error above")
        for number in range(len(self.scenario["hosts"])):
            self.hosts.append(Host(number))
        self._carrier.start(self.plan())
        for host in self.hosts:
            host.configure([*SETTINGS, *self._buffers()])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                dropped = sum(host.drops() for host in self.hosts)
                seen = self._carrier.end()
                self.report = replace(seen, dropped=seen.dropped + dropped)
        finally:
            self._undo()

    def _undo(self) -> None:
        """Restore the machine, even after a failed start."""
        self._carrier.close()
        for host in self.hosts:
            host.inside.close()
        if self._permission is not None:
            self._permission.communicate()  # closes its input, so that it cleans up

    def change(self, source: int, target: int, mbit: float) -> None:
        """Change the rate of the path from one host to another. Its queue keeps its bytes."""
        self._carrier.change(source, target, mbit)

    def trace(self, file: Path | None = None) -> None:
        """Record all packets from now on; with a file, write them to it, and record no more
        (packets.py reads it)."""
        self._carrier.trace(file)

    def load(self, cpu_before: float, seconds: float) -> float:
        """Return the share of a core that each thread of the carrier has taken.

        Args:
            cpu_before: cpu() at the beginning.
            seconds: wall time since then.
        """
        return (self.cpu() - cpu_before) / seconds / self._carrier.threads

    def cpu(self) -> float:
        """Return the CPU seconds of the carrier so far."""
        return self._carrier.cpu()

    def places(self) -> list[list[str]]:
        """Return the command prefix of each host."""
        return [host.inside.command() for host in self.hosts]

    def namespaces(self) -> list[tuple[str, str]]:
        """Return the network namespace and the address of each host."""
        return [(host.inside.path, host.address) for host in self.hosts]

    def plan(self) -> Plan:
        """Return the network. Its hosts exist only while the lab runs."""
        regions = self.scenario["hosts"]
        paths = {
            (i, j): self.path(source, target)
            for i, source in enumerate(regions)
            for j, target in enumerate(regions)
            if i != j
        }
        trunks = [
            Trunk(
                mbit=trunk["mbit"],
                queue_ms=trunk["queue_ms"],
                paths=[(i, j) for i, j in paths if _applies(trunk, regions[i], regions[j])],
            )
            for trunk in self.scenario.get("trunks", [])
        ]
        return Plan(
            hosts=self.hosts,
            uplink_mbit=self.scenario.get("uplink_mbit", 0),
            paths=paths,
            trunks=trunks,
            slow=self.scenario.get("slow", []),
            seed=self.scenario.get("seed", Plan.seed),
        )

    def _buffers(self) -> list[str]:
        if "buffer_kib" not in self.scenario:
            return []
        most = int(self.scenario["buffer_kib"] * 1024)
        # The system reserves the same size again for itself in a receive buffer.
        return [
            f"net.ipv4.tcp_wmem=4096 {min(16384, most)} {most}",
            f"net.ipv4.tcp_rmem=4096 {min(131072, 2 * most)} {2 * most}",
        ]

    def path(self, source: str, target: str) -> NetworkPath:
        """Return the path between two regions."""
        times = self.scenario["rtt_ms"]
        name = next((n for n in (f"{source}-{target}", f"{target}-{source}") if n in times), None)
        if name is None:
            raise SystemExit(f"the scenario has no rtt_ms from {source} to {target}")
        path = {**self.scenario["default"], "rtt_ms": times[name]}
        for other in self.scenario.get("paths", []):
            if _applies(other, source, target):
                path |= {key: value for key, value in other.items() if key not in ("from", "to")}
        return NetworkPath(**path)


def _applies(item: dict[str, Any], source: str, target: str) -> bool:
    """Return whether an exception or a trunk is about the paths between two regions."""
    return item["from"] in (source, "*") and item["to"] in (target, "*")


# ---- Effects of the network on ordinary programs -------------------------------------------------


def ping(lab: Lab, source: int, target: int) -> float:
    """Return the median RTT in milliseconds."""
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
    """Return Mbit/s from source to target and, if both_ways, back, without the first seconds."""
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
    """Show the results of ping and iperf3 in a scenario."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", type=Path)
    hosts = "of the scenario's hosts, counted from 0 (default %(default)s)"
    parser.add_argument("--from", dest="source", type=int, default=0, help=hosts)
    parser.add_argument("--to", dest="target", type=int, default=1, help=hosts)
    add_counts(parser, "--streams", [1, 4, 8, 16], "of iperf3, at once; 22 s for each number")
    options = parser.parse_args()
    source, target = options.source, options.target
    lab = Lab(options.scenario)
    if not {source, target} < set(range(len(lab.scenario["hosts"]))):
        raise SystemExit(f"--from and --to: two of the hosts 0 to {len(lab.scenario['hosts']) - 1}")
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
