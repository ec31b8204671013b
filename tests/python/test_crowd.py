"""Many peers of a secured run at one address: all of them get in at the first try.

The limits for strangers (csrc/net/pending_connections.h, handshake_rate.h) count the connections of
an address. So peers that share one must fit in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, Remote, check_sum
from own_network import own_network
from routers import Host, Network

COUNT = 1 << 16  # elements of the all-reduce
TIMEOUT_S = 60.0


@pytest.fixture
def network() -> Iterator[Network]:
    with own_network() as made:
        yield made


def check_made_once(links: dict[str, list[dict[str, Any]]]) -> None:
    """Check that no connection of a link was a second try.

    The peer with the lower id dials, and numbers all its connections 2, 4, 6 and so on.
    """
    made: dict[int, set[int]] = {}
    for peer, known in links.items():
        own = number_of(peer)
        for link in known:
            if number_of(link["peer"]) > own:
                made.setdefault(own, set()).add(link["connection"])
    for own, numbers in made.items():
        assert numbers == {2 * (i + 1) for i in range(len(links) - own)}, (own, numbers)


def number_of(peer: str) -> int:
    return int(peer.rpartition(".")[2])


def reduce(peers: list[Remote]) -> None:
    for seed, peer in enumerate(peers):
        peer.tell("all_reduce", count=COUNT, seed=seed)
    for peer in peers:
        assert "posted" in peer.answer()
    check_sum(peers)


def links_of(peers: list[Remote], lanes: int) -> dict[str, list[dict[str, Any]]]:
    """Return the links of each peer, when this number of lanes to each neighbour is up."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        reduce(peers)
        links = {one["peer"]: one["links"] for one in (peer.call("links") for peer in peers)}
        counts = [sorted(link["lanes"] for link in known) for known in links.values()]
        others = [1] * (len(peers) - 3)
        if all(count == [*others, lanes, lanes] for count in counts):
            return links
        assert time.monotonic() < deadline, counts


def all_get_in(
    network: Network, hosts: list[Host], folder: Path, *, lanes: int = 1
) -> dict[str, list[dict[str, Any]]]:
    """Let a peer of each host found a run, all at once, and reduce a tensor.

    Return the links of each peer.
    """
    log = folder / "master.log"
    fleet = Fleet(secured=True, master_log=log)
    try:
        server = network.host()
        fleet.move_master(server.namespace, server.address)
        world = len(hosts)
        url = fleet.url(founders=world, min_peers=world, lanes=lanes)
        peers = [
            fleet.spawn(host.namespace, log=folder / f"peer-{number}.log")
            for number, host in enumerate(hosts)
        ]
        for peer in peers:
            peer.tell("join", url=url, timeout=TIMEOUT_S)
        outcomes = [peer.answer() for peer in peers]
        assert all(outcome["ok"] and outcome["world"] == world for outcome in outcomes), outcomes
        links = links_of(peers, lanes)
        assert len(links) == world
        for number in range(world):
            warnings = (folder / f"peer-{number}.log").read_text()
            assert " warning: " not in warnings, warnings
        assert "closed" not in log.read_text()
        return links
    finally:
        fleet.close()


def test_many_peers_of_one_host_with_many_lanes(network: Network, tmp_path: Path) -> None:
    host = network.host()
    links = all_get_in(network, [host] * 32, tmp_path, lanes=64)
    check_made_once(links)


def test_many_peers_behind_one_router(network: Network, tmp_path: Path) -> None:
    """The master sees one address. Another peer is on the internet."""
    home = network.home()
    all_get_in(network, [network.host(), *(home.host() for _ in range(16))], tmp_path)
