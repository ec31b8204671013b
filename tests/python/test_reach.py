"""Any machine can join: firewalls, NAT, forwarded ports, IPv6, paths that drop large packets.

The networks are made of namespaces (routers.py).
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, Remote
from own_network import own_network
from routers import Host, Network, Unasked
from test_links import connections_can_be_reset

PEER_TIMEOUT_S = 2.0
JOIN_S = PEER_TIMEOUT_S + 2  # by then a peer that can be linked is a member
REFUSE_S = PEER_TIMEOUT_S + 5  # by then a peer that cannot be linked is refused
STEP_S = 4 * PEER_TIMEOUT_S  # limit of an operation
SMALL, LARGE = 1000, 1 << 20  # elements of a tensor


class NotReachedError(AssertionError):
    """A peer could not be linked in time."""


class Run:
    """A run with a master in the test's network, and its members in order of arrival."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self._fleet, self._folder = fleet, folder
        self._seed = 0
        self.slowest = 0.0  # seconds of the members' longest call while another peer waited
        self.members: list[Remote] = []

    def begin(self, server: Host, address: str = "") -> None:
        """Start the master at that host; the first peer starts later."""
        self._fleet.move_master(server.namespace, address or server.address)

    def ask(
        self, host: Host, *, timeout: float = JOIN_S, advertise: str = "", port_range: str = ""
    ) -> Remote:
        """Start a peer at that host; it asks for admission."""
        peer = self._fleet.spawn(host.namespace, log=self._log(len(self._fleet.peers)))
        given = {"advertise": advertise, "port_range": port_range}
        settings = {name: value for name, value in given.items() if value}
        url = self._fleet.url("test", peer_timeout=PEER_TIMEOUT_S, **settings)
        peer.tell("join", url=url, timeout=timeout)
        return peer

    def let_in(self, newcomer: Remote, within: float) -> dict[str, Any]:
        """Let the members work until the newcomer has its answer; return the answer."""
        deadline = time.monotonic() + within
        while self.members and not select.select([newcomer.socket], [], [], 0.02)[0]:
            if time.monotonic() > deadline:
                raise NotReachedError(f"neither let in nor refused within {within} s")
            start = time.monotonic()
            if self._update() > len(self.members):
                break
            self.reduce(SMALL)
            self.slowest = max(self.slowest, time.monotonic() - start)
        answer = newcomer.answer(STEP_S)
        if answer["ok"]:
            self.members.append(newcomer)
        return answer

    def add(
        self, host: Host, *, timeout: float = JOIN_S, advertise: str = "", port_range: str = ""
    ) -> Remote:
        """Add a peer at that host; return it when all members have reduced a tensor with it.

        Raises:
            NotReachedError: it was refused.
        """
        newcomer = self.ask(host, timeout=timeout, advertise=advertise, port_range=port_range)
        answer = self.let_in(newcomer, JOIN_S + STEP_S)
        if not answer["ok"]:
            raise NotReachedError(answer["message"])
        assert answer["world"] == len(self.members)
        self.reduce(LARGE)
        return newcomer

    def reduce(self, count: int) -> None:
        """Reduce a tensor; check that all get the same bits in time."""
        self._seed += 1
        for rank, peer in enumerate(self.members):
            peer.tell("all_reduce", count=count, seed=self._seed + rank)
        deadline = time.monotonic() + STEP_S
        answers = []
        for peer in self.members:
            try:
                assert "posted" in peer.answer(max(deadline - time.monotonic(), 0.1))
                answers.append(peer.answer(max(deadline - time.monotonic(), 0.1)))
            except TimeoutError:
                raise NotReachedError(f"no sum within {STEP_S} s") from None
        assert all(answer["ok"] for answer in answers), answers
        assert len({answer["digest"] for answer in answers}) == 1

    def warnings(self) -> list[list[str]]:
        """Return the warnings of each peer."""
        texts = [self._log(number).read_text() for number in range(len(self._fleet.peers))]
        return [[line for line in text.splitlines() if " warning: " in line] for text in texts]

    def end(self) -> None:
        for peer in list(self._fleet.peers):
            self._fleet.forget(peer)

    def _log(self, number: int) -> Path:
        return self._folder / f"peer-{number}.log"

    def _update(self) -> int:
        """Update the topology; return the size of the world."""
        for peer in self.members:
            peer.tell("update_topology")
        answers = [peer.answer(STEP_S) for peer in self.members]
        assert all(answer["ok"] for answer in answers), answers
        sizes = {answer["world"] for answer in answers}
        assert len(sizes) == 1, answers
        return int(sizes.pop())


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """Start one fleet for all tests, since torch loads slowly; its master moves per test."""
    fleet = Fleet(secured=True)
    yield fleet
    fleet.close()


@pytest.fixture
def network() -> Iterator[Network]:
    with own_network() as made:
        yield made


@pytest.fixture
def run(network: Network, fleet: Fleet, tmp_path: Path) -> Iterator[Run]:
    """Start a run whose master is on the internet, by IPv4."""
    run = Run(fleet, tmp_path)
    run.begin(network.host())
    yield run
    run.end()


def closed_host(network: Network, way: str) -> Host:
    """Return a host that no one can connect to."""
    if way == "nat":
        return network.home(Unasked.DROP).host()
    return network.host(Unasked[way.upper()])


# --- A peer whose port is closed ------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("way", ["drop", "reject", "nat"])
def test_a_closed_peer(run: Run, network: Network, way: str, place: str, world: int) -> None:
    hosts = [network.host() for _ in range(world - 1)]
    hosts.insert(0 if place == "first" else len(hosts), closed_host(network, way))
    for host in hosts:
        run.add(host)


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_link_of_a_closed_peer_is_made_anew(run: Run, network: Network, place: str) -> None:
    if not connections_can_be_reset():
        pytest.skip("SKIPPED: needs `ss --kill`, which resets nothing on this machine")
    public, closed = network.host(), network.home().host()
    for host in [closed, public] if place == "first" else [public, closed]:
        run.add(host)
    before = [peer.call("info")["connections"] for peer in run.members]
    closed.shell(f"ss --kill --tcp dst {public.address}")
    run.reduce(LARGE)
    after = [peer.call("info") for peer in run.members]
    assert [info["world"] for info in after] == [2, 2]
    assert [info["connections"] for info in after] != before, "no link has been broken"


# --- Two closed peers, behind different routers ---------------------------------------------------

REASONS = {Unasked.DROP: "no answer", Unasked.REJECT: "refused"}


@pytest.mark.parametrize(
    "ways",
    [
        (Unasked.DROP, Unasked.DROP),
        (Unasked.REJECT, Unasked.REJECT),
        (Unasked.DROP, Unasked.REJECT),
    ],
    ids=lambda ways: "-".join(way.name.lower() for way in ways),
)
def test_the_second_of_two_closed_peers_is_refused(
    run: Run, network: Network, ways: tuple[Unasked, Unasked]
) -> None:
    """It gets the reasons, and the others continue. Both have the same inside address and port."""
    homes = [network.home(way) for way in ways]
    run.add(network.host())
    run.add(homes[0].host(), port_range="48201-48201")
    second = run.ask(homes[1].host(), timeout=60, port_range="48201-48201")
    answer = run.let_in(second, REFUSE_S)
    assert not answer["ok"]
    for home in homes:
        assert home.address in answer["message"]
    for way in ways:
        assert answer["message"].count(REASONS[way]) >= ways.count(way), answer["message"]
    assert answer["end"] - answer["start"] <= REFUSE_S
    assert run.slowest < PEER_TIMEOUT_S / 2
    run.reduce(LARGE)
    assert len(run.members) == 2


# --- Two peers behind one router without hairpin --------------------------------------------------


@pytest.mark.parametrize("third", [False, True], ids=["alone", "with-a-public-one"])
@pytest.mark.parametrize("advertised", [False, True], ids=["plain", "advertised"])
def test_neighbours_behind_one_router(
    run: Run, network: Network, advertised: bool, third: bool
) -> None:
    home = network.home()
    if third:
        run.add(network.host())
    for port in 48201, 48202:
        host = home.host()
        if advertised:
            home.forward(port, host, port)
            run.add(host, advertise=home.address, port_range=f"{port}-{port}")
        else:
            run.add(host)


# --- Ports that have another number outside -------------------------------------------------------


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_forwarded_port(run: Run, network: Network, place: str) -> None:
    """The other peer is closed, so the forwarded port is the only way to connect."""
    home, closed = network.home(), network.home().host()
    inside = home.host()
    home.forward(40001, inside, 48201)
    if place == "last":
        run.add(closed)
    peer = run.add(inside, advertise=f"{home.address}:40001", port_range="48201-48201")
    if place == "first":
        run.add(closed)
    assert peer.call("info")["address"] == f"{home.address}:40001"


def test_a_range_of_forwarded_ports(run: Run, network: Network) -> None:
    """The first inside port is taken; the peer uses the second one, inside and outside."""
    home = network.home()
    inside = home.host()
    for number in range(3):
        home.forward(40001 + number, inside, 48201 + number)
    run.add(network.home().host())
    with inside.entered():
        taken = socket.create_server(("", 48201))
    with taken:
        peer = run.add(inside, advertise=f"{home.address}:40001-40003", port_range="48201-48203")
    assert peer.call("info")["address"] == f"{home.address}:40002"


# --- The master by IPv4, the peers by IPv6 --------------------------------------------------------


@pytest.mark.parametrize(
    "advertised",
    [False, True],
    ids=["plain", "advertised"],
)
def test_only_ipv6_between_peers(run: Run, network: Network, advertised: bool) -> None:
    for _ in range(2):
        host = network.home(ipv6=True).host()
        run.add(host, advertise=host.address_6 if advertised else "")


def test_ipv6_beside_a_master_of_the_same_machine(run: Run, network: Network) -> None:
    host = network.host()
    run.begin(host, "127.0.0.1")
    for _ in range(2):
        run.add(host, advertise="::1")


# --- A path that drops large packets --------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("told", [True, False], ids=["told", "silent"])
def test_a_narrow_path(run: Run, network: Network, told: bool, world: int) -> None:
    """If no sender is notified of big packets, a peer warns once and makes its packets smaller."""
    west, east = network.offices(1300, told=told)
    hosts = [west.host() for _ in range(world - 1)] + [east.host()]
    run.begin(west.host())
    for host in hosts:
        run.add(host, timeout=60)
    for _ in range(3):
        run.reduce(LARGE)
    for warnings in run.warnings():
        assert len(warnings) <= (0 if told else 1), warnings
        for warning in warnings:
            assert sum(host.address in warning for host in hosts) == 2, warning
