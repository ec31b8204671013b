"""Records the snapshots of tests/page: the answers of a real master about real runs.

    python tests/python/record_snapshots.py [SITUATION ...]

Each run has three members, tokyo, paris and osaka, on this machine. Run it again when the snapshot
has new fields; the assertions of test_page_browser.py then say whether the page still understands
it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet import Fleet, Remote

from pccl_backend.command import runs

FOLDER = Path(__file__).parents[1] / "page"
NAMES = ("tokyo", "paris", "osaka")
COUNT = 1 << 20  # elements: 4 MiB
WAIT_S = 30.0
PEER_TIMEOUT_S = 4

Snapshot = dict[str, Any]


class Stage:
    """One run of three members."""

    def __init__(self, fleet: Fleet, run: str) -> None:
        self.fleet, self.run, self.step = fleet, run, 0
        self.min_peers = 3 if run == "below_min_peers" else 2
        peers = [self.join(name) for name in NAMES]
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
            "founders": 3,
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


SITUATIONS = (healthy, killed, frozen, not_called, below_min_peers, newcomer, recovering)


def main() -> None:
    wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(journal=Path(folder) / "journal")
        try:
            for situation in SITUATIONS:
                name = situation.__name__
                if wanted and name not in wanted:
                    continue
                stage = Stage(fleet, name)
                stage.train(8.0)
                answer = situation(stage)
                (FOLDER / f"{name}.json").write_text(json.dumps(answer, indent=1) + "\n")
                print(name, [one["code"] for one in answer["findings"]], flush=True)
                for peer in list(fleet.peers):
                    fleet.forget(peer)
        finally:
            fleet.close()


if __name__ == "__main__":
    main()
