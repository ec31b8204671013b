"""The emulated wide-area network: connections have the requested properties."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import refusal
from programs import Program

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "wan"))

import lab
import packets
from carriers import Emulator, Netem, NetworkPath
from processes import missing

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SCENARIO: dict[str, Any] = {
    "hosts": ["here", "there", "beyond"],
    "uplink_mbit": 40.0,
    "default": {"mbit": 100.0, "queue_ms": 50.0, "loss": 0.0},
    "paths": [{"from": "there", "to": "*", "mbit": 8.0}],
    "rtt_ms": {"here-there": 40.0, "here-beyond": 10.0, "there-beyond": 20.0},
}
SEND = """
import socket, sys, time
start = time.monotonic()
with socket.create_connection((sys.argv[1], 5000)) as stream:
    print((time.monotonic() - start) * 1e3, flush=True)
    stream.sendall(bytes(1 << 20))
    stream.shutdown(socket.SHUT_WR)
    stream.recv(1)
"""
RECEIVE = """
import socket, time
with socket.create_server(("0.0.0.0", 5000)) as listener:
    print("listens", flush=True)
    stream, _ = listener.accept()
    stream.recv(1 << 16)  # the clock starts at the first piece
    count, start = 0, time.monotonic()
    while got := stream.recv(1 << 16):
        count += len(got)
    print(count * 8e-6 / (time.monotonic() - start), flush=True)
"""

# Everything that a lab needs: a namespace, cubic in it, a TUN device, a setting.
STOCK_NETWORK = Path(__file__).resolve().parents[2] / "tools" / "stock-network.sh"
LIKE_A_LAB = """
grep -q cubic /proc/sys/net/ipv4/tcp_congestion_control
ip tuntap add wan0 mode tun
sysctl -qw net.ipv4.tcp_no_metrics_save=1
"""


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the test if this machine does not allow a lab. The tests need no iperf3 and no ping."""
    needs = [need for need in lab.NEEDS if need not in ("iperf3", "ping")]
    if without := missing(needs):
        pytest.skip(f"SKIPPED: a lab needs {', '.join(without)}")
    tried = [str(STOCK_NETWORK), "sh", "-ec", LIKE_A_LAB]
    if refused := refusal(tried, "network namespaces with devices"):
        pytest.skip(refused)
    monkeypatch.setattr(lab, "NEEDS", needs)


@pytest.fixture(params=["emulator", "netem"])
def network(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, allowed: None
) -> Iterator[lab.Lab]:
    if request.param == "netem" and not Netem.is_there():
        pytest.skip("SKIPPED: this kernel has no netem; run it on a host that has it")
    monkeypatch.setenv("WAN_LAB", request.param)
    with lab.Lab(SCENARIO) as made:
        yield made


def transfer(network: lab.Lab, source: int, target: int) -> tuple[float, float]:
    """Return milliseconds to connect (one RTT), and Mbit/s of a mebibyte after its first piece."""
    receiver = network.hosts[target].inside.command(sys.executable, "-c", RECEIVE)
    with Program(receiver) as there:
        assert there.line() == "listens\n"
        address = network.hosts[target].address
        connected = network.hosts[source].inside.run(sys.executable, "-c", SEND, address)
        return float(connected), float(there.line())


def test_no_path_is_shorter_or_wider_than_asked(network: lab.Lab) -> None:
    """How much longer and narrower it is depends more on this machine than on the path."""
    for source, target, round_trip_ms, mbit in ((0, 1, 40, 40), (1, 0, 40, 8), (2, 1, 20, 40)):
        milliseconds, rate = transfer(network, source, target)
        assert round_trip_ms <= milliseconds
        assert rate < 1.1 * mbit


def test_paths_share_a_trunk(allowed: None) -> None:
    """Two mebibytes to two hosts take at least as long as over one path of that rate."""
    uplink = {"from": "here", "to": "*", "mbit": 8.0, "queue_ms": 50.0}
    network = lab.Lab({**SCENARIO, "uplink_mbit": 0, "paths": [], "trunks": [uplink]})
    with network, contextlib.ExitStack() as programs:
        for host in network.hosts[1:]:
            receiver = host.inside.command(sys.executable, "-c", RECEIVE)
            assert programs.enter_context(Program(receiver)).line() == "listens\n"
        began = time.monotonic()
        source = network.hosts[0].inside
        senders = [
            source.command(sys.executable, "-c", SEND, to.address) for to in network.hosts[1:]
        ]
        for sender in [programs.enter_context(Program(command)) for command in senders]:
            sender.communicate()
        seconds = time.monotonic() - began
    assert seconds > 0.95 * 2 * (1 << 20) * 8 / 8e6


def test_a_path_gets_another_rate(allowed: None) -> None:
    network = lab.Lab({**SCENARIO, "uplink_mbit": 0, "paths": []}, changes=True)
    with network:
        network.change(0, 1, 4.0)
        assert transfer(network, 0, 1)[1] < 1.1 * 4.0
        network.change(0, 1, 100.0)
        assert transfer(network, 0, 1)[1] > 1.1 * 4.0


def test_packets_are_recorded_between_two_moments(allowed: None, tmp_path: Path) -> None:
    here_to_there = {"from": "here", "to": "there", "mbit": 100.0, "loss": 0.01}
    network = lab.Lab({**SCENARIO, "paths": [here_to_there]}, traces=True)
    with network:
        transfer(network, 0, 1)
        network.trace()
        begin = time.monotonic()
        transfer(network, 0, 2)
        network.trace(tmp_path / "empty")  # this one is not empty
        network.trace()
        transfer(network, 0, 1)
        end = time.monotonic()
        network.trace(tmp_path / "trace")
        transfer(network, 0, 1)
        addresses = [host.address for host in network.hosts]
    found = packets.read(tmp_path / "trace", addresses)
    assert {(one.flow.source, one.flow.target) for one in found} == {(0, 1), (1, 0)}
    assert all(begin <= one.came <= one.sent <= one.left < end for one in found)
    assert all(one.arrived is None or one.arrived - one.left > 0.02 for one in found)
    assert any(one.arrived is None and one.payload for one in found), "one in 100 is lost"
    there = [one for one in found if one.flow.target == 1]
    bytes = sum(len(one.payload) for one in there if one.arrived is not None)
    assert 1 << 20 <= bytes < 1.1 * (1 << 20), "all of it, and some twice"
    busy = sum(one.wire_bytes for one in there) * 8 / 40e6  # seconds of the uplink
    assert there[-1].sent - there[0].came >= busy


def test_netem_records_nothing() -> None:
    with pytest.raises(SystemExit, match="netem records no packets: set WAN_LAB=emulator"):
        Netem().trace(None)


@pytest.mark.parametrize("name", ["home", "ocean", "unequal", "mixed"])
def test_scenarios_in_the_tree(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(lab, "NEEDS", ())
    made = lab.Lab(BENCHMARKS / "wan" / f"{name}.toml")
    hosts = len(made.scenario["hosts"])
    for source in made.scenario["hosts"]:
        for target in set(made.scenario["hosts"]) - {source}:
            assert made.path(source, target).mbit > 0
    assert sorted(made.scenario.get("order", range(hosts))) == list(range(hosts))
    shares = made.scenario.get("shares", [256, *[0] * (hosts - 1)])
    assert (len(shares), sum(shares)) == (hosts, 256)


def test_the_unequal_world_is_what_it_says() -> None:
    """Every hop of the best ring is faster than every other path, so no other ring is as fast."""
    made = lab.read(BENCHMARKS / "wan" / "unequal.toml")
    rate = {(path["from"], path["to"]): path["mbit"] for path in made["paths"]}

    def hops(order: list[str]) -> list[float]:
        return [rate[hop] for hop in zip(order, order[1:] + order[:1], strict=True)]

    best = hops([made["hosts"][host] for host in made["order"]])
    assert min(hops(made["hosts"])) == 20
    assert min(best) == 240
    assert sum(one >= 240 for one in rate.values()) == len(best) == 8
    assert len(rate) == 56


COUNT_ONES = """
import socket
with socket.create_server(("0.0.0.0", 5000)) as listener:
    print("listens", flush=True)
    stream, _ = listener.accept()
    bytes = ones = 0
    while got := stream.recv(1 << 16):
        bytes += len(got)
        ones += int.from_bytes(got, "big").bit_count()
    print(bytes, ones, flush=True)
"""


def test_bits_arrive_flipped_and_nothing_else_is_wrong(allowed: None) -> None:
    """The bytes that are sent are zeros, and the paths lose nothing."""
    here_to_there = {"from": "here", "to": "there", "mbit": 100.0, "flips": 1e-5}
    network = lab.Lab({**SCENARIO, "uplink_mbit": 0, "paths": [here_to_there], "seed": 5})
    with network:
        receiver = network.hosts[1].inside.command(sys.executable, "-c", COUNT_ONES)
        with Program(receiver) as there:
            assert there.line() == "listens\n"
            network.hosts[0].inside.run(sys.executable, "-c", SEND, network.hosts[1].address)
            bytes, ones = map(int, there.line().split())
    assert network.report is not None
    assert bytes == 1 << 20
    assert ones == len(network.report.flips)
    assert 42 <= ones <= 126, "84 bits, and four standard deviations more or less"
    assert None not in network.report.flips, "the receiver has ended the connection in the end"


def test_what_waits_or_is_under_way_is_no_loss() -> None:
    path = NetworkPath(mbit=120.0, rtt_ms=100.0, queue_ms=20.0, loss=0.0)
    assert path.queue_bytes == 300e3
    assert path.packets_max == 701  # 70 ms of 15 MB/s, in packets of 1,500 bytes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hosts = [", "Invalid"),
        ('hosts = ["a", "b"]', "is no scenario: it has no default, rtt_ms"),
        (
            'hosts = ["a"]\ndefault = {}\nrtt_ms = {}\nways = []',
            'knows no "ways", only buffer_kib, default, hosts, order, paths',
        ),
        (None, "No such file"),
    ],
)
def test_what_is_no_scenario(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "x.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit, match=says):
        lab.Lab(path)


# This runs in its own mount namespace, with a file in place of this machine's setting. It prints
# the allowed algorithms after each step: a first program starts, a second starts, the first ends,
# the second is killed, a third starts and ends.
CUBIC = """
import subprocess, sys
setting, fake, tool = sys.argv[1:]
subprocess.run(["mount", "--bind", fake, setting], check=True)
subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
def begin():
    made = subprocess.Popen([tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout.readline() == "ready\\n"
    return made
def show():
    print(open(setting).read().strip())
show()
first = begin(); show()
second = begin(); show()
first.communicate(); show()
second.kill(); second.wait(); show()
third = begin(); third.communicate(); show()
"""


def test_cubic_is_allowed_while_anybody_needs_it(tmp_path: Path) -> None:
    fake = tmp_path / "allowed"
    fake.write_text("reno bbr\n")
    setting = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
    # A user who is not root becomes root in a user namespace, as in tools/stock-network.sh.
    alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    mounts = 'mount --bind "$1" "$2" && mount -t tmpfs none /run'
    tried = [*alone, "sh", "-ec", mounts, "-", str(fake), setting]
    if refused := refusal(tried, "mounts of its own"):
        pytest.skip(refused)
    command = [*alone, sys.executable, "-c", CUBIC, setting, fake, lab.ALLOW_CUBIC]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60)
    more = "reno bbr cubic"
    assert done.stdout.splitlines() == ["reno bbr", more, more, more, more, "reno bbr"]


@pytest.mark.parametrize(("there", "kind"), [(False, Emulator), (True, Netem)])
def test_who_carries(monkeypatch: pytest.MonkeyPatch, there: bool, kind: type) -> None:
    monkeypatch.setattr(Netem, "is_there", lambda: there)
    assert isinstance(lab.carrier_of(None), kind)
    assert isinstance(lab.carrier_of(None, needs_emulator=True), Emulator)


def test_who_cannot_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="WAN_LAB=gns3: it may be emulator or netem"):
        lab.carrier_of("gns3")
    monkeypatch.setattr(Netem, "is_there", lambda: False)
    with pytest.raises(SystemExit, match="this kernel has no netem"):
        lab.carrier_of("netem")
