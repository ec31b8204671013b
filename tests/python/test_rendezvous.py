"""The address where a hosted master listens, and the host that the other ranks get."""

from __future__ import annotations

import socket

import pytest
import work_lifecycle as work
from conftest import MakeWorld
from world import free_port

from pccl_backend import _rendezvous
from pccl_backend._settings import PeerSettings

EVERYWHERE = ""
MINE = "10.1.2.3"  # address of the machine that the tests simulate


@pytest.fixture(autouse=True)
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine called `me`, with /etc/hosts as Debian writes it for `debian-me`."""
    addresses = {"me": MINE, "debian-me": "127.0.1.1", "other": "10.9.9.9", "::1": "::1"}
    facing = {"me": MINE, "debian-me": "127.0.0.1", "other": MINE}
    monkeypatch.setattr(_rendezvous, "_addresses_of", lambda host: {addresses[host]})
    monkeypatch.setattr(_rendezvous, "_facing_address", lambda host: facing[host])
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.mark.parametrize("host", [None, "localhost", "127.0.0.1", "127.3.2.1", "::1"])
def test_one_machine_listens_on_loopback(host: str | None) -> None:
    assert _rendezvous._choose_address(host, PeerSettings()) == ("127.0.0.1", "127.0.0.1")


def test_torchrun_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert _rendezvous._choose_address("me", PeerSettings()) == ("127.0.0.1", "127.0.0.1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert _rendezvous._choose_address("me", PeerSettings()) == (MINE, "me")


def test_several_machines() -> None:
    """Rank 0 is usually on the host of the store; the first rank of a subgroup may be elsewhere."""
    assert _rendezvous._choose_address("me", PeerSettings()) == (MINE, "me")
    assert _rendezvous._choose_address("other", PeerSettings()) == (MINE, MINE)


def test_a_name_that_is_loopback_at_home() -> None:
    chosen = _rendezvous._choose_address("debian-me", PeerSettings())
    assert chosen == (EVERYWHERE, "debian-me")


def test_the_user_knows_better() -> None:
    settings = PeerSettings(advertise="public.example")
    assert _rendezvous._choose_address("me", settings) == (EVERYWHERE, "public.example")


def own_address() -> str | None:
    """Return an address of this machine other than loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


def test_a_world_beyond_loopback(make_world: MakeWorld) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    variables = {"WORLD_SIZE": "3", "MASTER_ADDR": address, "MASTER_PORT": str(free_port())}
    assert make_world(3).run(work.takes_environment, variables, setup="nothing") == [3] * 3


@pytest.mark.parametrize(
    "answer", ["", "10.0.0.1 4000", "h x local", "10.0.0.1 4000 else", "a b c d"]
)
def test_another_version_of_rank_0(answer: str) -> None:
    with pytest.raises(ValueError, match="rank 0 runs another version of pccl"):
        _rendezvous._parse_answer(answer)


def test_an_answer_of_rank_0() -> None:
    host, port, access = _rendezvous._parse_answer("::1 4000 drawn:pccl1.k3v9x2mq7a1p.xyz")
    assert (host, port, access.drawn) == ("::1", 4000, "pccl1.k3v9x2mq7a1p.xyz")
    assert "xyz" not in repr(access)
