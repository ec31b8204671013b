"""A run whose master has a keyring: peers prove a token, and everything is encrypted."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet, Remote, begin_all_reduce, check_sum, wait_joined
from world import plain_text, run_program

PCCL = [sys.executable, "-m", "pccl_backend.cli"]
PEER_TIMEOUT_S = 4.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(journal=tmp_path / "journal", secured=True)
    yield fleet
    fleet.close()


def reduce(peers: list[Remote]) -> None:
    begin_all_reduce(peers)
    check_sum(peers)


def revoke(fleet: Fleet, who: str) -> str:
    command = [*PCCL, "token", "revoke", who, "--keyring", fleet.keyring]
    done = subprocess.run(
        [*command, "--journal", fleet.journal],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_losses_joins_and_shared_state(fleet: Fleet) -> None:
    peers = fleet.found(3, peer_timeout=PEER_TIMEOUT_S)
    reduce(peers)
    for seed, peer in enumerate(peers):
        peer.tell("all_reduce", count=4 << 20, seed=seed)
    for peer in peers:
        assert "posted" in peer.answer()
    peers[1].kill()
    left = [peers[0], peers[2]]
    for peer in left:
        outcome = peer.answer()
        assert outcome["ok"] or outcome["untouched"], outcome
    for peer in left:
        peer.tell("update_topology")
    assert [peer.answer()["world"] for peer in left] == [2, 2]
    newcomer = fleet.spawn()
    newcomer.tell("join", url=fleet.url(min_peers=2, peer_timeout=PEER_TIMEOUT_S))
    peers = fleet.admit(left, [newcomer])
    for peer in peers:
        peer.tell("set_state", value=float(len(peers)), revision=1)
        assert peer.answer()["ok"]
        peer.tell("sync")
    assert all(peer.answer()["ok"] for peer in peers)
    reduce(peers)


def test_a_restarted_master_makes_other_keys(fleet: Fleet) -> None:
    """Links that are up stay; a link that is made later uses a new key."""
    peers = fleet.found(2, peer_timeout=PEER_TIMEOUT_S)
    reduce(peers)
    for _ in range(2):
        fleet.kill_master()
        fleet.start_master()
        reduce(peers)
    newcomer = fleet.spawn()
    newcomer.tell("join", url=fleet.url(min_peers=2, peer_timeout=PEER_TIMEOUT_S))
    reduce(fleet.admit(peers, [newcomer]))


def test_a_revoked_token_removes_its_peers_and_no_others(fleet: Fleet) -> None:
    fleet.kill_master()
    mallorys = fleet.put_token(fleet.make_token("mallory"), "mallorys")
    fleet.start_master()  # it reads the new token
    peers = fleet.found(2, peer_timeout=PEER_TIMEOUT_S)
    reduce(peers)
    guest = fleet.spawn()
    url = fleet.url(min_peers=2, peer_timeout=PEER_TIMEOUT_S)
    guest.tell("join", url=url, token=str(mallorys))
    members = fleet.admit(peers, [guest])
    reduce(members)
    assert "1 peer" in revoke(fleet, "mallory")
    outcome = guest.call("update_topology")
    assert (outcome["ok"], outcome["error"]) == (False, "KickedError"), outcome
    assert 'its token, of "mallory", was revoked' in outcome["message"]
    for peer in peers:
        peer.tell("update_topology")
    assert [peer.answer()["world"] for peer in peers] == [2, 2]
    reduce(peers)


def reduce_until(peers: list[Remote], log: Path, says: str, count: int = 1) -> None:
    """Go on with all-reduces until a log has a text this often."""
    deadline = time.monotonic() + 30
    while log.read_text().count(says) < count:
        assert time.monotonic() < deadline, log.read_text()
        reduce(peers)


def test_a_token_is_replaced_while_the_run_goes_on(tmp_path: Path) -> None:
    log, own_log = tmp_path / "master.log", tmp_path / "peer.log"
    with contextlib.closing(Fleet(secured=True, journal=tmp_path / "j", master_log=log)) as fleet:
        peers = [fleet.spawn(log=own_log), fleet.spawn()]
        for peer in peers:
            peer.tell("join", url=fleet.url(min_peers=2, peer_timeout=PEER_TIMEOUT_S))
        wait_joined(peers, 2)
        old = fleet.token.read_text().split(".")[1]
        fleet.token.write_text("half a tok")  # for a moment the file is wrong
        reduce_until(peers, own_log, "is no token")
        assert "This peer keeps the token that it has" in own_log.read_text()
        fleet.new_token("fleet")  # of the same name, in the same file
        new = fleet.token.read_text().split(".")[1]
        reduce_until(peers, log, f"shows the token {new} now, and no longer {old}", count=2)
        assert "0 peers removed" in revoke(fleet, old)
        reduce(peers)
        for peer in peers:
            peer.tell("update_topology")
        assert [(one["world"], one["joined"]) for one in (peer.answer() for peer in peers)] == [
            (2, 0),
            (2, 0),
        ]
        reduce(peers)
        said = log.read_text()
        assert "lost" not in said, said
        # Peer and master look at their files once a second, in any order. If the peer looks first,
        # the master refuses its new token once, and takes it at the next look.
        own = [line for line in own_log.read_text().splitlines() if "warning" in line]
        others = [line for line in own if "the new token of this peer" not in line]
        assert len(others) == 1, own


def test_a_token_for_another_run_does_not_open_this_one(fleet: Fleet) -> None:
    fleet.kill_master()
    fleet.new_token("bob", "--run", "theirs")
    fleet.start_master()
    for run in ("ours", "theirs"):
        peer = fleet.spawn()
        outcome = peer.call("join", url=fleet.url(run))
        if run == "theirs":
            assert outcome["ok"], outcome
            continue
        assert outcome["error"] == "AuthenticationError"
        assert 'of "bob" is for other runs' in outcome["message"]


JOIN = """
import sys
import torch.distributed as dist
try:
    dist.init_process_group("pccl", init_method=sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""


@plain_text
@pytest.mark.parametrize("case", ["none", "unknown", "wrong", "plain master"])
def test_without_the_right_token(fleet: Fleet, tmp_path: Path, case: str) -> None:
    own = tmp_path / "token"
    own.touch(0o600)
    prefix, name, secret = fleet.token.read_text().strip().split(".")
    changed = ("B" if secret[0] == "A" else "A") + secret[1:]
    own.write_text(
        {
            "unknown": f"{prefix}.zzzzzzzz.{secret}",
            "wrong": f"{prefix}.{name}.{changed}",
        }.get(case, f"{prefix}.{name}.{secret}")
    )
    if case == "plain master":
        fleet.kill_master()
        fleet.secrets, secrets = None, fleet.secrets
        fleet.start_master()
        fleet.secrets = secrets
    environment = {} if case == "none" else {"PCCL_SECRET_FILE": str(own)}
    # The peer timeout is far beyond the limit of the program: it asks twice, and gives up.
    url = fleet.url(peer_timeout=200)
    done = run_program([sys.executable, "-c", JOIN, url], environment=environment)
    assert done.stdout.startswith("AuthenticationError"), done.stdout + done.stderr
    says = {
        "none": "this master admits only peers that have a token",
        "unknown": "does not know the token zzzzzzzz",
        "wrong": f"has another secret for the token {name}",
        "plain master": "speaks plain text, so it did not get the token",
    }
    assert says[case] in done.stdout
    assert changed not in done.stdout + done.stderr
    assert secret not in done.stdout + done.stderr


@plain_text
def test_a_peer_without_a_token_speaks_to_no_other_machine(tmp_path: Path) -> None:
    """A peer keeps the name of its run secret, unless its settings trust the network."""
    address = own_address()
    with socket.create_server((address, 0)) as listener:
        listener.settimeout(30)
        url = f"pccl://{address}:{listener.getsockname()[1]}/secret-name?peer_timeout=3"
        done = run_program([sys.executable, "-c", JOIN, url])
        assert done.stdout.startswith("AuthenticationError"), done.stdout + done.stderr
        assert "this process has no token, and the master at" in done.stdout
        assert "PCCL_INSECURE=1" in done.stdout
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == b""


def own_address() -> str:
    """Return an address of this machine that is not loopback; skip if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("SKIPPED: this machine has no address but loopback")
        return str(probe.getsockname()[0])
