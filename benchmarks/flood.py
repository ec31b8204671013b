"""Strangers flood the port of a master: the effects on members and a newcomer, and the cost.

    .venv/bin/python benchmarks/flood.py --connections 100000

A master with a keyring, and two members that call all-reduces of 1 MiB one after the other. First
there is no flood. Then eight processes open connections to the master as fast as they can, from the
addresses 127.0.0.2 to 127.0.0.9. A third of the connections sends nothing, a third sends random
bytes, and a third repeats a ClientHello that was captured from a member, whole or with a flipped
bit. Each process holds up to 400 connections open. Meanwhile a newcomer, from 127.0.0.1, joins a
run of its own again and again.

The flooding processes have the lowest priority: strangers of a real flood use other computers, not
the cores of the master. The members must still be two when the flood is over.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from options import at_least_one
from processes import Master, read_line, run_main

SOURCES = [f"127.0.0.{number}" for number in range(2, 10)]
HELD = 400
QUIET_S = 3.0

MEMBER = """
import sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("pccl", init_method=sys.argv[1])
print("ready", flush=True)
tensor = torch.zeros(1 << 18)
import select
while True:
    told = torch.tensor([float(bool(select.select([sys.stdin], [], [], 0)[0]))])
    dist.all_reduce(told)  # both stop after the same call
    if told > 0:
        break
    start = time.monotonic()
    dist.all_reduce(tensor)
    print(start, time.monotonic() - start, flush=True)
import pccl_backend
print("end", pccl_backend.update_topology().world_size, flush=True)
"""
NEWCOMER = """
import sys, time, torch.distributed as dist
import pccl_backend
for number in range(1_000_000):
    start = time.monotonic()
    dist.init_process_group("pccl", init_method=f"{sys.argv[1]}-{number}")
    print(start, time.monotonic() - start, flush=True)
    dist.destroy_process_group()
"""


def flood(source: str, port: int, count: int, captured: bytes) -> None:
    """Open connections, and say something on most of them."""
    os.nice(19)
    chance = random.Random(source)
    held: list[socket.socket] = []
    done = 0
    while done < count:
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        try:
            connection.bind((source, 0))
            connection.connect(("127.0.0.1", port))
        except BlockingIOError:
            pass
        except OSError:  # no port is free: wait until the system has one again
            connection.close()
            time.sleep(0.001)  # the kernel announces no free port: ask again 1,000 times a second
            continue
        copy = bytearray(captured)
        if chance.random() < 0.5:
            copy[chance.randrange(len(copy))] ^= 1 << chance.randrange(8)
        said = chance.choice([b"", chance.randbytes(300), bytes(copy)])
        with contextlib.suppress(OSError):  # it is not connected yet, or closed already
            connection.send(said)
        held.append(connection)
        done += 1
        if len(held) > HELD:
            held.pop(chance.randrange(len(held))).close()


def capture_hello(master: Master) -> bytes:
    """Return the first record that a peer sends to the master."""
    host, _, port = master.address.rpartition(":")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"pccl://127.0.0.1:{listener.getsockname()[1]}/captured"
        listener.settimeout(60)
        peer = python(NEWCOMER, url, master, stderr=subprocess.DEVNULL)
        client, _ = listener.accept()
        with client, socket.create_connection((host, int(port))):
            hello = client.recv(4096)
        peer.kill()
        peer.wait()
    return hello[: 5 + int.from_bytes(hello[3:5], "big")]


def python(
    program: str, url: str, master: Master, stderr: int | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, **master.environment, "OMP_NUM_THREADS": "1"},
    )


class Series:
    """The durations that a process prints, until it is stopped."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[tuple[float, float]] = []
        self.last = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            first, second = line.split()
            if first == "end":
                self.last = second
                return
            self.seen.append((float(first), float(second)))

    def stop(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self._thread.join(60)
        return self.last

    def within(self, begin: float, end: float) -> list[float]:
        """Return the durations of what began in this time, in milliseconds."""
        return sorted(1000 * took for start, took in self.seen if begin <= start < end)


def summary(values: list[float]) -> str:
    if not values:
        return "none was complete"
    p99 = values[int(0.99 * (len(values) - 1))]
    middle = statistics.median(values)
    return (
        f"{len(values)} times, median {middle:.0f} ms, p99 {p99:.0f} ms, slowest {values[-1]:.0f}"
    )


def memory_mib(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def main() -> int:
    """Print what happened without and with the flood."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=at_least_one, default=100_000)
    parser.add_argument("--flood-from", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood_from:
        source, port, captured = options.flood_from
        flood(source, int(port), options.connections, bytes.fromhex(captured))
        return 0
    master = Master(secured=True)
    processes: list[subprocess.Popen[str]] = []
    try:
        url = f"pccl://{master.address}"
        members = [python(MEMBER, f"{url}/members?min_peers=2", master) for _ in range(2)]
        processes += members
        for member in members:
            assert read_line(member).strip() == "ready"
        calls = [Series(member) for member in members]
        captured = capture_hello(master).hex()
        joins = Series(python(NEWCOMER, f"{url}/newcomer", master))
        processes.append(joins.process)
        while not joins.seen:
            select.select([], [], [], 0.1)
        before = memory_mib(master.pid)
        begin = time.monotonic()
        time.sleep(QUIET_S)  # the length of the measurement without a flood, for comparison
        command = [sys.executable, __file__, "--connections"]
        command += [str(options.connections // len(SOURCES)), "--flood-from"]
        port = master.address.rpartition(":")[2]
        start = time.monotonic()
        floods = [
            subprocess.Popen([*command, source, port, captured], text=True) for source in SOURCES
        ]
        processes += floods
        most = before
        while any(one.poll() is None for one in floods):
            most = max(most, memory_mib(master.pid))
            time.sleep(0.05)  # samples the master's memory 20 times a second, while the flood runs
        end = time.monotonic()
        rate = options.connections / (end - start)
        print(f"{options.connections} connections in {end - start:.1f} s, {rate:.0f} per second")
        for name, first, last in (("quiet", begin, start), ("flood", start, end)):
            print(f"{name}: all-reduce {summary(calls[0].within(first, last))}")
            print(f"{name}: newcomer   {summary(joins.within(first, last))}")
        print(f"the master took {before:.1f} MiB before, and {most:.1f} at most")
        sizes = [call.stop() for call in calls]
        print(f"the members are {sizes[0]} in the end")
        return 0 if sizes == ["2", "2"] else 1
    finally:
        for process in processes:
            process.kill()
            process.wait()
        master.close()


if __name__ == "__main__":
    run_main(main)
