"""Peers that die in the middle of an all-reduce, and peers that join while others train."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from fleet import Fleet, Remote
from machine import refusal

COUNT = 4 << 20  # 16 MiB of float32: it runs long enough to be hit by a kill
KILLS = int(os.environ.get("PCCL_TEST_KILLS", "50"))
JOINS = int(os.environ.get("PCCL_TEST_JOINS", "20"))
MIB = 1 << 20


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(environment={"PCCL_PEER_TIMEOUT": "200"})
    yield fleet
    fleet.close()


def kill_one(fleet: Fleet, peers: list[Remote], chance: random.Random, trial: int) -> bool:
    """Kill one peer (never the first); return whether an error named the running operation.

    The peer timeout is far beyond the limit of an answer: the others notice the end of its process.
    """
    victim = chance.choice(peers[1:])
    for seed, peer in enumerate(peers):
        peer.tell("all_reduce", count=COUNT, seed=seed, tag=f"trial.{trial}")
    for peer in peers:
        assert "posted" in peer.answer()
    time.sleep(chance.uniform(0, 0.015))
    victim.kill()
    survivors = [peer for peer in peers if peer is not victim]
    outcomes = [peer.answer() for peer in survivors]
    fleet.forget(victim)
    peers.remove(victim)
    assert len({outcome["ok"] for outcome in outcomes}) == 1, outcomes
    if outcomes[0]["ok"]:  # all had finished, or it was already committed
        assert len({outcome["digest"] for outcome in outcomes}) == 1
        return False
    for outcome in outcomes:
        assert outcome["error"] == "PeerLostError", outcome
        assert outcome["untouched"]
    assert len({outcome["message"] for outcome in outcomes}) == 1, outcomes
    return f"trial.{trial}" in outcomes[0]["message"]


def shrink(peers: list[Remote]) -> list[int]:
    """Call update_topology until only these peers are members; return their ranks.

    If the operation had committed, the master may learn of the loss after the first vote.
    """
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for peer in peers:
            peer.tell("update_topology")
        updates = [peer.answer() for peer in peers]
        assert all(update["ok"] for update in updates), updates
        if updates[0]["world"] == len(peers):
            return [update["rank"] for update in updates]
    raise AssertionError("the dead peer is still a member after 10 s")


def go_on(fleet: Fleet, peers: list[Remote]) -> None:
    """After a loss, let the survivors update, repeat without the dead peer, and admit a new one."""
    shrink(peers)
    for seed, peer in enumerate(peers):
        peer.tell("all_reduce", count=COUNT, seed=seed)
    digests = set()
    for peer in peers:
        assert "posted" in peer.answer()
        outcome = peer.answer()
        assert outcome["ok"], outcome
        digests.add(outcome["digest"])
    assert len(digests) == 1
    newcomer = fleet.spawn()
    newcomer.tell("join", url=fleet.url(min_peers=2))
    peers[:] = fleet.admit(peers, [newcomer])


@pytest.mark.timeout(240)
def test_kill_during_all_reduce(fleet: Fleet) -> None:
    """SIGKILL at random moments: uniform outcomes, untouched tensors, and no leaks."""
    chance = random.Random(20250514)
    peers = fleet.found(3)
    counted, trial, usage = 0, 0, {}
    while counted < KILLS:
        trial += 1
        assert trial < KILLS * 4, f"only {counted} of {trial} kills hit a running operation"
        counted += kill_one(fleet, peers, chance, trial)
        go_on(fleet, peers)
        if counted in (10, KILLS):
            usage[counted] = peers[0].call("usage")
    if KILLS > 10:
        early, late = usage[10], usage[KILLS]
        assert late["threads"] == early["threads"]
        assert late["descriptors"] == early["descriptors"]
        assert late["rss"] - early["rss"] < 8 * MIB, (
            f"{(late['rss'] - early['rss']) / MIB:.1f} MiB grown"
        )


def test_rank_0_dies(fleet: Fleet) -> None:
    """Rank 0 is not special when the master is a separate process."""
    peers = fleet.found(3)
    for seed, peer in enumerate(peers):
        peer.tell("all_reduce", count=COUNT, seed=seed)
    for peer in peers:
        peer.answer()
    peers[0].kill()
    outcomes = [peer.answer() for peer in peers[1:]]
    assert (
        len({(outcome["ok"], outcome["digest"] if outcome["ok"] else "") for outcome in outcomes})
        == 1
    )
    assert shrink(peers[1:]) == [0, 1]


def test_different_numbers_of_operations_posted(fleet: Fleet) -> None:
    """Survivors with one and five operations in flight at a loss continue in step."""
    peers = fleet.found(3)
    for peer, times in zip(peers, (1, 5, 0), strict=True):
        assert peer.call("post", count=1000, seed=1, times=times)["ok"]
    peers[2].kill()
    for peer, times in zip(peers[:2], (1, 5), strict=True):
        outcomes = peer.call("wait_all")["outcomes"]
        assert [outcome.get("error") for outcome in outcomes] == ["PeerLostError"] * times
    for peer in peers[:2]:
        peer.tell("update_topology")
    for peer in peers[:2]:
        assert peer.answer()["world"] == 2
    for seed, peer in enumerate(peers[:2]):
        assert peer.call("post", count=1000, seed=seed, times=3)["ok"]
    for peer in peers[:2]:
        assert all(outcome["ok"] for outcome in peer.call("wait_all")["outcomes"])


@pytest.mark.timeout(200)
def test_join_while_others_train(fleet: Fleet) -> None:
    """A newcomer gets the state; no step of the others fails or is repeated."""
    members = fleet.found(2)
    for join in range(JOINS):
        for member in members:
            member.tell("train")
        for member in members:
            assert "first_step" in member.answer()
        newcomer = fleet.spawn()
        joined = newcomer.call("join", url=fleet.url(min_peers=2))
        assert joined["ok"], joined
        assert joined["world"] == 3
        theirs = newcomer.call("train", newcomer=True, steps=3)
        while "first_step" in theirs:
            theirs = newcomer.answer()
        assert theirs["failures"] == []
        assert len(theirs["digests"]) == 3
        for member in members:
            ours = member.answer()
            assert ours["failures"] == [], f"join {join}: {ours['failures']}"
            first = ours["revisions"][0]
            steps = list(range(first, first + len(ours["revisions"])))
            assert ours["revisions"] == steps, f"join {join}: a step was repeated"
            for revision, digest in theirs["digests"].items():
                assert ours["digests"][revision] == digest, (
                    f"join {join}: states differ at revision {revision}"
                )
        assert newcomer.call("leave")["ok"]
        fleet.forget(newcomer)


HOLE_TIMEOUT_S = 8.0  # a peer that waits for the black hole waits this long
BLACKHOLE = """
ip link set lo up
ip link add black type veth peer name hole
ip address add 10.99.0.1/24 dev black
ip link set black up
ip link set hole up
ip neighbour add 10.99.0.2 lladdr 02:00:00:00:00:02 dev black
exec "$@"
"""


def test_newcomer_at_a_black_hole(tmp_path: object) -> None:
    """A newcomer whose port drops all packets costs the others nothing, and dials them itself."""
    alone = ["unshare", "--net", "bash", "-ec", BLACKHOLE, "-"]
    if refused := refusal([*alone, "true"], "an address that answers nobody, in its own network"):
        pytest.skip(refused)
    code = "import test_churn; test_churn.newcomer_at_a_black_hole()"
    command = [*alone, sys.executable, "-c", code]
    subprocess.run(command, check=True, timeout=100, cwd=os.path.dirname(__file__))


def newcomer_at_a_black_hole() -> None:
    """Run inside the namespace: packets to 10.99.0.2 vanish there."""
    fleet = Fleet(environment={"PCCL_PEER_TIMEOUT": f"{HOLE_TIMEOUT_S}"})
    try:
        members = fleet.found(2)
        newcomer = fleet.spawn()
        newcomer.tell("join", url=fleet.url(min_peers=2, advertise="10.99.0.2"))
        slowest = 0.0
        deadline = time.monotonic() + 2 * HOLE_TIMEOUT_S
        while time.monotonic() < deadline:
            for seed, member in enumerate(members):
                member.tell("update_topology")
                member.tell("all_reduce", count=1000, seed=seed)
            updates = [member.answer() for member in members]
            assert all(update["ok"] for update in updates), updates
            if updates[0]["world"] == 3:
                break
            for member, update in zip(members, updates, strict=True):
                assert "posted" in member.answer()
                reduced = member.answer()
                assert reduced["ok"]
                slowest = max(
                    slowest, update["end"] - update["start"], reduced["end"] - reduced["start"]
                )
            time.sleep(0.05)
        assert slowest > 0, "it was let in before anybody tried to reach it"
        assert slowest < HOLE_TIMEOUT_S / 2, f"a call of the members took {slowest:.2f} s"
        assert newcomer.answer()["world"] == 3
    finally:
        fleet.close()
