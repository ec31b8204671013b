"""What a fault costs: world 4, a large all-reduce under way, one fault a trial.

    tools/stock-network.sh .venv/bin/python benchmarks/recovery.py --trials 100

Kinds of fault:
    kill     SIGKILL of a peer: from the end of its process (its pidfd) until the last survivor's
             wait() has raised and its input is back; and until the first repetition succeeded
    stop     SIGSTOP of a peer: the same, from the signal; the peer timeout is in it
    keep     SIGKILL of a peer that has received 90 % of an all-reduce with on_loss="keep": from the
             end of its process until the others have it, beside starting over: an undisturbed
             all-reduce of the same by those who are left
    master   SIGKILL of the master and a new start: from the kill until the operation under way has
             committed everywhere; how long the start took is said beside it

In every trial all survivors must have the same outcome and, on error, their own input, bit for bit.
An undisturbed all-reduce of that size is timed beside the faults, in the same run.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))

from fleet import Fleet, Remote

WORLD = 4
MIB = 1 << 20
KEPT = 0.9  # the part that the victim of `keep` has received


class Trials:
    """A world of peers that is made whole again after each trial."""

    def __init__(self, fleet: Fleet, count: int) -> None:
        self.fleet = fleet
        self.count = count  # elements
        self.peers = fleet.found(WORLD)
        self.undisturbed = statistics.median(self._all_reduce() for _ in range(5))

    def _begin(self) -> float:
        for seed, peer in enumerate(self.peers):
            peer.tell("all_reduce", count=self.count, seed=seed)
        return max(peer.answer()["posted"] for peer in self.peers)

    def _ends(self, peers: list[Remote]) -> list[dict[str, object]]:
        return [peer.answer() for peer in peers]

    def _all_reduce(self) -> float:
        begun = self._begin()
        return max(float(str(one["end"])) for one in self._ends(self.peers)) - begun

    def _outcome(self, survivors: list[Remote]) -> tuple[bool, float]:
        """Whether it failed, and when the last survivor knew."""
        ends = self._ends(survivors)
        assert len({one["ok"] for one in ends}) == 1, ends
        failed = not ends[0]["ok"]
        for one in ends:
            assert one["untouched"] if failed else one["digest"] == ends[0]["digest"], one
        return failed, max(float(str(one["end"])) for one in ends)

    def _go_on_without(self, victim: Remote, survivors: list[Remote]) -> None:
        self.peers = survivors
        for peer in survivors:
            peer.tell("update_topology")
        for peer in survivors:
            assert peer.answer()["ok"]
        self.fleet.forget(victim)

    def _complete(self, survivors: list[Remote]) -> None:
        newcomer = self.fleet.spawn()
        newcomer.tell("join", url=self.fleet.url(min_peers=2))
        self.peers = self.fleet.admit(survivors, [newcomer])

    def lose_one(self, number: signal.Signals, moment: float) -> tuple[float, float] | None:
        """Return seconds until all survivors know, and until a repetition succeeded.

        None if the fault came too late to be felt.
        """
        victim = self.peers[random.randrange(WORLD)]
        survivors = [peer for peer in self.peers if peer is not victim]
        self._begin()
        time.sleep(moment)  # the moment of the fault
        if number == signal.SIGKILL:
            fault = victim.kill()
        else:
            signal.pidfd_send_signal(victim.pidfd, number)
            fault = time.monotonic()
        failed, known = self._outcome(survivors)
        repeated = known
        self._go_on_without(victim, survivors)
        if failed:
            self._begin()
            repeated = self._outcome(survivors)[1]
        self._complete(survivors)
        return (known - fault, repeated - fault) if failed else None

    def lose_one_and_keep(self) -> tuple[float, float]:
        """Return seconds until all survivors have the result, and of starting over."""
        victim = self.peers[random.randrange(WORLD)]
        survivors = [peer for peer in self.peers if peer is not victim]
        for seed, peer in enumerate(self.peers):
            dies = {"dies_at": KEPT} if peer is victim else {}
            peer.tell("all_reduce", count=self.count, seed=seed, on_loss="keep", **dies)
        for peer in self.peers:
            assert "posted" in peer.answer()
        fault = victim.ended(timeout=60)
        failed, known = self._outcome(survivors)
        assert not failed
        self._go_on_without(victim, survivors)
        over = self._all_reduce()
        self._complete(survivors)
        return known - fault, over

    def lose_master(self, moment: float) -> tuple[float, float]:
        """Return seconds until the operation under way was known everywhere, and of the start."""
        self._begin()
        time.sleep(moment)  # the moment of the fault
        self.fleet.kill_master()
        fault = time.monotonic()
        self.fleet.start_master()
        started = time.monotonic() - fault
        failed, known = self._outcome(self.peers)
        assert not failed
        return known - fault, started


def line(what: str, times: list[float]) -> str:
    ordered = sorted(times)
    slow = ordered[max(0, int(len(ordered) * 0.99) - 1)]
    return (
        f"  {what:<44} median {statistics.median(ordered) * 1e3:6.0f} ms, "
        f"p99 {slow * 1e3:6.0f} ms, worst {ordered[-1] * 1e3:6.0f} ms"
    )


def main() -> None:
    """Run the trials of each kind and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="of each kind")
    parser.add_argument("--mib", type=int, default=256, help="of float32 per rank")
    parser.add_argument("--peer-timeout", type=float, default=2.0)
    parser.add_argument("--kinds", default="kill,stop,master")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(
            environment={"PCCL_PEER_TIMEOUT": str(options.peer_timeout)},
            journal=Path(folder) / "journal",
        )
        try:
            trials = Trials(fleet, options.mib * MIB // 4)
            whole = trials.undisturbed
            print(
                f"world {WORLD}, {options.mib} MiB float32, PCCL_PEER_TIMEOUT="
                f"{options.peer_timeout:g}; undisturbed all-reduce {whole * 1e3:.0f} ms"
            )
            for kind in options.kinds.split(","):
                report(kind, trials, options.trials, whole)
        finally:
            fleet.close()


def report(kind: str, trials: Trials, count: int, whole: float) -> None:
    first: list[float] = []
    second: list[float] = []
    late = 0
    while len(first) < count:
        moment = random.uniform(0.0, 0.7 * whole)
        felt: tuple[float, float] | None
        if kind == "master":
            felt = trials.lose_master(moment)
        elif kind == "keep":
            felt = trials.lose_one_and_keep()
        else:
            number = signal.SIGKILL if kind == "kill" else signal.SIGSTOP
            felt = trials.lose_one(number, moment)
        if felt is None:
            late += 1
            continue
        first.append(felt[0])
        second.append(felt[1])
    print(f"{kind}: {count} trials" + (f", {late} more came too late to be felt" if late else ""))
    if kind == "master":
        print(line("until the operation has committed everywhere", first))
        print(line("of which the new master took to start", second))
    elif kind == "keep":
        print(line("until all survivors have the result", first))
        print(line("of starting over: an undisturbed all-reduce", second))
        ratios = [cost / over for cost, over in zip(first, second, strict=True)]
        print(f"  median ratio {statistics.median(ratios):.3f}, worst {max(ratios):.3f}")
    else:
        print(line("until all survivors know, input restored", first))
        print(line("until the first repetition has succeeded", second), flush=True)


if __name__ == "__main__":
    main()
