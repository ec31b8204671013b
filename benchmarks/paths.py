"""Capacity of a path between two places: RTT by ping, throughput by iperf3.

A place is the prefix of a command that runs there; an empty place is this machine.
"""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

LOOPBACK = "127.0.0.1"
Place = Sequence[str]


def ping(address: str, source: Place = ()) -> float:
    """Return the median RTT in milliseconds."""
    out = _output([*source, "ping", "-c", "11", "-i", "0.05", address])
    times = sorted(
        float(line.split("time=")[1].split()[0]) for line in out.splitlines() if "time=" in line
    )
    return times[len(times) // 2]


def iperf(
    address: str,
    *,
    source: Place = (),
    target: Place = (),
    port: int = 5201,
    streams: int = 1,
    both_ways: bool = False,
    pace_mbit: float = 0.0,
    seconds: float = 8.0,
    omitted: float = 3.0,
) -> tuple[float, float]:
    """Return Mbit/s from source to target and, if both_ways, back, without the first seconds."""
    # iperf3 reports at once that it listens only on a terminal or with --forceflush.
    server = subprocess.Popen(
        [*target, "iperf3", "-s", "-1", "--forceflush", "-p", str(port)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        while "listening" not in (line := server.stdout.readline()):
            if not line:
                raise SystemExit(f"iperf3 does not listen on port {port} of {address}")
        # It prints a line a second for each stream, and blocks if no process reads them.
        threading.Thread(target=server.stdout.read, daemon=True).start()
        arguments = ["timeout", str(seconds + omitted + 17), "iperf3", "-J", "-c", address]
        arguments += ["-p", str(port), "-t", str(seconds), "-O", str(omitted), "-P", str(streams)]
        if both_ways:
            arguments.append("--bidir")
        if pace_mbit > 0:
            arguments += ["--fq-rate", f"{pace_mbit}M"]
        end = json.loads(_output([*source, *arguments]))["end"]
        server.wait(timeout=10)
    except BaseException:
        server.kill()
        server.wait()
        raise
    there = end["sum_received"]["bits_per_second"] / 1e6
    back = end["sum_received_bidir_reverse"]["bits_per_second"] / 1e6 if both_ways else 0.0
    return there, back


def loopback_aggregate(flows: int, seconds: float) -> float:
    """Return Mbit/s of `flows` flows through loopback together, each in processes of its own."""

    def one(port: int) -> float:
        return iperf(LOOPBACK, port=port, seconds=seconds, omitted=1.0)[0]

    with ThreadPoolExecutor(flows) as pool:
        return sum(pool.map(one, _free_ports(flows)))


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        said = "\n".join(done.stdout.splitlines()[-5:])
        raise SystemExit(f"{shlex.join(command)} ended with {done.returncode}\n{said}")
    return done.stdout
