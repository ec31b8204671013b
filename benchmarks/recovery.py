"""The cost of a fault: world 4, a large all-reduce under way, one fault per trial.

    tools/stock-network.sh .venv/bin/python benchmarks/recovery.py --trials 100

Kinds of fault:
    kill     SIGKILL of a peer: from the end of its process (its pidfd) until the last survivor's
             wait() has raised and its input is restored; and until the first repetition succeeded
    stop     SIGSTOP of a peer: the same, from the signal; it includes the peer timeout
    cut      a peer's packets vanish, silently: the same, from the cut. Needs root: every peer has a
             network namespace of its own, which makes the all-reduce slower
    keep     SIGKILL of a peer that has received 90 % of an all-reduce with on_loss="keep": from the
             end of its process until the others have the result. For comparison, the time of
             starting over: an undisturbed all-reduce by the survivors
    master   SIGKILL of the master and a restart: from the kill until the running operation has
             committed everywhere, without the duration of the start itself

In every trial all survivors must have the same outcome, and the repetition must give the exact sum
of their inputs, so a missing restore would show. Before each fault the same world makes an
undisturbed all-reduce of that size; the spread of these times is the machine's own.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))

import network
from fleet import Fleet, Remote
from processes import run_main
from rich.progress import track

WORLD = 4
MIB = 1 << 20
KINDS = ("kill", "stop", "cut", "keep", "master")
KEPT = 0.9  # share of the all-reduce that the victim of `keep` has received

# Goals, in seconds.
KNOWN_GOAL = 0.08  # after a kill
SILENCE_GOAL = 1.0  # beyond the peer timeout
REPEATED_GOAL = 0.2  # beyond an undisturbed all-reduce
MASTER_GOAL = 2.0  # beyond the start of the new master
KEEP_GOAL = 0.25  # ratio to the time of starting over


class Trials:
    """A world of peers that is completed again after each trial."""

    def __init__(self, fleet: Fleet, count: int, machines: list[network.Machine]) -> None:
        self.fleet = fleet
        self.count = count  # elements
        self.machines = {machine.namespace: machine for machine in machines}
        self.peers = fleet.found(WORLD, namespaces=list(self.machines))
        self.times = [self._all_reduce() for _ in range(5)]  # undisturbed

    @property
    def undisturbed(self) -> float:
        return statistics.median(self.times)

    def _begin(self, *, repeat: bool = False) -> float:
        for seed, peer in enumerate(self.peers):
            peer.tell("all_reduce", count=self.count, seed=seed, repeat=repeat)
        return max(peer.answer()["posted"] for peer in self.peers)

    def _all_reduce(self) -> float:
        begun = self._begin()
        return max(float(peer.answer()["end"]) for peer in self.peers) - begun

    def _outcome(self, survivors: list[Remote]) -> list[dict[str, Any]]:
        """Return the end of each survivor's operation, after a check that all are alike."""
        ends = [peer.answer() for peer in survivors]
        assert len({one["ok"] for one in ends}) == 1, ends
        assert len({one["digest"] for one in ends}) == 1, ends
        return ends

    def _choose_victim(self) -> tuple[Remote, list[Remote]]:
        victim = random.choice(self.peers)
        return victim, [peer for peer in self.peers if peer is not victim]

    def _go_on_without(self, victim: Remote, survivors: list[Remote]) -> None:
        self.peers = survivors
        for peer in survivors:
            peer.tell("update_topology")
        for peer in survivors:
            assert peer.answer()["ok"]
        self.fleet.forget(victim)

    def _complete(self, namespace: str) -> None:
        if namespace in self.machines:
            self.machines[namespace].mend()
        newcomer = self.fleet.spawn(namespace)
        newcomer.tell("join", url=self.fleet.url(min_peers=2))
        self.peers = self.fleet.admit(self.peers, [newcomer])

    def _strike(self, victim: Remote, kind: str) -> float:
        if kind == "kill":
            return victim.kill()
        fault = time.monotonic()
        if kind == "cut":
            self.machines[victim.namespace].cut()
        else:
            signal.pidfd_send_signal(victim.pidfd, signal.SIGSTOP)
        return fault

    def lose_one(self, kind: str) -> tuple[float, ...] | None:
        """Return seconds until all survivors know, can continue, and have repeated the operation.

        None if the fault came too late to affect the operation.
        """
        self.times.append(self._all_reduce())
        victim, survivors = self._choose_victim()
        inputs = sum(seed for seed, peer in enumerate(self.peers) if peer is not victim)
        self._begin(repeat=True)
        time.sleep(random.uniform(0.0, 0.7 * self.undisturbed))  # the moment of the fault
        fault = self._strike(victim, kind)
        ends = self._outcome(survivors)
        self._go_on_without(victim, survivors)
        self._complete(victim.namespace)
        if ends[0]["ok"]:
            return None
        assert all(one["exact"] and one["seeds"] == inputs for one in ends), ends
        known, updated, repeated = (
            max(float(one[moment]) for one in ends) - fault
            for moment in ("end", "updated", "repeated")
        )
        return known, updated, repeated

    def lose_one_and_keep(self) -> tuple[float, float]:
        """Return seconds until all survivors have the result, and seconds of starting over."""
        victim, survivors = self._choose_victim()
        for seed, peer in enumerate(self.peers):
            dies = {"dies_at": KEPT} if peer is victim else {}
            peer.tell("all_reduce", count=self.count, seed=seed, on_loss="keep", **dies)
        for peer in self.peers:
            assert "posted" in peer.answer()
        fault = victim.ended(timeout=60)
        ends = self._outcome(survivors)
        assert ends[0]["ok"], ends
        self._go_on_without(victim, survivors)
        over = self._all_reduce()
        self._complete(victim.namespace)
        return max(one["end"] for one in ends) - fault, over

    def lose_master(self) -> tuple[float, float]:
        """Return seconds until the operation was known everywhere, and seconds of the start."""
        self._begin()
        time.sleep(random.uniform(0.0, 0.7 * self.undisturbed))  # the moment of the fault
        self.fleet.kill_master()
        fault = time.monotonic()
        self.fleet.start_master()
        started = time.monotonic() - fault
        ends = self._outcome(self.peers)
        assert ends[0]["ok"], ends
        return max(one["end"] for one in ends) - fault, started


def line(what: str, times: list[float], goal: float) -> str:
    ordered = sorted(times)
    above = sum(one > goal for one in ordered)
    return (
        f"  {what:<44} median {statistics.median(ordered) * 1e3:6.0f} ms, "
        f"worst {ordered[-1] * 1e3:6.0f} ms, {above} of {len(ordered)} above {goal * 1e3:.0f} ms"
    )


def measure(kind: str, trials: Trials, count: int, peer_timeout: float) -> None:
    pairs: list[tuple[float, ...]] = []
    late = 0
    for _ in track(range(count), kind, transient=True):
        felt: tuple[float, ...] | None = None
        while felt is None:
            if kind == "master":
                felt = trials.lose_master()
            elif kind == "keep":
                felt = trials.lose_one_and_keep()
            else:
                felt = trials.lose_one(kind)
            late += felt is None
        pairs.append(felt)
    first, second, *third = ([pair[i] for pair in pairs] for i in range(len(pairs[0])))
    whole = trials.undisturbed
    print(
        f"{kind}: {count} trials, undisturbed all-reduce {whole * 1e3:.0f} ms"
        + (f"; {late} more faults came too late to be felt" if late else "")
    )
    if kind == "master":
        rest = [known - started for known, started in pairs]
        print(line("until it has committed, less the start", rest, MASTER_GOAL))
        print(line("the new master's start", second, MASTER_GOAL))
    elif kind == "keep":
        ratios = [cost / over for cost, over in pairs]
        print(line("until all survivors have the result", first, KEEP_GOAL * whole))
        print(
            f"  starting over: median {statistics.median(second) * 1e3:.0f} ms; ratio: median "
            f"{statistics.median(ratios):.3f}, worst {max(ratios):.3f} (goal {KEEP_GOAL})"
        )
    else:
        known_goal = KNOWN_GOAL if kind == "kill" else peer_timeout + SILENCE_GOAL
        again = REPEATED_GOAL + whole + (0.0 if kind == "kill" else peer_timeout + SILENCE_GOAL)
        print(line("until all survivors know, input restored", first, known_goal))
        print(line("until update_topology has returned", second, again))
        print(line("until the first repetition has succeeded", third[0], again))
        print(line("beside it, undisturbed", trials.times, REPEATED_GOAL + whole))
    sys.stdout.flush()


def main() -> None:
    """Run the trials of each kind and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20, help="of each kind")
    parser.add_argument("--mib", type=int, default=256, help="of float32 per rank")
    parser.add_argument("--peer-timeout", type=float, default=2.0)
    parser.add_argument("--kinds", default="kill,stop,cut,master", help=", ".join(KINDS))
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        parser.error(f"--kinds {options.kinds}: choose from {', '.join(KINDS)}")
    os.environ.setdefault("PCCL_LOG", "error")  # losses are expected here
    machines: list[network.Machine] = []
    if "cut" in kinds:
        network.make_hub()
        machines = [network.Machine(number) for number in range(WORLD)]
    print(f"world {WORLD}, {options.mib} MiB float32, PCCL_PEER_TIMEOUT={options.peer_timeout:g}")
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            fleet = Fleet(
                environment={"PCCL_PEER_TIMEOUT": str(options.peer_timeout)},
                journal=Path(folder) / "journal",
                host=network.HUB if kind == "cut" else "127.0.0.1",
            )
            try:
                trials = Trials(fleet, options.mib * MIB // 4, machines if kind == "cut" else [])
                measure(kind, trials, options.trials, options.peer_timeout)
            finally:
                fleet.close()


if __name__ == "__main__":
    run_main(main)
