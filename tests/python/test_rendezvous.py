"""The address of a hosted master, the host that the other ranks get, and a rank that cannot
join."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
import work_lifecycle as work
from conftest import MakeWorld
from keyrings import TEXT, TOKEN, written
from torch.distributed import HashStore
from world import Failed, free_port

from pccl_backend._settings import PeerSettings
from pccl_backend._torch import hosted_world, store_dialogue
from pccl_backend.errors import PcclError, TooFewPeersError

EVERYWHERE = ""
MINE = "10.1.2.3"  # address of the machine that the tests simulate


@pytest.fixture(autouse=True)
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine called `me`, with /etc/hosts as Debian writes it for `debian-me`."""
    addresses = {"me": MINE, "debian-me": "127.0.1.1", "other": "10.9.9.9", "::1": "::1"}
    facing = {"me": MINE, "debian-me": "127.0.0.1", "other": MINE}
    monkeypatch.setattr(hosted_world, "_addresses_of", lambda host: {addresses[host]})
    monkeypatch.setattr(hosted_world, "_facing_address", lambda host: facing[host])
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.mark.parametrize("host", [None, "localhost", "127.0.0.1", "127.3.2.1", "::1"])
def test_one_machine_listens_on_loopback(host: str | None) -> None:
    assert hosted_world.choose_address(host, PeerSettings()) == ("127.0.0.1", "127.0.0.1")


def test_torchrun_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert hosted_world.choose_address("me", PeerSettings()) == ("127.0.0.1", "127.0.0.1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert hosted_world.choose_address("me", PeerSettings()) == (MINE, "me")


def test_variables_of_a_launcher_of_one_rank_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    chosen = hosted_world.choose_address("me", PeerSettings(), from_launcher=False)
    assert chosen == (MINE, "me")


def test_several_machines() -> None:
    """Rank 0 is usually on the host of the store; the first rank of a subgroup may be elsewhere."""
    assert hosted_world.choose_address("me", PeerSettings()) == (MINE, "me")
    assert hosted_world.choose_address("other", PeerSettings()) == (MINE, MINE)


def test_a_name_that_is_loopback_at_home() -> None:
    chosen = hosted_world.choose_address("debian-me", PeerSettings())
    assert chosen == (EVERYWHERE, "debian-me")


def test_the_user_knows_better() -> None:
    settings = PeerSettings(advertise="public.example")
    assert hosted_world.choose_address("me", settings) == (EVERYWHERE, "public.example")


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
    "answer", ["", "10.0.0.1 4000 local", "h x local world", "10.0.0.1 4000 else world"]
)
def test_another_version_of_rank_0(answer: str) -> None:
    with pytest.raises(ValueError, match="rank 0 runs another version of pccl"):
        hosted_world._Place.parse(answer)


def test_an_answer_of_rank_0() -> None:
    text = "::1 4000 drawn:pccl1.k3v9x2mq7a1p.xyz group 5 (2)"
    place = hosted_world._Place.parse(text)
    assert (place.host, place.port, place.run) == ("::1", 4000, "group 5 (2)")
    assert place.access.drawn == "pccl1.k3v9x2mq7a1p.xyz"
    assert "xyz" not in repr(place)
    assert place.text() == text


# --- A rank that cannot join ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ([{}, {"PCCL_INSECURE": "1"}], "rank 0 has not set PCCL_INSECURE=1 and rank 1 has"),
        ([{"PCCL_INSECURE": "1"}, {}], "rank 0 has set PCCL_INSECURE=1 and rank 1 has not"),
        ([{}, {"PCCL_SECRET_FILE": "token"}], f"no token and rank 1 has the token {TOKEN.id}"),
        ([{"PCCL_SECRET_FILE": "token"}, {}], f"the token {TOKEN.id} and rank 1 has no token"),
        ([{}, {"PCCL_SECRET_FILE": "/nothing"}], "PCCL_SECRET_FILE=/nothing: the file does not ex"),
        ([{}, {"PCCL_LANES": "no"}], "PCCL_LANES=no: "),
    ],
)
def test_a_rank_with_other_settings_tells_rank_0(
    tmp_path: Path, make_world: MakeWorld, own: list[dict[str, str]], says: str
) -> None:
    """No rank waits for the timeout of the group, which is 30 minutes."""
    token = str(written(tmp_path / "token", TEXT))
    world = make_world(2)
    port = free_port()
    for rank, settings in enumerate(own):
        variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        variables |= {name: value.replace("token", token) for name, value in settings.items()}
        world.spawn(work.takes_environment, variables, setup="nothing", rank=rank)
    at_0, at_1 = world.outcomes(30, expect_success=False)
    assert isinstance(at_0, Failed), world.tails()
    assert isinstance(at_1, Failed), world.tails()
    assert says in str(at_1.error)
    assert type(at_0.error) is ValueError
    assert str(at_0.error) == f"rank 1 cannot join: {at_1.error}"


def test_a_rank_without_a_port_tells_rank_0(make_world: MakeWorld) -> None:
    """Every error counts, not only a wrong setting; the other ranks hear of it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        world = make_world(3)
        meeting = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        for rank in range(3):
            variables = {**meeting, **({"PCCL_PORT_RANGE": f"{port}-{port}"} if rank == 1 else {})}
            world.spawn(work.takes_environment, variables, setup="nothing", rank=rank)
        at_0, at_1, at_2 = world.outcomes(30, expect_success=False)
    assert isinstance(at_0, Failed), world.tails()
    assert isinstance(at_1, Failed), world.tails()
    assert isinstance(at_2, Failed), world.tails()
    assert type(at_0.error) is type(at_2.error) is PcclError
    assert str(at_0.error) == str(at_2.error) == f"rank 1 cannot join: {at_1.error}"


class Given:
    """The master of a teller; it records whether the teller has given up."""

    def __init__(self) -> None:
        self.up = threading.Event()

    def give_up(self) -> None:
        self.up.set()


def test_a_complaint_in_an_earlier_group_is_not_heard() -> None:
    store = HashStore()
    master = Given()
    store.set(store_dialogue._question(1), "old settings an old story")
    teller = store_dialogue.Teller(store, 3, "here", master)
    try:
        assert store.get(store_dialogue._reply(1, "old")) == b"here"  # it waits for the reply
        with pytest.raises(ValueError, match="it is wrong"), store_dialogue.Asker(store, 2):
            raise ValueError("it is wrong")
        assert master.up.wait(10)
        assert str(teller.complaint) == "rank 2 cannot join: it is wrong"
    finally:
        teller.stop()


def test_without_a_rank_0_there_is_nobody_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_dialogue, "TELL_S", 0.1)
    store = HashStore()
    with pytest.raises(ValueError, match="it is wrong"), store_dialogue.Asker(store, 2):
        raise ValueError("it is wrong")
    with (
        pytest.raises(TooFewPeersError, match=r"no answer within 0\.1 s: did rank 0 call"),
        store_dialogue.Asker(store, 2) as asker,
    ):
        asker.ask(0.1)
    assert store.num_keys() == 1, "its question, and no complaint"
