"""Peers that die in the middle of an all-reduce, and peers that arrive while the others train."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from fleet import Fleet, Remote

COUNT = 4 << 20  # 16 MiB of float32: long enough under way to be hit
KILLS = int(os.environ.get("PCCL_TEST_KILLS", "50"))
JOINS = int(os.environ.get("PCCL_TEST_JOINS", "20"))
MIB = 1 << 20


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.close()


def admit(fleet: Fleet, members: list[Remote], run: str = "test") -> Remote:
    """A newcomer, let in by the members' next joint calls."""
    newcomer = fleet.spawn()
    newcomer.tell("join", url=fleet.url(run, min_peers=2))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for member in members:
            member.tell("update_topology")
        if all(member.answer()["joined"] for member in members):
            assert newcomer.answer()["ok"]
            return newcomer
        time.sleep(0.01)
    raise AssertionError("the newcomer was not let in within 20 s")


def kill_one(fleet: Fleet, peers: list[Remote], chance: random.Random, trial: int) -> bool:
    """Kills one peer (never the first) under way. Returns whether the error named the running operation."""
    victim = chance.choice(peers[1:])
    for seed, peer in enumerate(peers):
        peer.tell("all_reduce", count=COUNT, seed=seed, tag=f"trial.{trial}")
    for peer in peers:
        assert "posted" in peer.answer()
    time.sleep(chance.uniform(0, 0.015))
    ended = victim.kill()
    survivors = [peer for peer in peers if peer is not victim]
    outcomes = [peer.answer(timeout=10) for peer in survivors]
    fleet.forget(victim)
    peers.remove(victim)
    assert len({outcome["ok"] for outcome in outcomes}) == 1, outcomes
    if outcomes[0]["ok"]:  # all had finished, or it was committed before
        assert len({outcome["digest"] for outcome in outcomes}) == 1
        return False
    for outcome in outcomes:
        assert outcome["error"] == "PeerLostError", outcome
        assert outcome["end"] - ended < 1.0, f"noticed after {outcome['end'] - ended:.3f} s"
        assert outcome["untouched"]
    assert len({outcome["message"] for outcome in outcomes}) == 1, outcomes
    return f"trial.{trial}" in outcomes[0]["message"]


def go_on(fleet: Fleet, peers: list[Remote]) -> None:
    """After a loss: the survivors update, repeat without the dead, and let a new peer in."""
    for peer in peers:
        peer.tell("update_topology")
    for peer in peers:
        assert peer.answer()["world"] == len(peers)
    for seed, peer in enumerate(peers):
        peer.tell("all_reduce", count=COUNT, seed=seed)
    digests = set()
    for peer in peers:
        assert "posted" in peer.answer()
        outcome = peer.answer()
        assert outcome["ok"], outcome
        digests.add(outcome["digest"])
    assert len(digests) == 1
    peers.append(admit(fleet, peers))


def test_kill_during_all_reduce(fleet: Fleet) -> None:
    """SIGKILL at a random moment, again and again: uniform outcome, untouched tensors, and nothing leaks."""
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
    """Nothing is special about rank 0 when the master is a process of its own."""
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
    for peer in peers[1:]:
        peer.tell("update_topology")
    assert [peer.answer()["rank"] for peer in peers[1:]] == [0, 1]


def test_different_numbers_of_operations_posted(fleet: Fleet) -> None:
    """One rank had one operation in flight, another five: after update_topology they are in step again."""
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


def test_join_while_others_train(fleet: Fleet) -> None:
    """A newcomer gets the state; no step of the others fails, is repeated, or waits for it."""
    members = fleet.found(2)
    for join in range(JOINS):
        for member in members:
            member.tell("train")
            assert "first_step" in member.answer()
        newcomer = fleet.spawn()
        joined = newcomer.call("join", url=fleet.url(min_peers=2))
        assert joined["ok"] and joined["world"] == 3, joined
        newcomer.tell("train", newcomer=True, steps=3)
        newcomer.answer()
        # Three steps together; then all stop at the same one: the newcomer by count, the members when it is gone.
        theirs = newcomer.answer()
        assert theirs["failures"] == [] and len(theirs["digests"]) == 3
        for member in members:
            member.tell("stop")
        fleet.forget(newcomer)
        for member in members:
            ours = member.answer()
            before_the_end = [
                failure
                for failure in ours["failures"]
                if "left" not in failure and "lost" not in failure
            ]
            assert before_the_end == [], f"join {join}: {before_the_end}"
            assert ours["revisions"] == sorted(set(ours["revisions"])), (
                f"join {join}: a step was repeated"
            )
            assert ours["joint_max"] < 1.0, (
                f"join {join}: a joint call took {ours['joint_max']:.2f} s"
            )
            for revision, digest in theirs["digests"].items():
                assert ours["digests"][revision] == digest, (
                    f"join {join}: states differ at revision {revision}"
                )


BLACKHOLE = """
ip link set lo up
ip link add black type dummy
ip address add 10.99.0.1/24 dev black
ip link set black up
exec "$@"
"""


def test_unreachable_newcomer(tmp_path: object) -> None:
    """A newcomer whose port is a black hole costs the others nothing and is told why."""
    if os.geteuid() != 0:
        pytest.skip("NEEDS ROOT: a network namespace with an address that answers nobody")
    code = "import test_churn; test_churn.unreachable_newcomer()"
    command = ["unshare", "--net", "bash", "-ec", BLACKHOLE, "-", sys.executable, "-c", code]
    subprocess.run(command, check=True, timeout=100, cwd=os.path.dirname(__file__))


def unreachable_newcomer() -> None:
    """Runs inside the namespace: packets to 10.99.0.2 vanish there."""
    fleet = Fleet(environment={"PCCL_PEER_TIMEOUT": "3"})
    try:
        members = fleet.found(2)
        newcomer = fleet.spawn()
        newcomer.tell("join", url=fleet.url(min_peers=2, advertise="10.99.0.2"), timeout=8)
        slowest = 0.0
        deadline = time.monotonic() + 6
        while time.monotonic() < deadline:
            for seed, member in enumerate(members):
                member.tell("update_topology")
                member.tell("all_reduce", count=1000, seed=seed)
            for member in members:
                update = member.answer()
                assert update["ok"] and update["world"] == 2
                assert "posted" in member.answer()
                reduced = member.answer()
                assert reduced["ok"]
                slowest = max(
                    slowest, update["end"] - update["start"], reduced["end"] - reduced["start"]
                )
            time.sleep(0.05)
        assert slowest < 0.5, f"a call of the members took {slowest:.2f} s"
        refused = newcomer.answer()
        assert not refused["ok"] and "10.99.0.2" in refused["message"], refused
    finally:
        fleet.close()
