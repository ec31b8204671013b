"""`pccl doctor URL`: faults of the path to a master, real ones where a test can make them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doctors import GOOD, MACHINE, PATH, REACHED, Found, doctor
from keyrings import TOKEN, new, written
from own_network import own_network
from programs import Program
from routers import Network, Node, Unasked
from world import Master, free_port, plain_text

from pccl_backend._tokens import Token
from pccl_backend.command.doctor.checks import examine
from pccl_backend.command.doctor.facts import Address, DialBack, Facts, Greeting
from pccl_backend.command.doctor.facts import Network as Addresses
from pccl_backend.command.doctor.facts import Path as Way
from pccl_backend.command.doctor.line import Line

PORT = 48148
OF_PATH = ["name", "route", "port", "master", "token", "packets", "way back", "clocks"]
PLAIN: dict[str, str | None] = {"PCCL_SECRET_FILE": None, "PCCL_INSECURE": None}
INSECURE: dict[str, str | None] = {"PCCL_SECRET_FILE": None, "PCCL_INSECURE": "1"}


def levels(found: Found) -> dict[str, str]:
    """Return the levels of the lines about the path."""
    return {name: found.level(name) for name in OF_PATH if name in found.lines}


def line(name: str, **changes: Any) -> Line:
    facts = Facts(machine=MACHINE, path=dataclasses.replace(PATH, **changes))
    return dict(examine(facts))[name]


# --- Masters on this machine ----------------------------------------------------------------------


@plain_text
def test_a_good_path(master: Master) -> None:
    found = doctor(master.url(), **PLAIN)
    assert levels(found) == dict.fromkeys(OF_PATH, "ok")


@plain_text
def test_it_joins_no_run(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    own = Master(log)
    try:
        assert levels(doctor(own.url("night"), **PLAIN)) == dict.fromkeys(OF_PATH, "ok")
    finally:
        own.stop()
    said = log.read_text()
    assert "the name of the run is empty" in said
    assert "night" not in said


def test_an_absent_master() -> None:
    port = free_port()
    found = doctor(f"pccl://127.0.0.1:{port}/run", **PLAIN)
    assert (found.code, levels(found)) == (1, {"name": "ok", "route": "ok", "port": "bad"})
    assert f"port {port} of 127.0.0.1 is closed" in found.text("port")
    assert f"start `pccl master --port {port}` there" in found.next("port")


def test_an_unknown_name() -> None:
    found = doctor("pccl://nowhere.invalid/run", **PLAIN)
    assert levels(found) == {"name": "bad"}
    assert "the name nowhere.invalid has no address: " in found.text("name")


@plain_text
def test_a_master_that_is_stopped(tmp_path: Path) -> None:
    own = Master(tmp_path / "log.txt")
    try:
        os.kill(own.process.pid, signal.SIGSTOP)
        found = doctor(own.url(), **PLAIN)
    finally:
        os.kill(own.process.pid, signal.SIGCONT)
        own.stop()
    assert levels(found) == {"name": "ok", "route": "ok", "port": "ok", "master": "bad"}
    assert "accepts connections, and does not answer" in found.text("master")


def test_another_program() -> None:
    with Program([sys.executable, "-c", HTTP_SERVER]) as server:
        port = int(server.line())
        found = doctor(f"pccl://127.0.0.1:{port}/run", **PLAIN)
    assert found.bad() == ["master"]
    assert "is no master" in found.text("master")


HTTP_SERVER = """
import contextlib
import socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):  # the client may close it first
            connection.sendall(b"HTTP/1.1 400 Bad Request\\r\\nContent-Length: 0\\r\\n\\r\\n")
            connection.recv(1 << 16)
"""


def test_a_clock_that_is_wrong() -> None:
    """A stand-in for a master whose clock is 90 s late."""
    with Program([sys.executable, "-c", LATE_MASTER]) as master:
        found = doctor(f"pccl://127.0.0.1:{int(master.line())}/run", **PLAIN)
    assert (found.bad(), found.level("clocks")) == ([], "warn")
    assert re.match(
        r"this clock is (89|90)\S* s ahead of the clock of the master", found.text("clocks")
    )


# The answers are a Reject (type 2) of a Hello, and a DialedBack (type 45) of a DialBack (type 44).
LATE_MASTER = """
import contextlib
import socket
import struct
import time

def answer(kind):
    if kind != 44:
        return 2, struct.pack("<BI", 12, 2) + b"no"  # kInvalidArgument
    now = int((time.time() - 90) * 1000)
    return 45, struct.pack("<I", 9) + b"127.0.0.1" + struct.pack("<BBQQ", 0, 1, 0, now)

with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            head = connection.recv(6, socket.MSG_WAITALL)
            if len(head) < 6:
                continue
            size, kind = struct.unpack("<IH", head)
            connection.recv(size - 2, socket.MSG_WAITALL)
            kind, body = answer(kind)
            connection.sendall(struct.pack("<IH", len(body) + 2, kind) + body)
            connection.recv(1)
"""


# --- Tokens ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def secured(folder: Path) -> Iterator[tuple[str, Token]]:
    """Start a master with a keyring; yield the URL, and a token that it knows."""
    keyring = folder / "keyring"
    token = new(keyring, "alice")
    command = [sys.executable, "-m", "pccl_backend.cli", "master", "--port", "0"]
    options = ["--no-journal", "--keyring", str(keyring)]
    with Program([*command, *options]) as running:
        port = running.line().rpartition(":")[2].strip()
        yield f"pccl://127.0.0.1:{port}/run", token


def test_tokens(tmp_path: Path) -> None:
    wrong = Token("k3v9x2mq7a1p", bytes(32))
    with secured(tmp_path) as (url, token):
        for shown, says in (
            (token, ""),
            (Token(token.id, wrong.secret), f"another secret for the token {token.id}"),
            (TOKEN, f"does not know the token {TOKEN.id}"),
        ):
            path = written(tmp_path / f"token-{bool(says)}-{shown.id}", shown.text())
            found = doctor(url, PCCL_SECRET_FILE=str(path), PCCL_INSECURE=None)
            assert found.bad() == (["token"] if says else [])
            assert says in found.text("token")
        found = doctor(url, **PLAIN)
        assert (found.bad(), found.level("master")) == (["token"], "ok")
        assert "admits only peers that have a token" in found.text("token")
        assert "pccl token new" in found.next("token")


@plain_text
def test_a_token_for_a_master_without_a_keyring(tmp_path: Path, master: Master) -> None:
    path = written(tmp_path / "token", TOKEN.text())
    found = doctor(master.url(), PCCL_SECRET_FILE=str(path), PCCL_INSECURE=None)
    assert found.bad() == ["token"]
    assert "plain text, so it did not get the token" in found.text("token")


# --- Networks -------------------------------------------------------------------------------------


@pytest.fixture
def network() -> Iterator[Network]:
    with own_network() as made:
        yield made


def inside(node: Node) -> list[str]:
    return ["nsenter", f"--net={node.namespace}"]


@contextlib.contextmanager
def master_in(node: Node, port: int = PORT) -> Iterator[None]:
    """Run a master without tokens in a namespace."""
    command = [sys.executable, "-m", "pccl_backend.cli", "master", "--host", "::"]
    options = ["--port", str(port), "--no-journal", "--insecure"]
    with Program([*inside(node), *command, *options]) as running:
        assert "listening" in running.line()
        yield


def test_a_path_between_two_machines(network: Network) -> None:
    server, here = network.host(), network.host()
    with master_in(server):
        url = f"pccl://{server.address}/run"
        found = doctor(url, inside=inside(here), **INSECURE)
        assert levels(found) == {**dict.fromkeys(OF_PATH, "ok"), "token": "warn"}
        found = doctor(url, inside=inside(here), **PLAIN)
        assert found.bad() == ["token"]
        assert "PCCL_INSECURE=1" in found.text("token")


def test_closed_ports(network: Network) -> None:
    """A closed port is told from one that a firewall hides."""
    server, shy, here = network.host(), network.host(Unasked.DROP), network.host()
    found = doctor(f"pccl://{server.address}/run", inside=inside(here), **PLAIN)
    assert found.bad() == ["port"]
    assert "is closed" in found.text("port")
    with master_in(shy):
        found = doctor(f"pccl://{shy.address}/run", inside=inside(here), **PLAIN)
    assert found.bad() == ["port"]
    assert "does not answer at all" in found.text("port")


def test_a_mapped_port(network: Network) -> None:
    home, here = network.home(Unasked.REJECT), network.host()
    server = home.host()
    home.forward(40001, server, PORT)
    with master_in(server):
        found = doctor(f"pccl://{home.address}/run", inside=inside(here), **INSECURE)
        assert found.bad() == ["port"]
        assert "a provider maps the port, write its outside number" in found.next("port")
        found = doctor(f"pccl://{home.address}:40001/run", inside=inside(here), **INSECURE)
        assert found.bad() == []
        assert levels(found) == {**dict.fromkeys(OF_PATH, "ok"), "token": "warn"}


def test_the_way_back(network: Network) -> None:
    """A machine behind a router, without a forwarded port, with one, and with one for another."""
    server, home = network.host(), network.home(Unasked.REJECT)
    here, other = home.host(), home.host()
    home.forward(40001, here, 48201)
    home.forward(40002, other, 48201)
    url = f"pccl://{server.address}/run"

    def ask(**settings: str) -> Found:
        return doctor(url, inside=inside(here), **INSECURE, **settings)

    with master_in(server):
        found = ask()
        assert (found.bad(), found.level("way back")) == ([], "warn")
        assert f"the master cannot connect to {home.address} port " in found.text("way back")
        assert "the address of a router" in found.text("way back")
        assert "forward a TCP port of the router" in found.next("way back")
        inner = {"PCCL_PORT_RANGE": "48201-48201"}
        found = ask(**inner, PCCL_ADVERTISE=f"{home.address}:40001")
        assert found.text("way back") == (
            "others can connect to this machine: the master has connected to "
            f"{home.address} port 40001"
        )
        with master_in(other, 48201):
            found = ask(**inner, PCCL_ADVERTISE=f"{home.address}:40002")
        assert found.level("way back") == "warn"
        assert "another program or machine has answered" in found.text("way back")


def test_a_firewall_of_this_machine(network: Network) -> None:
    server, shy = network.host(), network.host(Unasked.DROP)
    with master_in(server):
        found = doctor(f"pccl://{server.address}/run", inside=inside(shy), **INSECURE)
    assert (found.bad(), found.level("way back")) == ([], "warn")
    assert found.text("way back").startswith(f"the master cannot connect to {shy.address} port ")
    assert "no answer" in found.text("way back")
    assert "open that TCP port in the firewall" in found.next("way back")


def test_wrong_routes(network: Network) -> None:
    server, here = network.host(), network.host()
    url = f"pccl://{server.address}/run"
    with master_in(server):
        here.shell("ip address flush dev eth0")
        found = doctor(url, inside=inside(here), **PLAIN)
        assert found.bad() == ["route"]
        assert f"no route to {server.address}: Network is unreachable" in found.text("route")
        assert found.level("addresses") == "warn"
        here.shell(
            f"ip address add {here.address}/24 dev eth0",
            f"ip route add {server.address}/32 via 203.0.113.250",  # nobody has this address
        )
        found = doctor(url, inside=inside(here), **PLAIN)
        assert found.bad() == ["port"]
        assert f"ip route get {server.address}" in found.next("port")


@pytest.mark.parametrize("mtu", [1280, 1500])
def test_a_black_hole(network: Network, mtu: int) -> None:
    west, east = network.offices(mtu, told=False)
    server, here = east.host(), west.host()
    with master_in(server):
        found = doctor(f"pccl://{server.address}/run", inside=inside(here), **INSECURE)
    expected = {**dict.fromkeys(OF_PATH, "ok"), "token": "warn"}
    if mtu == 1280:
        expected["packets"] = "bad"
        assert "small packets arrive" in found.text("packets")
        assert found.next("packets") == "sudo ip link set dev eth0 mtu 1280"
        here.shell(found.next("packets").removeprefix("sudo "))
        with master_in(server):
            healed = doctor(f"pccl://{server.address}/run", inside=inside(here), **INSECURE)
        assert healed.bad() == []
    assert levels(found) == expected


def test_ipv6_only(network: Network) -> None:
    home, server = network.home(ipv6=True), network.host()
    here = home.host()
    here.shell("ip -4 address flush dev eth0")
    with master_in(server):
        found = doctor(f"pccl://{server.address}/run", inside=inside(here), **PLAIN)
    assert found.level("addresses") == "warn"
    assert "IPv6 only" in found.text("addresses")
    assert found.bad() == ["route"]
    assert "the master has IPv4 only" in found.text("route")


def test_tiny_buffers(network: Network) -> None:
    here = network.host()
    here.shell("echo '4096 16384 65536' > /proc/sys/net/ipv4/tcp_wmem")
    found = doctor(inside=inside(here), **PLAIN)
    assert found.level("buffers") == "warn"
    assert "tcp_wmem is 0.062 MiB" in found.text("buffers")
    here.shell(found.next("buffers").removeprefix("sudo "))
    assert doctor(inside=inside(here), **PLAIN).level("buffers") == "ok"


# --- Decisions, by facts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("name", {"addresses": None, "resolve_error": "no answer within 4 s"}, "within 4 s"),
        ("name", {"addresses": None}, "no answer in time"),
        (
            "port",
            {
                "addresses": (
                    dataclasses.replace(REACHED, connect="unreachable", error="No route to host"),
                )
            },
            "cannot be reached: No route to host",
        ),
        (
            "master",
            {"greeting": Greeting(ending="answered", code="protocol", why="version mismatch: x")},
            "version mismatch: x",
        ),
        (
            "master",
            {"greeting": Greeting(ending="answered", code="invalid state", why="it is full")},
            "refuses this peer: it is full",
        ),
        ("master", {"greeting": Greeting(ending="closed", why="reset")}, "(closed: reset)"),
        ("token", {"greeting": Greeting(ending="unproven", why="bad tag")}, "does not prove"),
    ],
)
def test_faults_by_facts(name: str, changes: dict[str, Any], says: str) -> None:
    found = line(name, **changes)
    assert found.level == "bad"
    assert says in found.text
    assert found.next


def test_a_master_with_ipv6_only() -> None:
    address = Address(host="2001:db8::9", error="Network is unreachable")
    assert "the master has IPv6 only (2001:db8::9)" in line("route", addresses=(address,)).text


def test_one_way_of_two_is_enough() -> None:
    """The name has an IPv6 address that this machine cannot use."""
    other = Address(host="2001:db8::9", error="Network is unreachable")
    for addresses in ((other, REACHED), (REACHED, other)):
        path = dataclasses.replace(PATH, addresses=addresses)
        found = dict(examine(dataclasses.replace(GOOD, path=path)))
        assert {one.level for one in found.values()} == {"ok"}


def test_checks_that_were_not_made_have_no_line() -> None:
    path = Way(host="a", port=1, addresses=(Address(host="203.0.113.9", error="x"),))
    machine = dataclasses.replace(MACHINE, network=Addresses())
    found = dict(examine(Facts(machine=machine, path=path)))
    assert [name for name in OF_PATH if name in found] == ["name", "route"]


def test_a_large_greeting_that_fails_otherwise() -> None:
    found = line("packets", large_greeting=Greeting(ending="closed", why="reset"))
    assert (found.level, "(closed: reset)" in found.text) == ("warn", True)


def test_a_master_that_refuses_to_connect_back() -> None:
    found = line("way back", dial_back=DialBack(port=1, why="it checks too many machines"))
    assert (found.level, found.text.endswith(": it checks too many machines")) == ("warn", True)


def test_no_port_to_connect_back_to() -> None:
    path = dataclasses.replace(PATH, dial_back=DialBack(port=0, host="203.0.113.7", ahead=-1.5))
    found = dict(examine(dataclasses.replace(GOOD, path=path)))
    assert "way back" not in found
    assert found["clocks"].text.startswith("this clock is 1.5 s ahead of the clock of the master")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"greeting": None, "large_greeting": None}, "master"),
        ({"large_greeting": None}, "packets"),
        ({"dial_back": None}, "way back"),
    ],
)
def test_a_check_without_a_result_is_no_success(changes: dict[str, Any], name: str) -> None:
    found = line(name, **changes)
    assert found.level == "warn"
    assert "in time" in found.text
