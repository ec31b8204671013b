"""Links that break between live peers: nothing is lost, and no caller notices."""

from __future__ import annotations

import functools
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from fleet import COUNT, Fleet, begin_all_reduce, check_sum

PEER_TIMEOUT = 4.0


def reset_connections(port: int) -> None:
    """End every TCP connection that was made to this port of 127.0.0.1, as a reset would."""
    command = ["ss", "--kill", "--tcp", "dst", "127.0.0.1", "dport", "=", str(port)]
    subprocess.run(command, check=True, capture_output=True, timeout=20)


@functools.cache
def connections_can_be_reset() -> bool:
    """Return whether this machine has the program, permits it, and its kernel supports it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(1)
            try:
                reset_connections(port)
                return client.recv(1) == b""
            except ConnectionError:
                return True
            except (OSError, subprocess.SubprocessError):
                return False


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(environment={"PCCL_PEER_TIMEOUT": str(PEER_TIMEOUT)})
    yield fleet
    fleet.close()


def test_links_that_are_reset(fleet: Fleet) -> None:
    if not connections_can_be_reset():
        pytest.skip("SKIPPED: needs `ss --kill`, which resets nothing on this machine")
    chance = random.Random(20261121)
    peers = fleet.found(3)
    begin_all_reduce(peers)
    check_sum(peers)
    before = [peer.call("info") for peer in peers]
    for _ in range(10):
        begin_all_reduce(peers)
        time.sleep(chance.uniform(0, 0.02))  # no outcome may depend on the moment of the fault
        reset_connections(chance.choice(before)["port"])
        check_sum(peers)
    after = [peer.call("info") for peer in peers]
    assert [info["world"] for info in after] == [3, 3, 3]
    assert after[0]["connections"] != before[0]["connections"], "no link has been broken"


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("resets", [False, True])
def test_a_peer_that_stops_for_a_moment(fleet: Fleet, victim: int, resets: bool) -> None:
    """The pause is longer than links may be silent, but no peer is lost: the others wait for it."""
    if resets and not connections_can_be_reset():
        pytest.skip("SKIPPED: needs `ss --kill`, which resets nothing on this machine")
    peers = fleet.found(3)
    begin_all_reduce(peers)
    check_sum(peers)
    ports = [peer.call("info")["port"] for peer in peers]
    stopped, others = peers[victim], [peer for peer in peers if peer is not peers[victim]]
    for peer in others:
        peer.tell("all_reduce", count=COUNT, seed=1)
        assert "posted" in peer.answer()
    signal.pidfd_send_signal(stopped.pidfd, signal.SIGSTOP)
    for port in ports if resets else []:
        reset_connections(port)
    # The pause is the fault under test. It is longer than half of PEER_TIMEOUT, the limit for
    # links, and shorter than all of it, the limit for members.
    time.sleep(0.75 * PEER_TIMEOUT)
    signal.pidfd_send_signal(stopped.pidfd, signal.SIGCONT)
    stopped.tell("all_reduce", count=COUNT, seed=1)
    assert "posted" in stopped.answer()
    check_sum(peers)
    assert peers[0].call("info")["world"] == 3
