"""Reconfigurable groups of processes that are killed or stopped while others wait for them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from own_network import own_network
from reconfigurable import Peer, needs_reconfigure
from world import plain_text, wait_until

pytestmark = needs_reconfigure

LISTEN = "0A"  # man 5 proc: a state in /proc/net/tcp

PROGRAM = """
import json, sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
import pccl_backend

store = HashStore()
if len(sys.argv) > 1:
    host, owner = sys.argv[1:]
    store = dist.TCPStore(host, 29500, is_master=owner == "owner", wait_for_workers=False)
dist.init_process_group(
    "pccl", store=store, rank=0, world_size=1, timeout=timedelta(seconds=60),
    enable_reconfigure=True,
)
hook_calls = []
dist.group.WORLD.register_abort_hook(1, lambda: hook_calls.append(1))
tensor = torch.ones(1000)
for line in sys.stdin:
    verb, *rest = json.loads(line)
    answer = "ok"
    try:
        if verb == "handle":
            answer = dist._get_reconfigure_handle()
        elif verb == "reconfigure":
            dist._reconfigure(*rest, timeout=timedelta(seconds=60)).wait()
        elif verb == "reduce":
            tensor.fill_(1.0)
            dist.all_reduce(tensor)
            answer = tensor[0].item()
        elif verb == "abort":
            dist.group.WORLD.abort()
        elif verb == "hook_calls":
            answer = len(hook_calls)
        elif verb == "encrypted":
            answer = pccl_backend.run_info().encrypted
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
"""


def start(script: Path, place: Sequence[str] = (), *store: str) -> Peer:
    """Start a process; `place` is the prefix of its command."""
    return Peer([*place, sys.executable, str(script), *store], PCCL_PEER_TIMEOUT="2")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "peer.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def peers(script: Path) -> Iterator[list[Peer]]:
    made = [start(script) for _ in range(3)]
    yield made
    for peer in made:
        peer.process.end()


def meet(peers: list[Peer], uuid: int) -> None:
    handles = [peer.ask("handle") for peer in peers]
    for peer in peers:
        peer.send("reconfigure", uuid, handles)
    assert [peer.answer() for peer in peers] == ["ok"] * len(peers)
    for peer in peers:
        peer.send("reduce")
    assert [peer.answer() for peer in peers] == [float(len(peers))] * len(peers)


def listeners(peer: Peer) -> int:
    """Return the number of ports on which the process listens."""
    proc = Path(f"/proc/{peer.process.pid}")
    sockets = {os.readlink(file) for file in (proc / "fd").iterdir() if file.is_symlink()}
    rows = (row.split() for row in (proc / "net/tcp").read_text().splitlines()[1:])
    return sum(row[3] == LISTEN and f"socket:[{row[9]}]" in sockets for row in rows)


def wait_until_let_in(peer: Peer, before: int) -> None:
    """Return when the host has let the peer into the run: then it opens a port for the others."""
    assert wait_until(lambda: listeners(peer) > before, timeout_s=60.0)


def test_survivors_go_on_without_a_killed_process_also_without_the_host(peers: list[Peer]) -> None:
    meet(peers, 1)
    peers[0].kill()  # the host of the run
    assert peers[1].ask("reduce").endswith("reconfigure without it")
    meet(peers[1:], 2)
    peers[2].kill()
    meet(peers[1:2], 3)


def test_the_loss_of_the_host_runs_no_abort_hook(peers: list[Peer]) -> None:
    """A hook of torch writes a dump, which takes seconds; the group only needs a reconfigure."""
    meet(peers, 1)
    peers[0].kill()  # the host of the run
    assert peers[1].ask("reduce").endswith("reconfigure without it")
    assert peers[1].ask("hook_calls") == 0
    peers[1].ask("abort")
    assert peers[1].ask("hook_calls") == 1


def test_a_process_that_is_killed_while_it_waits_ends_the_call_of_the_others(
    peers: list[Peer],
) -> None:
    handles = [peer.ask("handle") for peer in peers]
    before = listeners(peers[1])
    for peer in peers[:2]:
        peer.send("reconfigure", 1, handles)
    wait_until_let_in(peers[1], before)
    peers[1].kill()
    answer = peers[0].answer()
    assert answer.startswith("PeerLostError: reconfigure (uuid 1): rank 1, 127.0.0.1:"), answer
    assert answer.endswith("was lost meanwhile")
    assert peers[2].ask("reconfigure", 1, handles) == answer, "who comes late gets the same reason"
    meet([peers[0], peers[2]], 2)


def test_a_process_that_was_killed_before_its_call_ends_the_call_of_the_others(
    peers: list[Peer],
) -> None:
    handles = [peer.ask("handle") for peer in peers]
    peers[2].kill()
    for peer in peers[:2]:
        peer.send("reconfigure", 1, handles)
    for peer in peers[:2]:
        answer = peer.answer()
        assert answer.startswith("PeerLostError: reconfigure (uuid 1): rank 2, 127.0.0.1:"), answer
        assert "is not there (connect to 127.0.0.1:" in answer
    meet(peers[:2], 2)


def test_a_process_that_is_stopped_before_its_call_ends_the_call_after_the_peer_timeout(
    peers: list[Peer],
) -> None:
    handles = [peer.ask("handle") for peer in peers]
    os.kill(peers[2].process.pid, signal.SIGSTOP)
    for peer in peers[:2]:
        peer.send("reconfigure", 1, handles)
    for peer in peers[:2]:
        assert "is not there (no answer for 2 s)" in peer.answer()
    meet(peers[:2], 2)


def test_a_host_that_is_killed_while_others_wait_ends_their_calls(peers: list[Peer]) -> None:
    handles = [peer.ask("handle") for peer in peers]
    for peer in peers[1:]:
        peer.send("reconfigure", 1, handles)
    peers[0].kill()  # whether they wait already, or find nobody there
    for peer in peers[1:]:
        answer = peer.answer()
        assert answer.startswith("PeerLostError: reconfigure (uuid 1): rank 0, 127.0.0.1:"), answer
    meet(peers[1:], 2)


def test_a_host_that_is_stopped_ends_the_calls_after_the_peer_timeout(peers: list[Peer]) -> None:
    handles = [peer.ask("handle") for peer in peers]
    os.kill(peers[0].process.pid, signal.SIGSTOP)
    for peer in peers[1:]:
        peer.send("reconfigure", 1, handles)
    for peer in peers[1:]:
        assert "PeerLostError: reconfigure (uuid 1): rank 0, 127.0.0.1:" in peer.answer()
    meet(peers[1:], 2)


@plain_text
def test_processes_on_several_machines_meet_encrypted_with_nothing_set(script: Path) -> None:
    with own_network() as network:
        hosts = [network.host() for _ in range(3)]
        peers = []
        for host in hosts:
            owner = "owner" if host is hosts[0] else "guest"
            place = ["nsenter", f"--net={host.namespace}"]
            peers.append(start(script, place, hosts[0].address, owner))
        try:
            meet(peers, 1)
            assert [peer.ask("encrypted") for peer in peers] == [True] * 3
            meet([peers[2], peers[1]], 2)
            meet([peers[1], peers[0], peers[2]], 3)
        finally:
            for peer in peers:
                peer.process.end()
