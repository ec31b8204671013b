"""A master that is killed and restarted: the run continues, and the master remembers."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import PCCL, Fleet, Remote, begin_all_reduce, check_sum

PEER_TIMEOUT = 3.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(
        environment={"PCCL_PEER_TIMEOUT": str(PEER_TIMEOUT)}, journal=tmp_path / "journal"
    )
    yield fleet
    fleet.close()


def joint(peers: list[Remote], verb: str, **arguments: object) -> list[dict[str, object]]:
    for peer in peers:
        peer.tell(verb, **arguments)
    return [peer.answer() for peer in peers]


def test_operations_in_flight_finish(fleet: Fleet) -> None:
    peers = fleet.found(3)
    chance = random.Random(1)
    for turn in range(6):
        begin_all_reduce(peers)
        time.sleep(chance.uniform(0, 0.05))  # the moment of the fault
        fleet.kill_master()
        if turn % 2 == 0:  # operations that are called while it is away run as well
            for seed, peer in enumerate(peers):
                peer.tell("post", count=1000, seed=seed, times=turn + 1)
        fleet.start_master()
        check_sum(peers)
        if turn % 2 == 0:
            assert all(peer.answer()["ok"] for peer in peers)
            ends = [peer.call("wait_all")["outcomes"] for peer in peers]
            assert all(one["ok"] for end in ends for one in end), ends
    updates = joint(peers, "update_topology")
    assert [update["world"] for update in updates] == [3, 3, 3]


def test_joint_calls_wait_for_it(fleet: Fleet) -> None:
    peers = fleet.found(2)
    fleet.kill_master()
    for peer in peers:
        peer.tell("update_topology")
    newcomer = fleet.spawn()
    newcomer.tell("join", url=fleet.url(min_peers=2))
    fleet.start_master()
    assert [peer.answer()["world"] for peer in peers] == [2, 2]
    assert len(fleet.admit(peers, [newcomer])) == 3


def test_who_waits_to_be_admitted_goes_on_waiting(fleet: Fleet) -> None:
    members = fleet.found(2)
    newcomer = fleet.spawn()
    newcomer.tell("join", url=fleet.url(min_peers=2))
    deadline = time.monotonic() + 30
    while not joint(members, "are_peers_pending")[0]["pending"]:
        assert time.monotonic() < deadline
    fleet.kill_master()
    fleet.start_master()
    peers = fleet.admit(members, [newcomer])
    begin_all_reduce(peers)
    check_sum(peers)


def test_a_peer_that_dies_meanwhile_is_lost(fleet: Fleet) -> None:
    peers = fleet.found(3)
    begin_all_reduce(peers)
    fleet.kill_master()
    peers[1].kill()
    fleet.start_master()
    survivors = [peers[0], peers[2]]
    outcomes = [peer.answer() for peer in survivors]
    assert outcomes[0]["ok"] == outcomes[1]["ok"], outcomes
    for one in outcomes:
        assert one["ok"] or (one["error"] == "PeerLostError" and one["untouched"]), one
    assert [update["world"] for update in joint(survivors, "update_topology")] == [2, 2]
    begin_all_reduce(survivors)
    check_sum(survivors)


def test_training_goes_on_from_the_agreed_state_only(fleet: Fleet) -> None:
    first = fleet.found(2)
    for revision in (4, 5):
        for peer in first:
            peer.call("set_state", value=float(revision), revision=revision)
        agreed = joint(first, "sync")
        assert all(one["ok"] for one in agreed), agreed
        if revision == 4:
            checkpoint = agreed[0]["hash"]
    fleet.kill_master()
    for peer in list(first):
        fleet.forget(peer)
    fleet.start_master()

    # Everybody has left, and the master ended. It refuses an older state and shows both hashes.
    second = fleet.found(2)
    for peer in second:
        peer.call("set_state", value=4.0, revision=4)
    refused = joint(second, "sync")
    assert {one["error"] for one in refused} == {"SharedStateError"}
    message = str(refused[0]["message"])
    assert f"revision 4 and hash {checkpoint}" in message, message
    assert "revision 5 and hash" in message
    assert f"--resume-from 4:{checkpoint}" in message
    # It accepts the run's last state.
    for peer in second:
        peer.call("set_state", value=5.0, revision=5)
    assert all(one["ok"] for one in joint(second, "sync"))

    # The operator can return to the older state.
    for peer in list(second):
        fleet.forget(peer)
    fleet.kill_master()
    fleet.start_master("--resume-from", f"4:{checkpoint}")
    third = fleet.found(2)
    for peer in third:
        peer.call("set_state", value=4.0, revision=4)
    assert all(one["ok"] for one in joint(third, "sync"))


def test_without_a_journal_it_is_another_run(tmp_path: Path) -> None:
    fleet = Fleet(environment={"PCCL_PEER_TIMEOUT": str(PEER_TIMEOUT)})
    try:
        peers = fleet.found(2)
        fleet.kill_master()
        fleet.start_master()
        errors = joint(peers, "update_topology")
        assert {one["error"] for one in errors} == {"MasterLostError"}
        assert "join again" in str(errors[0]["message"])
    finally:
        fleet.close()


def test_one_journal_has_one_master(fleet: Fleet) -> None:
    second = subprocess.run(
        [PCCL, "master", "--port", "0", "--journal", str(fleet.journal)],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert second.returncode == 1
    assert f"is in use by another master (process {fleet.master.pid})" in second.stderr


def test_a_full_disk_ends_the_master_and_not_the_run(fleet: Fleet) -> None:
    peers = fleet.found(2)
    assert fleet.journal is not None
    full = fleet.journal.stat().st_size + 8
    resource.prlimit(fleet.master.pid, resource.RLIMIT_FSIZE, (full, full))
    for peer in peers:
        peer.call("set_state", value=1.0, revision=1)
        peer.tell("sync")
    assert fleet.master.wait(timeout=10) == 1
    fleet.master.end()
    fleet.start_master()  # the disk has room again
    assert all(peer.answer()["ok"] for peer in peers)


def test_a_stopped_master_is_not_a_dead_one(fleet: Fleet) -> None:
    peers = fleet.found(2)
    fleet.master.send_signal(signal.SIGSTOP)
    begin_all_reduce(peers)
    time.sleep(PEER_TIMEOUT / 3)  # the length of the fault
    fleet.master.send_signal(signal.SIGCONT)
    check_sum(peers)
