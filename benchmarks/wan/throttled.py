"""A hop of the ring falls to a tenth of its rate during a training: when does the ring avoid it?

    sudo .venv/bin/python benchmarks/wan/throttled.py

There are six hosts, whose paths are equal, so that other rings are as fast as the first one. With a
scenario (benchmarks/wan/unequal.toml), the ranks are on its hosts, in its order. They call
optimize_topology after a first all-reduce. Then they take outer steps: an all-reduce, and
update_topology. When a hop of the ring is slowed down, the master learns it from the traffic of the
next all-reduce, and the next update_topology should change the ring. If the hop is still used after
three steps, the ranks call optimize_topology once. Later the hop gets its rate back, and they call
optimize_topology again.

The status is 1 if the hop was not avoided, or a step without it takes longer than it may (--goal).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from all_reduce import MIB
from lab import Lab
from options import at_least_one
from processes import Master, end, run_main
from programs import Program

STEPS_MAX = 3  # with the slow hop, before optimize_topology
PILOTS = 3  # steps after a change that do not count: lanes find their number
COUNTED = 3
BUDGET_S = 60.0
STEP_S = 300.0  # no step takes as long

EQUAL_HOSTS: dict[str, Any] = {
    "hosts": ["town"] * 6,
    "default": {"mbit": 60.0, "queue_ms": 40.0, "loss": 0.0},
    "rtt_ms": {"town-town": 20.0},
}

WORKER = """
import json, sys, time, torch, torch.distributed as dist
import pccl_backend as pccl
torch.set_num_threads(1)
rank, world, elements, budget = (int(word) for word in sys.argv[1:])
dist.init_process_group("pccl", store=dist.HashStore(), rank=rank, world_size=world)
print("ready", flush=True)
for line in sys.stdin:
    begin = time.monotonic()
    if line.strip() == "optimize":
        pccl.optimize_topology(budget=budget)
    else:
        tensor = torch.full((elements,), float(rank))
        dist.all_reduce(tensor)
        assert bool((tensor == world * (world - 1) / 2).all()), "wrong sum"
    seconds = time.monotonic() - begin
    pccl.update_topology()
    print(json.dumps({"seconds": seconds, "ring": list(pccl.run_info().ring)}), flush=True)
dist.destroy_process_group()
"""


class Training:
    """The ranks of a training, which take their steps together."""

    def __init__(self, lab: Lab, elements: int) -> None:
        """Start the ranks, and a master on the first host."""
        places = lab.places()
        self._master = Master(lab.hosts[0].address, places[0])
        environment = {**os.environ, **self._master.environment, "PCCL_PATTERN": "ring"}
        environment["PCCL_MASTER"] = f"pccl://{self._master.address}/throttled"
        self._ranks = [
            Program(
                [*place, sys.executable, "-c", WORKER]
                + [str(number) for number in (rank, len(places), elements, int(BUDGET_S))],
                stdin=subprocess.PIPE,
                env=environment,
            )
            for rank, place in enumerate(places)
        ]
        self.ring: list[int] = []
        for process in self._ranks:
            assert process.line(STEP_S) == "ready\n"

    def _ask(self, what: str) -> float:
        for process in self._ranks:
            assert process.stdin is not None
            process.stdin.write(f"{what}\n")
            process.stdin.flush()
        answers: list[dict[str, Any]]
        answers = [json.loads(process.line(STEP_S)) for process in self._ranks]
        rings = [answer["ring"] for answer in answers]
        assert all(ring == rings[0] for ring in rings), rings
        self.ring = rings[0]
        return max(answer["seconds"] for answer in answers)

    def step(self, what: str) -> float:
        """Take an outer step; return the seconds of its all-reduce."""
        seconds = self._ask("step")
        print(f"{what}: {seconds:.2f} s, then the ring is {self.ring}", flush=True)
        return seconds

    def optimize(self) -> None:
        """Call optimize_topology."""
        seconds = self._ask("optimize")
        print(f"optimize_topology: {seconds:.1f} s, then the ring is {self.ring}", flush=True)

    def settled(self, what: str) -> float:
        """Return the median of some steps, after others that do not count."""
        for _ in range(PILOTS):
            self.step(f"{what} (not counted)")
        return statistics.median(self.step(what) for _ in range(COUNTED))

    def hop(self, place: int) -> tuple[int, int]:
        """Return the ranks at both ends of a hop of the ring."""
        return self.ring[place], self.ring[(place + 1) % len(self.ring)]

    def uses(self, hop: tuple[int, int]) -> bool:
        """Return whether the ring has this hop."""
        return any(self.hop(place) == hop for place in range(len(self.ring)))

    def close(self) -> None:
        """End all ranks and the master."""
        end(self._ranks, self._master)


def measure(lab: Lab, options: argparse.Namespace) -> bool:
    """Print the steps; return whether the ring has avoided the hop, and soon."""
    training = Training(lab, options.mib * MIB // 4)
    try:
        training.step("the first step")
        training.optimize()
        before = training.settled("before")
        hop = training.hop(options.hop % len(training.ring))
        regions = lab.scenario["hosts"]
        rate = lab.path(regions[hop[0]], regions[hop[1]]).mbit
        print(f"the hop from {hop[0]} to {hop[1]} falls to {rate / 10:g} Mbit/s")
        lab.change(*hop, rate / 10)
        steps = 0
        while training.uses(hop) and steps < STEPS_MAX:
            steps += 1
            training.step(f"slow step {steps}")
        by_traffic = not training.uses(hop)
        if not by_traffic:
            training.optimize()
        avoided = not training.uses(hop)
        after = training.settled("without the hop" if avoided else "with the slow hop")
        print(f"the hop from {hop[0]} to {hop[1]} has {rate:g} Mbit/s again")
        lab.change(*hop, rate)
        training.optimize()
        again = training.settled("after all")
    finally:
        training.close()
    how = f"after {steps} step{'s' * (steps > 1)}"
    how += " by traffic alone" if by_traffic else " and a measurement"
    print(
        f"the hop was {'avoided' if avoided else 'NOT avoided'} {how}; an all-reduce took "
        f"{before:.2f} s before, {after:.2f} s without the hop ({after / before:.2f} times as "
        f"long, goal {options.goal:g}), {again:.2f} s after all"
    )
    return avoided and after <= options.goal * before


def main() -> int:
    """Print the steps and the verdict."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", type=Path, nargs="?", default=EQUAL_HOSTS)
    parser.add_argument("--mib", type=at_least_one, default=16, help="of float32 per rank")
    parser.add_argument("--hop", type=at_least_one, default=1, help="of the ring, counted from 0")
    parser.add_argument("--goal", type=float, default=1.3, help="multiple of the time before")
    options = parser.parse_args()
    lab = Lab(options.scenario, changes=True)
    with lab:
        good = measure(lab, options)
    print(lab.report)
    return 0 if good else 1


if __name__ == "__main__":
    run_main(main)
