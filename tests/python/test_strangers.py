"""Strangers at the ports of a run that is secured: they learn nothing, and change nothing."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet, Remote, begin_all_reduce, check_sum
from world import free_port, plain_text

PEER_TIMEOUT_S = 4.0
CLOSED_S = 20.0  # a generous limit; a silent connection is closed after 5 s
SILENT = b""
GARBAGE = bytes(range(256)) * 8
HTTP = b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"
# A kHello of a lane in plain text, and the first bytes of a TLS 1.2 ClientHello.
PLAIN_LANE = b"PcL1\x01\x00\x00\x00".ljust(64, b"\x01")
OTHER_TLS = bytes.fromhex("160301002a010000260303") + bytes(36)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(secured=True)
    yield fleet
    fleet.close()


def reduce(peers: list[Remote]) -> None:
    begin_all_reduce(peers)
    check_sum(peers)


def ports_of(pid: int) -> list[int]:
    """Return the TCP ports of a process that listens."""
    own = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            own.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    ports = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and f"socket:[{cells[9]}]" in own:
                ports.append(int(cells[1].rpartition(":")[2], 16))
    return ports


def answer_to(port: int, said: bytes) -> bytes:
    """Say something to a port, and return all that it answers until it closes the connection."""
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=CLOSED_S) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(said)
        while part := connection.recv(65536):
            answer += part
    return answer


@pytest.mark.parametrize("said", [SILENT, GARBAGE, HTTP, PLAIN_LANE, OTHER_TLS])
def test_whatever_a_stranger_says_is_closed(fleet: Fleet, said: bytes) -> None:
    peers = fleet.found(2, peer_timeout=PEER_TIMEOUT_S)
    reduce(peers)
    for peer in peers:
        for port in ports_of(peer.pid):
            answer = answer_to(port, said)
            assert len(answer) <= 7, f"at most a TLS alert: {answer!r}"
    answer = answer_to(int(fleet.address.rpartition(":")[2]), said)
    assert len(answer) <= 7 or b"this master admits only peers that have a token" in answer
    assert b"test" not in answer, "the name of the run"
    reduce(peers)
    assert [peer.call("info")["world"] for peer in peers] == [2, 2]


def test_tls_without_the_secret_is_refused(fleet: Fleet) -> None:
    """Not even a certificate is shown to a TLS client, and none is asked for."""
    peers = fleet.found(2, peer_timeout=PEER_TIMEOUT_S)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for port in [*ports_of(peers[0].pid), int(fleet.address.rpartition(":")[2])]:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=CLOSED_S) as connection,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(connection)
    reduce(peers)


class Recorder:
    """A proxy that passes a connection on, and keeps what its client has sent."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = target
        self.port: int = self._listener.getsockname()[1]
        self.sent: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        number = len(self.sent)
        self.sent.append(b"")
        with client, socket.create_connection(self._target) as server:
            ends = {client: server, server: client}
            with contextlib.suppress(OSError):
                while True:
                    for end in select.select(list(ends), [], [])[0]:
                        part = end.recv(65536)
                        if not part:
                            return
                        if end is client:
                            self.sent[number] += part
                        ends[end].sendall(part)

    def close(self) -> None:
        self._listener.close()


def test_bytes_that_are_sent_again_open_nothing(fleet: Fleet) -> None:
    """They hold a valid proof of a token, but the answer can be read only with the token."""
    host, _, port = fleet.address.rpartition(":")
    recorder = Recorder((host, int(port)))
    direct = fleet.address
    fleet.address = f"127.0.0.1:{recorder.port}"
    peers = fleet.found(2, peer_timeout=PEER_TIMEOUT_S)
    fleet.address = direct
    reduce(peers)
    captured = [sent for sent in recorder.sent if sent]
    assert len(captured) == 2
    for sent in captured:
        assert sent.startswith(b"\x16\x03\x01")
        for part in (sent, sent[: len(sent) // 2], sent[:300] + b"\x00" + sent[301:], sent[:-1]):
            answer = answer_to(int(port), part)
            assert b"test" not in answer
    for peer in peers:
        peer.tell("update_topology")
    assert [peer.answer()["world"] for peer in peers] == [2, 2], "nobody has joined"
    reduce(peers)
    recorder.close()


def held(ports: list[int], said: bytes, count: int) -> list[socket.socket]:
    """Return connections that have sent this, and that stay open on our side."""
    made = []
    for number in range(count):
        made.append(socket.create_connection(("127.0.0.1", ports[number % len(ports)]), CLOSED_S))
        with contextlib.suppress(ConnectionError):
            made[-1].sendall(said)
    return made


@pytest.mark.parametrize("said", [SILENT, PLAIN_LANE], ids=["silent", "plain"])
def test_lanes_of_strangers_touch_no_link(fleet: Fleet, said: bytes) -> None:
    """They neither receive chunks nor hold up an operation, and their end breaks no link."""
    peers = fleet.found(2, peer_timeout=PEER_TIMEOUT_S)
    reduce(peers)
    before = [peer.call("info")["connections"] for peer in peers]
    ports = [port for peer in peers for port in ports_of(peer.pid)]
    connections = held(ports, said, 100)
    for _ in range(3):
        reduce(peers)
        for connection in held(ports, said, 100):
            connection.close()
    for connection in connections:
        with contextlib.suppress(ConnectionError):
            assert len(connection.recv(1 << 16)) <= 7, "at most a TLS alert"
        connection.close()
    reduce(peers)
    assert [peer.call("info")["connections"] for peer in peers] == before


def spoken_by_a_newcomer(port: int) -> bytes:
    """Return the messages of a peer that listens on `port` to an unsecured master: Hello,
    Register."""
    plain = Fleet()
    try:
        host, _, at = plain.address.rpartition(":")
        recorder = Recorder((host, int(at)))
        plain.address = f"127.0.0.1:{recorder.port}"
        newcomer = plain.spawn()
        outcome = newcomer.call("join", url=plain.url(port_range=f"{port}-{port}"))
        assert outcome["ok"], outcome
        recorder.close()
        return recorder.sent[0]
    finally:
        plain.close()


@plain_text
def test_a_stranger_neither_joins_nor_sends_members_to_an_address(fleet: Fleet) -> None:
    """Its Register names the address of somebody else, which members would dial."""
    peers = fleet.found(2, peer_timeout=PEER_TIMEOUT_S)
    port = free_port()
    said = spoken_by_a_newcomer(port)
    assert port.to_bytes(2, "little") in said
    with socket.create_server(("127.0.0.1", port)) as elsewhere:
        answer = answer_to(int(fleet.address.rpartition(":")[2]), said)
        assert b"this master admits only peers that have a token" in answer
        assert b"test" not in answer
        for _ in range(2):
            for peer in peers:
                peer.tell("update_topology")
            assert [peer.answer()["world"] for peer in peers] == [2, 2]
            reduce(peers)
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


class Wire:
    """All bytes that travel over loopback while it is open. Needs root."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self.bytes = bytearray()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                self.bytes += self._socket.recv(1 << 17)
        # Loopback delivers a packet while it is sent, so that all of them are here by now.
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.bytes += self._socket.recv(1 << 17)

    def close(self) -> None:
        self._over.set()
        self._thread.join(CLOSED_S)
        self._socket.close()


@pytest.mark.skipif(
    os.geteuid() != 0, reason="SKIPPED: only root may capture the packets of other processes"
)
@pytest.mark.parametrize("secured", [True, pytest.param(False, marks=plain_text)])
def test_captured_traffic_holds_neither_tensors_nor_names(secured: bool) -> None:
    fleet = Fleet(secured=secured)
    wire = Wire()
    try:
        peers = fleet.found(2, run="secret-run-name", name="secret-peer-name")
        for peer in peers:
            # Each sum is 64 times the seed, so that the tensors hold the same float everywhere.
            peer.tell("all_reduce", count=1 << 16, seed=77, tag="secret-tag")
        for peer in peers:
            assert "posted" in peer.answer()
        check_sum(peers)
    finally:
        wire.close()
        fleet.close()
    import torch

    floats = (torch.arange(64, dtype=torch.float32) + 77).numpy().tobytes()
    for secret in (b"secret-run-name", b"secret-peer-name", b"secret-tag", floats):
        assert (secret in wire.bytes) != secured, secret[:20]
    if secured:
        assert b"pccl1" not in wire.bytes
        assert len(wire.bytes) > 1 << 18
