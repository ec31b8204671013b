"""Records the snapshots of tests/page: the answers of a real master about real runs.

    python tests/python/record_snapshots.py [SITUATION ...]

Each run has three members, tokyo, paris and osaka, on this machine, and one has eighteen. A run of
128 is simulated (build/core/pccl-scenarios). Run it again when the snapshot has new fields; the
assertions of test_page_browser.py then say whether the page still understands it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fleet import Fleet, Remote

from pccl_backend.command import runs

FOLDER = Path(__file__).parents[1] / "page"
NAMES = ("tokyo", "paris", "osaka")
EIGHTEEN = (
    *("tokyo", "paris", "lima", "oslo", "rome", "kyoto", "quito", "delhi", "cairo", "accra"),
    *("sofia", "riga", "bern", "turin", "porto", "lyon", "graz", "osaka"),
)
SIMULATED = 128
SIMULATION_S = 300.0  # at most
SCENARIOS = Path(__file__).parents[2] / "build" / "core" / "pccl-scenarios"
COUNT = 1 << 20  # elements: 4 MiB
WAIT_S = 30.0
PEER_TIMEOUT_S = 4

Snapshot = dict[str, Any]


class Stage:
    """One run. The last of these members is osaka."""

    def __init__(self, fleet: Fleet, run: str, names: Sequence[str] = NAMES) -> None:
        self.fleet, self.run, self.step = fleet, run, 0
        self.founders = len(names)
        self.min_peers = 3 if run == "below_min_peers" else 2
        peers = [self.join(name) for name in names]
        self.all(peers, None)
        ranks = {peer: peer.call("info")["rank"] for peer in peers}
        self.peers = sorted(peers, key=lambda peer: ranks[peer])
        self.osaka = peers[-1]
        self.others = [peer for peer in self.peers if peer is not self.osaka]

    def join(self, name: str) -> Remote:
        peer = self.fleet.spawn()
        given = {
            "peer_timeout": PEER_TIMEOUT_S,
            "name": name,
            "founders": self.founders,
            "min_peers": self.min_peers,
        }
        peer.tell("join", url=self.fleet.url(self.run, **given))
        return peer

    def all(self, peers: list[Remote], verb: str | None) -> None:
        """Let these peers make a joint call, or await the one that they have made."""
        for peer in peers if verb else []:
            peer.tell(str(verb))
        for peer in peers:
            answer = peer.answer()
            assert answer["ok"], answer

    def train(self, seconds: float) -> None:
        """Make steps; each member in turn computes for longest."""
        self.all(self.peers, "sync")
        self.all(self.peers, "optimize_topology")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step += 1
            slow = self.peers[self.step % len(self.peers)]
            for peer in self.peers:
                peer.call("report", step=self.step, loss=2.2 + 3 / self.step**0.5)
            for peer in self.peers:
                if peer is not slow:
                    self.begin(peer)
            time.sleep(0.05)  # its forward and backward pass
            self.begin(slow)
            self.all(self.peers, None)
            self.look()

    def begin(self, peer: Remote) -> None:
        peer.tell("all_reduce", count=COUNT, seed=1)
        assert "posted" in peer.answer()

    def look(self) -> Snapshot:
        assert self.fleet.journal is not None
        try:
            asked = {"command": "status", "run": self.run}
            answer: Snapshot = json.loads(runs.ask(self.fleet.journal, asked))
        except runs.MasterError:  # the run is not back yet
            return {"findings": []}
        return answer

    def look_until(self, is_it: Callable[[Snapshot], bool]) -> Snapshot:
        """Return the first snapshot with this property."""
        end = time.monotonic() + WAIT_S
        while not is_it(answer := self.look()):
            assert time.monotonic() < end, answer
            time.sleep(0.1)  # from one snapshot to the next; `end` bounds the loop
        return answer


def has(code: str) -> Callable[[Snapshot], bool]:
    return lambda answer: any(one["code"] == code for one in answer["findings"])


def healthy(stage: Stage) -> Snapshot:
    return stage.look()


def killed(stage: Stage) -> Snapshot:
    """osaka was killed within an all-reduce, and the others continue without it."""
    for peer in stage.others:
        stage.begin(peer)
    stage.osaka.kill()
    return stage.look_until(lambda answer: answer["groups"][0]["members"] == 2)


def frozen(stage: Stage) -> Snapshot:
    """osaka is stopped, and answers nothing."""
    os.kill(stage.osaka.pid, signal.SIGSTOP)
    for peer in stage.others:
        stage.begin(peer)
    return stage.look_until(has("peer_silent"))


def not_called(stage: Stage) -> Snapshot:
    for peer in stage.others:
        stage.begin(peer)
    return stage.look_until(has("rank_has_not_called"))


def below_min_peers(stage: Stage) -> Snapshot:
    stage.osaka.kill()
    for peer in stage.others:
        peer.tell("update_topology")
    return stage.look_until(
        lambda answer: any(
            (one["code"], one["severity"]) == ("below_min_peers", "error")
            for one in answer["findings"]
        )
    )


def recovering(stage: Stage) -> Snapshot:
    """The master was started again, and osaka has ended meanwhile."""
    stage.fleet.kill_master()
    stage.osaka.kill()
    stage.fleet.start_master()
    return stage.look_until(has("master_recovering"))


def newcomer(stage: Stage) -> Snapshot:
    """kyoto can be admitted, and the members do not call update_topology."""
    stage.join("kyoto")
    return stage.look_until(has("newcomer_waits_for_update_topology"))


def simulated() -> Snapshot:
    """Return a run of 128 members, one of which has not called what all others wait for."""
    names = [f"p{number}" for number in range(1, SIMULATED + 1)]
    others = ",".join(names[:77] + names[78:])
    commands = f"""
        join {" ".join(names)} min_peers=2 founders={SIMULATED}
        run 3000; all_reduce tag=step count=10 on={others}; run 12000
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(commands)
        file.flush()
        done = subprocess.run(
            [SCENARIOS, "--snapshot", file.name],
            check=True,
            capture_output=True,
            text=True,
            timeout=SIMULATION_S,
        )
    answer: Snapshot = json.loads(done.stdout)
    return answer | {"run": "simulated"}


SITUATIONS = {
    one.__name__: one
    for one in (healthy, killed, frozen, not_called, below_min_peers, newcomer, recovering)
} | {"eighteen": frozen}


def save(name: str, answer: Snapshot, **how: Any) -> None:
    (FOLDER / f"{name}.json").write_text(json.dumps(answer, **how) + "\n")
    print(name, [one["code"] for one in answer["findings"]], flush=True)


def main() -> None:
    wanted = sys.argv[1:]
    if not wanted or "simulated" in wanted:
        save("simulated", simulated())
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(journal=Path(folder) / "journal")
        try:
            for name, situation in SITUATIONS.items():
                if wanted and name not in wanted:
                    continue
                stage = Stage(fleet, name, EIGHTEEN if name == "eighteen" else NAMES)
                stage.train(8.0)
                save(name, situation(stage), indent=1)
                for peer in list(fleet.peers):
                    fleet.forget(peer)
        finally:
            fleet.close()


if __name__ == "__main__":
    main()
