"""The networks for other tests work as described: NAT, closed ports, paths that drop packets."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_network import own_network
from programs import Program
from routers import Host, Network, Unasked

PORT = 5000
ANSWER_S = 10.0  # limit of an answer
SILENCE_S = 0.7  # after this time nothing will arrive
LARGE = bytes(200_000)


@pytest.fixture
def network() -> Iterator[Network]:
    with own_network() as made:
        yield made


def listen(host: Host, port: int = PORT) -> socket.socket:
    family = socket.AF_INET6 if host.address_6 else socket.AF_INET
    with host.entered():
        listener = socket.create_server(
            ("", port), family=family, dualstack_ipv6=bool(host.address_6)
        )
    listener.settimeout(ANSWER_S)
    return listener


def dial(host: Host, address: str, port: int = PORT, *, within: float = ANSWER_S) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with host.entered():
        stream = socket.socket(family, socket.SOCK_STREAM)
    stream.settimeout(within)
    try:
        stream.connect((address, port))
    except BaseException:
        stream.close()
        raise
    return stream


def check_unreached(host: Host, address: str, unasked: Unasked, port: int = PORT) -> None:
    if unasked is Unasked.REJECT:
        with pytest.raises(ConnectionRefusedError):
            dial(host, address, port)
    else:
        with pytest.raises(TimeoutError):
            dial(host, address, port, within=SILENCE_S)


def carries(sender: socket.socket, receiver: socket.socket, size: int) -> bool:
    """Return whether `size` bytes arrive before the silence limit."""
    sender.settimeout(SILENCE_S)
    receiver.settimeout(SILENCE_S)
    try:
        sender.sendall(LARGE[:size])
        while size > 0:
            size -= len(receiver.recv(1 << 16))
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("unasked", [Unasked.DROP, Unasked.REJECT])
def test_a_home_shows_one_address_and_is_closed(network: Network, unasked: Unasked) -> None:
    server, home = network.host(), network.home(unasked)
    inside = home.host()
    assert inside.address.startswith("192.168.1.")
    with listen(server) as listener, dial(inside, server.address):
        stream, (seen, _) = listener.accept()
        stream.close()
    assert seen == home.address
    with listen(inside):
        check_unreached(server, home.address, unasked)


@pytest.mark.parametrize("unasked", [Unasked.DROP, Unasked.REJECT])
def test_a_firewall_lets_in_what_was_asked_for(network: Network, unasked: Unasked) -> None:
    server, closed = network.host(), network.host(unasked)
    with listen(server) as listener, dial(closed, server.address) as ours:
        theirs, (seen, _) = listener.accept()
        with theirs:
            assert seen == closed.address
            assert carries(ours, theirs, 1000)
            assert carries(theirs, ours, 1000)
    with listen(closed):
        check_unreached(server, closed.address, unasked)


def test_a_forwarded_port(network: Network) -> None:
    stranger, home = network.host(), network.home()
    first, second = home.host(), home.host()
    home.forward(40001, second, 48201)
    with listen(first, 48201), listen(second, 48201) as listener:
        with dial(stranger, home.address, 40001) as ours:
            theirs, (seen, _) = listener.accept()
            with theirs:
                assert seen == stranger.address
                assert carries(ours, theirs, 1000)
                assert carries(theirs, ours, 1000)
        check_unreached(stranger, home.address, Unasked.DROP, 48201)


@pytest.mark.parametrize("unasked", [Unasked.DROP, Unasked.REJECT])
def test_no_hairpin(network: Network, unasked: Unasked) -> None:
    """Neighbours reach each other by their inside addresses, but not by the outside address."""
    home = network.home(unasked)
    one, other = home.host(), home.host()
    home.forward(PORT, other, PORT)
    with listen(other), dial(one, other.address):
        check_unreached(one, home.address, unasked)


def test_homes_have_the_same_addresses_inside(network: Network) -> None:
    ours, theirs = network.home().host(), network.home().host()
    assert ours.address == theirs.address
    with listen(theirs):
        check_unreached(ours, theirs.address, Unasked.REJECT)  # that is this host itself


def test_ipv6_passes_where_ipv4_does_not(network: Network) -> None:
    homes = [network.home(ipv6=True), network.home(ipv6=True)]
    one, other = (home.host() for home in homes)
    with listen(other) as listener, dial(one, other.address_6):
        stream, (seen, *_) = listener.accept()
        stream.close()
        assert seen == one.address_6
        check_unreached(one, homes[1].address, Unasked.DROP)


@pytest.mark.parametrize("told", [True, False])
def test_a_narrow_path(network: Network, told: bool) -> None:
    """Packets that are too big vanish. If the sender is notified, it sends smaller ones."""
    west, east = network.offices(1300, told=told)
    one, other = west.host(), east.host()
    with listen(other) as listener, dial(one, other.address) as ours:
        theirs, _ = listener.accept()
        with theirs:
            assert carries(ours, theirs, 1000)
            assert carries(theirs, ours, 1000)
            assert carries(ours, theirs, len(LARGE)) is told
            assert carries(theirs, ours, len(LARGE)) is told


def test_congestion_control_is_cubic(network: Network) -> None:
    host = network.host()
    with host.entered():
        stream = socket.socket()
    with stream:
        used = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    assert used.rstrip(b"\0") == b"cubic"


def test_entering_ends(network: Network) -> None:
    """After the block, this thread is back in its namespace, even after an error."""

    def here() -> str:
        return os.readlink("/proc/thread-self/ns/net")

    def fail_inside() -> None:
        with host.entered():
            assert here() != before
            raise KeyError

    host, before = network.host(), here()
    with pytest.raises(KeyError):
        fail_inside()
    assert here() == before


KEEPS_A_NETWORK = """
import signal
from routers import Network
network = Network()
home = network.home()
print(home.pid, home.host().pid, network.host().pid, flush=True)
signal.pause()
"""


def test_nothing_stays_behind(network: Network) -> None:
    """This holds even if the process that made a network is killed."""
    with Program([sys.executable, "-c", KEEPS_A_NETWORK], cwd=Path(__file__).parent) as maker:
        holders = [os.pidfd_open(int(pid)) for pid in maker.line(ANSWER_S).split()]
        assert len(holders) == 3
        maker.send_signal(signal.SIGKILL)
        for holder in holders:
            assert select.select([holder], [], [], ANSWER_S)[0], "a namespace is left"
            os.close(holder)
    devices = {name for _, name in socket.if_nameindex()}
    assert not {name for name in devices if name.startswith("port")}
