"""Bits that arrive flipped, in packets that TCP accepts: each costs a connection, and nothing else.

    sudo .venv/bin/python benchmarks/wan/flips.py

Two peers and a master, each a host of its own, also in their own eyes (another boot id); an RTT of
2 ms, 1 Gbit/s. The network flips bits of the payload of TCP, and all checksums of packets are right
(lab.py). All traffic of the run is encrypted. There are three parts:

    lanes          10,000 all-reduces of 64 KiB; between the peers, one bit in 10^7 bytes
    large tensors  100 all-reduces of 16 MiB; between the peers, one bit in 10^8 bytes
    control        5,000 all-reduces of 64 KiB; from and to the master, one bit in 20,000 bytes

In each of them every sum must be right, no call may fail, and both peers must still be members at
the end. The receiver of each flipped bit must have ended the connection soon. --share 0.1 makes a
tenth of the calls.

A bit of the control part may not hit when a bit of the others does: a member whose connection to
the master and whose link break at the same moment counts as lost (PROTOCOL.md, section 4).

--plain does the same without encryption, and only reports the outcome. There, chunks and headers
have checksums of 32 bits, and messages to and from the master have none: a flipped bit in one of
these may be read as another message. --plain --one-machine lets both peers have the boot id of this
machine, as two containers of one machine have. Chunks then have no checksums either.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))

from lab import Lab
from network import own_boot_id
from processes import Master, run_main
from programs import Program

PEER_TIMEOUT_S = 10.0
SECONDS_MAX = 600.0  # of one part; it takes a minute or two
# A flipped length of a record is noticed with the next bytes, at the latest with the next ping.
ENDED_MS_MAX = 1000 * PEER_TIMEOUT_S

WORKER = """
import json, sys, torch, torch.distributed as dist
import pccl_backend
torch.set_num_threads(1)
url, calls, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("pccl", init_method=url)
rank = dist.get_rank()
base = torch.arange(count, dtype=torch.float32).remainder_(4096)
wrong, errors = 0, []
for number in range(calls):
    tensor = base + (number % 512 + rank)
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        errors.append(f"call {number}: {type(error).__name__}: {error}")
        break
    wrong += not torch.equal(tensor, 2 * base + (2 * (number % 512) + 1))
try:
    world = pccl_backend.update_topology().world_size
except RuntimeError as error:
    world = 0
    errors.append(f"the end: {type(error).__name__}: {error}")
print(json.dumps({"calls": number + 1, "wrong": wrong, "errors": errors, "world": world}))
"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One kind of traffic.

    Attributes:
        bytes_per_flip: mean number of bytes before a flipped bit.
        to_master: whether the bits are flipped from and to the master, or between the peers.
    """

    name: str
    calls: int
    kib: int
    bytes_per_flip: float
    to_master: bool = False

    def scenario(self, seed: int) -> dict[str, Any]:
        """Return two peers in one region, and the master in another."""
        flips = {"flips": 1 / (8 * self.bytes_per_flip)}
        ways = [("peers", "master"), ("master", "peers")] if self.to_master else [("peers",) * 2]
        return {
            "hosts": ["peers", "peers", "master"],
            "default": {"mbit": 1000.0, "queue_ms": 100.0, "loss": 0.0},
            "paths": [{"from": source, "to": target, **flips} for source, target in ways],
            "rtt_ms": {"peers-peers": 2.0, "peers-master": 2.0},
            "seed": seed,
        }


PARTS = (
    Part(name="lanes", calls=10_000, kib=64, bytes_per_flip=1e7),
    Part(name="large tensors", calls=100, kib=16 << 10, bytes_per_flip=1e8),
    Part(name="control", calls=5000, kib=64, bytes_per_flip=2e4, to_master=True),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of the peers, and the counts of the network."""

    part: Part
    seconds: float
    peers: list[dict[str, Any]]
    ended_ms: list[float | None]

    @property
    def good(self) -> bool:
        """Whether bits were flipped, and each cost a connection and nothing else."""
        untouched = all(
            peer["wrong"] == 0 and not peer["errors"] and peer["world"] == 2 for peer in self.peers
        )
        ended = all(end is not None and end <= ENDED_MS_MAX for end in self.ended_ms)
        return untouched and ended and len(self.ended_ms) > 0

    def __str__(self) -> str:
        ended = sorted(end for end in self.ended_ms if end is not None)
        late = f", the slowest after {ended[-1]:.0f} ms" if ended else ""
        middle = f", half of them after {ended[len(ended) // 2]:.0f} ms" if ended else ""
        calls = min(peer["calls"] for peer in self.peers)
        wrong = sum(peer["wrong"] for peer in self.peers)
        worlds = [peer["world"] for peer in self.peers]
        lines = [
            f"{self.part.name}: {calls} calls in {self.seconds:.0f} s, {wrong} wrong sums, "
            f"{len(self.ended_ms)} flipped bits, {len(ended)} ended a connection{middle}{late}; "
            f"the world has {worlds} members in the end"
        ]
        for rank, peer in enumerate(self.peers):
            lines += [f"  peer {rank}: {error}" for error in peer["errors"]]
        return "\n".join(lines)


def measure(
    part: Part, calls: int, *, seed: int, secured: bool, one_machine: bool = False
) -> Outcome:
    """Return the outcome of a part, in a network and a run of its own.

    Raises:
        TimeoutError: a peer was not done in time.
    """
    lab = Lab(part.scenario(seed))
    with lab, tempfile.TemporaryDirectory(prefix="pccl-flips-") as folder:
        server = lab.hosts[2]
        master = Master(server.address, server.inside.command(), secured=secured)
        url = f"pccl://{master.address}/flips?min_peers=2&peer_timeout={PEER_TIMEOUT_S}"
        words = [sys.executable, "-c", WORKER, url, str(calls), str(part.kib * 256)]
        environment = {**os.environ, **master.environment}
        start = time.monotonic()
        peers = []
        for number, host in enumerate(lab.hosts[:2]):
            # Processes on one machine exchange no checksums.
            alone = [] if one_machine else own_boot_id(Path(folder), number)
            peers.append(Program(host.inside.command(*alone, *words), env=environment))
        try:
            said = [peer.line(SECONDS_MAX) for peer in peers]
            seconds = time.monotonic() - start
            for peer in peers:
                peer.wait()
        finally:
            for peer in peers:
                peer.end()
            master.close()
    assert lab.report is not None
    if not all(said):
        raise SystemExit(f"{part.name}: a peer has ended early: see its error above")
    peers_said = [json.loads(line) for line in said]
    return Outcome(part=part, seconds=seconds, peers=peers_said, ended_ms=list(lab.report.flips))


def main() -> int:
    """Print a line for each part; return 1 if a flipped bit did more than it may."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the calls (default 1)")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="without encryption")
    parser.add_argument("--one-machine", action="store_true", help="with the same boot id")
    parser.add_argument("--parts", nargs="+", choices=[part.name for part in PARTS])
    options = parser.parse_args()
    outcomes = []
    for part in PARTS:
        if options.parts and part.name not in options.parts:
            continue
        calls = max(round(part.calls * options.share), 1)
        outcomes.append(
            measure(
                part,
                calls,
                seed=options.seed,
                secured=not options.plain,
                one_machine=options.one_machine,
            )
        )
        print(outcomes[-1], flush=True)
    return 0 if options.plain or all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    run_main(main)
