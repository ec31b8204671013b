"""Staged situations with real peers: `pccl status` names the guilty one and the next step, in time.

The log of the master or the exception of a peer has the same words. A healthy run has no finding.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, Remote
from own_network import own_network
from routers import Network, Unasked
from test_status import status
from world import wait_until

from pccl_backend.command import runs

TIMEOUT_S = 2.0  # peer_timeout
SLACK_S = 4.0  # for the processes of a machine that does other work, too
NOTES = {"nothing_wrong", "slow_link", "plan_outdated", "operations_in_flight"}


class Stage:
    """A run of its own on the master of all tests; its peers have names."""

    def __init__(self, fleet: Fleet, run: str, folder: Path) -> None:
        self.fleet, self.run, self.folder = fleet, run, folder
        assert fleet.journal is not None
        self.journal = fleet.journal

    def peer(self, name: str, namespace: str = "", **settings: object) -> Remote:
        """Start a peer; it asks for admission."""
        peer = self.fleet.spawn(namespace, log=self.folder / f"{name}.log")
        given = {"peer_timeout": TIMEOUT_S, "name": name, "min_peers": 2, **settings}
        peer.tell("join", url=self.fleet.url(self.run, **given))
        return peer

    def found(self, *names: str) -> list[Remote]:
        """Start a run with these peers; return them when all have called once."""
        peers = [self.peer(name, min_peers=len(names)) for name in names]
        for peer in peers:
            answer = peer.answer()
            assert answer["ok"], answer
        self.reduce(peers)
        return peers

    def reduce(self, peers: list[Remote], tag: str = "") -> None:
        for peer in peers:
            self.call(peer, tag)
        for peer in peers:
            answer = peer.answer()
            assert answer["ok"], answer

    def call(self, peer: Remote, tag: str = "") -> None:
        """Let one peer call all_reduce, and wait in it."""
        peer.tell("all_reduce", count=1000, seed=1, tag=tag)
        assert "posted" in peer.answer()

    def finds(
        self, code: str, whom: str, next_: str, within: float = TIMEOUT_S + 1, says: str = ""
    ) -> str:
        """Check that the finding comes in time, and that the page has it; return its text."""
        found: dict[str, Any] = {}

        def is_found() -> bool:
            fitting = (
                one for one in self.findings() if one["code"] == code and says in one["text"]
            )
            found.update(next(fitting, {}))
            return bool(found)

        began = time.monotonic()
        assert wait_until(is_found, timeout_s=within + SLACK_S), (code, self.findings())
        assert time.monotonic() - began < within + SLACK_S
        assert any(whom in one for one in found["whom"]), found
        assert next_ in found["next"], found
        ended, shown, _ = status(self.run, "--journal", self.journal)
        assert f"{found['severity']} {code}: " in shown or "more finding" in shown, shown
        assert ended == (found["severity"] == "error")
        print(f"{code}: {found['text']}. -> {found['next']}")
        return str(found["text"])

    def findings(self) -> list[dict[str, Any]]:
        with contextlib.suppress(runs.MasterError):  # no peer has joined yet
            answer = runs.ask(self.journal, {"command": "status", "run": self.run})
            return list(json.loads(answer).get("findings", []))
        return []

    def logs(self, text: str) -> bool:
        """Return whether a log soon has these words, apart from times: a thread writes it."""
        words = plain(text)
        logs = [*self.folder.glob("*.log"), *self.journal.parent.glob("*.log")]
        return wait_until(
            lambda: any(words in plain(log.read_text()) for log in logs), timeout_s=30.0
        )


def plain(text: str) -> str:
    """Return a text without its times, which grow from one surface to the next."""
    return re.sub(r"\b[\d.]+ (ms|s|min)\b", "TIME", text)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start one fleet for all tests, since torch loads slowly."""
    folder = tmp_path_factory.mktemp("master")
    fleet = Fleet(secured=True, journal=folder / "journal", master_log=folder / "master.log")
    yield fleet
    fleet.close()


@pytest.fixture
def stage(fleet: Fleet, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    yield Stage(fleet, request.node.name, tmp_path)
    for peer in list(fleet.peers):
        fleet.forget(peer)


@pytest.fixture
def distant(stage: Stage, network: Network) -> Iterator[Stage]:
    """Put the master on a host of the network."""
    server = network.host()
    stage.fleet.move_master(server.namespace, server.address)
    yield stage
    stage.fleet.move_master("", "127.0.0.1")


@pytest.fixture
def network() -> Iterator[Network]:
    with own_network() as made:
        yield made


# --- Peers that are not admitted ------------------------------------------------------------------


def test_a_founder_is_alone(stage: Stage) -> None:
    stage.peer("tokyo")
    text = stage.finds("alone_waiting_for_founders", "tokyo", "Start 1 more with the same master")
    assert stage.logs(text.partition("; it has waited")[0])


def test_a_newcomer_cannot_be_reached(distant: Stage, network: Network) -> None:
    stage = distant
    homes = [network.home(Unasked.REJECT).host() for _ in range(2)]
    assert stage.peer("tokyo", homes[0].namespace, min_peers=1).answer()["ok"]
    stage.peer("oslo", homes[1].namespace, min_peers=1)
    text = stage.finds("newcomer_unreachable", "oslo", "TCP port")
    assert "oslo" in text
    assert "tokyo" in text
    assert "connection refused" in text
    assert stage.logs(text.partition(": connect to ")[0])


def test_a_newcomer_waits_for_update_topology(stage: Stage) -> None:
    stage.found("tokyo", "lima")
    stage.peer("oslo")
    text = stage.finds("newcomer_waits_for_update_topology", "oslo", "update_topology")
    assert stage.logs(text.partition("; it has waited")[0])


def test_other_terms_are_refused(stage: Stage) -> None:
    stage.found("tokyo", "lima")
    answer = stage.peer("oslo", on_peer_loss="retry").answer()
    assert not answer["ok"]
    text = stage.finds("version_or_terms_refused", "oslo", "correct the settings of this peer")
    reason = text.partition("refused a peer at 127.0.0.1: ")[2]
    assert reason
    assert reason in answer["message"]
    assert stage.logs(reason)


# --- Calls that wait ------------------------------------------------------------------------------


def test_a_rank_has_not_called(stage: Stage) -> None:
    tokyo, lima, oslo = stage.found("tokyo", "lima", "oslo")
    for peer in (tokyo, lima):
        stage.call(peer)
    text = stage.finds("rank_has_not_called", "oslo", "py-spy dump")
    assert stage.logs(text.partition(" wait: ")[2])
    stage.call(oslo)
    for peer in (tokyo, lima, oslo):
        assert peer.answer()["ok"]
    codes = [one["code"] for one in stage.findings()]
    assert codes == ["nothing_wrong"], "the finding ends with the wait"


def test_different_calls(stage: Stage) -> None:
    tokyo, lima = stage.found("tokyo", "lima")
    stage.call(tokyo)
    lima.tell("update_topology")
    text = stage.finds("different_calls", "lima", "correct the program")
    assert "all_reduce" in text
    assert "update_topology" in text
    assert stage.logs(text.partition(" waits: ")[2])


def test_a_cycle_of_waits(stage: Stage) -> None:
    """Each rank posts all calls but that of the rank before it, and waits for its own."""
    peers = stage.found("tokyo", "lima", "oslo")
    for number, peer in enumerate(peers):
        other = (number + 1) % len(peers)
        peer.call("post", count=1000, seed=1, tag=f"call{other}")
        stage.call(peer, tag=f"call{number}")
    text = stage.finds("wait_cycle", "lima", "", within=2.0)
    for name in ("tokyo", "lima", "oslo"):
        assert name in text
    for peer in peers:
        answer = peer.answer()
        assert answer["error"] == "CollectiveMismatchError"
        assert plain(text) in plain(answer["message"])


def test_below_min_peers(stage: Stage) -> None:
    tokyo, lima = stage.found("tokyo", "lima")
    lima.kill()
    tokyo.tell("update_topology")
    # Until the master has the call, the finding is a warning; then it is an error.
    text = stage.finds(
        "below_min_peers", "tokyo", "Start 1 more with the same master", says="it has waited"
    )
    assert stage.logs(text.partition("; it has waited")[0])


# --- Peers and links that are gone ----------------------------------------------------------------


def test_a_peer_is_silent(stage: Stage) -> None:
    lima = stage.found("tokyo", "lima")[1]
    os.kill(lima.pid, signal.SIGSTOP)
    try:
        text = stage.finds("peer_silent", "lima", "look at its process and its network")
        assert "it is lost after 2 s (peer_timeout)" in text
    finally:
        os.kill(lima.pid, signal.SIGCONT)


def test_a_link_is_down(distant: Stage, network: Network) -> None:
    stage, west, east = distant, network.host(), network.host()
    peers = [stage.peer(name, host.namespace) for name, host in (("tokyo", west), ("lima", east))]
    for peer in peers:
        assert peer.answer()["ok"]
    stage.reduce(peers)
    west.nft(f"""
        table ip cut {{
          chain in {{
            type filter hook input priority 0
            ip saddr {east.address} drop
          }}
        }}""")
    text = stage.finds("link_down", "tokyo", "look at the network between")
    assert "lima" in text


def test_a_member_is_missing_after_a_restart(stage: Stage) -> None:
    tokyo, lima = stage.found("tokyo", "lima")
    stage.fleet.kill_master()
    lima.kill()
    stage.fleet.start_master()
    text = stage.finds("master_recovering", "lima", "comes back by itself", says="is not back yet")
    assert "(lima)" in text
    assert tokyo.call("info")["world"] == 2


# --- States and speed -----------------------------------------------------------------------------


def test_a_state_is_refused(stage: Stage) -> None:
    peers = stage.found("tokyo", "lima")
    for revision in (1, 9):
        for peer in peers:
            peer.call("set_state", value=1.0, revision=revision)
            peer.tell("sync")
        answers = [peer.answer() for peer in peers]
    assert not answers[0]["ok"], answers
    text = stage.finds("state_refused", "all members", "correct the state")
    assert text.partition(" ago: ")[2] in answers[0]["message"]


def test_a_replica_drifts(stage: Stage) -> None:
    peers = stage.found("tokyo", "lima", "oslo")
    for revision, strange in ((1, 1.0), (2, 1.5)):
        for peer in peers:
            value = strange if peer is peers[1] else 1.0
            peer.call("set_state", value=value, revision=revision)
            peer.tell("sync")
        for peer in peers:
            assert peer.answer()["ok"]
    text = stage.finds("states_differ", "lima", "")
    assert '"weights"' in text
    assert stage.logs(text.partition(" drifts: ")[2])


def test_a_peer_is_slow(stage: Stage) -> None:
    peers = stage.found("tokyo", "lima", "oslo")
    for _ in range(22):
        for peer in (peers[0], peers[2]):
            stage.call(peer)
        time.sleep(0.15)  # lima computes for longer than the others: this is the fault
        stage.call(peers[1])
        for peer in peers:
            assert peer.answer()["ok"]
    text = stage.finds("slow_peer", "lima", "look at the load of the machine of lima", within=0.0)
    assert "was the last to call in" in text


# --- A healthy run --------------------------------------------------------------------------------


def test_a_healthy_run_has_no_finding(stage: Stage) -> None:
    """While peers train, one joins and downloads the state, and one leaves."""
    peers = stage.found("tokyo", "lima", "rome")
    snapshots: list[list[str]] = []

    def look(times: int, until: Callable[[], bool] = lambda: False) -> None:
        for _ in range(times):
            snapshots.append([one["code"] for one in stage.findings()])
            if until():
                return
            time.sleep(0.05)  # from one snapshot to the next; `times` bounds the loop

    for peer in peers:
        peer.tell("train", steps=400)
    for peer in peers:
        assert "first_step" in peer.answer()
    look(10)
    newcomer = stage.peer("oslo", min_peers=3)
    look(100, lambda: has_answered(newcomer))
    answer = newcomer.answer()
    assert answer["ok"], answer
    newcomer.tell("train", newcomer=True)
    look(10)
    for peer in [*peers, newcomer]:
        answer = peer.answer()
        answer = peer.answer() if "first_step" in answer else answer
        assert not answer["failures"], answer
    assert len(snapshots) >= 20
    wrong = [codes for codes in snapshots if not set(codes) <= NOTES]
    assert not wrong, f"{len(wrong)} of {len(snapshots)}: {wrong[0]}"


def has_answered(peer: Remote) -> bool:
    """Return whether an answer of the peer has arrived."""
    return bool(select.select([peer.socket], [], [], 0)[0])
