"""Many adoptions of another plan while all-reduces are in flight, with real processes."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
import work_plan as work
from conftest import MakeWorld
from world import Master, plain_text

RANKS = 4
CALLS = 200
WELCOME, VOTE, LINK_RATES = 3, 19, 32  # types of messages (csrc/protocol/fields.h)
FAST, SLOW = 200_000_000, 2_000_000  # bytes per second
CONNECTED_S = 30.0  # a proxy that is idle for this time ends


class RatesProxy:
    """A proxy before the master, which reports the traffic of each member's links.

    Before each Vote of a member, it adds the member's LinkRates: one order of a ring is fast, and
    all other paths are slow. The number of the call decides which one it is, so all members agree,
    and each call has another one than the call before. Nothing on loopback has such rates.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._peers: set[int] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """End all of it; the connections have ended with the peers."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(CONNECTED_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target, CONNECTED_S)
                client.settimeout(CONNECTED_S)
                peer: list[int] = []
                ways: list[tuple[socket.socket, socket.socket, Callable[[bytes], bytes]]] = [
                    (client, server, lambda message, peer=peer: self._to_master(message, peer)),
                    (server, client, lambda message, peer=peer: self._to_peer(message, peer)),
                ]
                for way in ways:
                    self._threads.append(threading.Thread(target=_carry, args=way))
                    self._threads[-1].start()

    def _to_peer(self, message: bytes, peer: list[int]) -> bytes:
        if _type_of(message) == WELCOME:
            peer.append(struct.unpack_from("<Q", message, 6)[0])
            self._peers.add(peer[0])
        return message

    def _to_master(self, message: bytes, peer: list[int]) -> bytes:
        if _type_of(message) != VOTE:
            return message
        (number,) = struct.unpack_from("<I", message, 6)
        first, *others = sorted(self._peers)
        orders = list(itertools.permutations(others))
        order = [first, *orders[number % len(orders)]]
        following = order[(order.index(peer[0]) + 1) % len(order)]
        content = struct.pack("<HI", LINK_RATES, len(others))
        for other in order:
            if other != peer[0]:
                content += struct.pack("<QQ", other, FAST if other == following else SLOW)
        return struct.pack("<I", len(content)) + content + message


def _type_of(message: bytes) -> int:
    return int.from_bytes(message[4:6], "little")


def _carry(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
    """Pass on message by message, until one side ends."""
    held = b""
    with source, target, contextlib.suppress(OSError):
        while more := source.recv(1 << 16):
            held += more
            out = b""
            while len(held) >= 4 and len(held) >= (size := 4 + int.from_bytes(held[:4], "little")):
                out += change(held[:size])
                held = held[size:]
            target.sendall(out)


@pytest.fixture
def proxy(master: Master) -> Iterator[RatesProxy]:
    made = RatesProxy(("127.0.0.1", master.port))
    yield made
    made.close()


@plain_text
@pytest.mark.timeout(180)
def test_adoptions_disturb_no_all_reduce(make_world: MakeWorld, proxy: RatesProxy) -> None:
    url = f"pccl://127.0.0.1:{proxy.port}/adoptions?min_peers={RANKS}"
    world = make_world(RANKS, init_method=url)
    by_rank = world.run(work.adoptions, CALLS, timeout=150)
    world.close()
    for seen in by_rank:
        assert seen == by_rank[0], "all members have the same sums, and the same plans"
    assert by_rank[0]["adopted"] >= CALLS - 1, "the first ring may be that of the ranks"
    assert len(by_rank[0]["rings"]) == 6, "each ring of four members"
