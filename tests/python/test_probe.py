"""`pccl probe`: its results on loopback, its behaviour with bad clients, and wrong arguments."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from programs import Program
from world import Master, free_port, run_program

from pccl_backend.probe import command, settings, wire
from pccl_backend.probe.client import Client, Plan, ProbeError
from pccl_backend.probe.flow import Flow, Span
from pccl_backend.probe.server import PENDING_MAX, Server
from pccl_backend.probe.settings import HostSettings
from pccl_backend.probe.wire import Channel, Trial, WireError, hello

PROBE = [sys.executable, "-m", "pccl_backend.cli", "probe"]
WAIT_S = 10.0

Serve = Callable[..., tuple[str, int]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers on loopback; they have to end when the test closes them."""
    servers: list[tuple[Server, threading.Thread]] = []

    def start(**options: float) -> tuple[str, int]:
        server = Server("127.0.0.1", 0, show=lambda text: None, **options)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        return server.address

    yield start
    for server, thread in servers:
        server.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture
def address(serve: Serve) -> tuple[str, int]:
    return serve()


def welcomed(address: tuple[str, int]) -> tuple[socket.socket, Channel, str]:
    """Return a client that was admitted, and its token; wait while another client is closed."""
    deadline = time.monotonic() + WAIT_S
    while True:
        connection = socket.create_connection(address, timeout=WAIT_S)
        channel = Channel(connection)
        channel.send(hello("control"))
        answer = channel.receive()
        if answer["type"] == "welcome":
            return connection, channel, answer["token"]
        connection.close()
        assert answer == {"type": "busy"}
        assert time.monotonic() < deadline, "the server never became free"


def is_closed(connection: socket.socket) -> bool:
    """Return whether the other end closes it soon, without sending anything."""
    connection.settimeout(WAIT_S)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def measures(address: tuple[str, int]) -> None:
    """Check that the server serves a client now."""
    connection, channel, _ = welcomed(address)
    with connection:
        channel.send({"type": "ping"})
        channel.expect("pong")


# --- Bytes and lines ------------------------------------------------------------------------------


def flow_of(stream: socket.socket, span: Span) -> Flow:
    return Flow([stream], sends=False, receives=True, span=span)


@pytest.mark.parametrize(("begin", "counted"), [(0.0, 1000), (1e9, 0)])
def test_only_what_arrives_in_the_span_counts(begin: float, counted: int) -> None:
    one, other = socket.socketpair()
    with one, other:
        flow = flow_of(one, Span(begin=begin, end=1e12))
        flow.start()
        other.sendall(b"x" * 1000)
        other.shutdown(socket.SHUT_WR)
        flow._receiver.join(WAIT_S)  # it ends when it has no stream left
        carried = flow.stop()
    assert (carried.bytes, carried.lost) == (counted, 1)


def test_far_streams_pace_themselves_as_those_of_pccl() -> None:
    with socket.socket() as stream:
        wire.suit(stream, wan=True, congestion="reno")
        pacing = stream.getsockopt(socket.SOL_SOCKET, wire.SO_MAX_PACING_RATE, 8)
        assert int.from_bytes(pacing, sys.byteorder) == 10**12
        unsent = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        assert unsent == 64 << 10
        assert wire._congestion(stream) == "reno"
        with pytest.raises(WireError, match="refuses the congestion control nosuch"):
            wire.suit(stream, wan=True, congestion="nosuch")


def test_near_streams_do_not_pace_themselves() -> None:
    with socket.socket() as stream:
        wire.suit(stream, wan=False, congestion="")
        assert not wire._congestion(stream).startswith("bbr")
        pacing = stream.getsockopt(socket.SOL_SOCKET, wire.SO_MAX_PACING_RATE, 8)
        assert int.from_bytes(pacing, sys.byteorder) == 2**64 - 1  # no pacing


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"hello\n", "no message"),
        (b"[1]\n", "no message"),
        (b"\xff\xfe\n", "no message"),
        (b"[" * 5000 + b"\n", "no message"),
        (b"x" * 20000, "more than 8192 bytes"),
        (b'{"type": "pong"}', "closed"),
    ],
)
def test_lines_that_break_the_rules(line: bytes, says: str) -> None:
    one, other = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with one, other:
        other.connect(one.getsockname())
        accepted, _ = one.accept()
        with accepted:
            accepted.sendall(line)
            accepted.shutdown(socket.SHUT_WR)
            with pytest.raises(WireError, match=says):
                Channel(other).receive(WAIT_S)


def test_a_line_that_trickles_is_not_waited_for_longer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as stream:
        stream.connect(listener.getsockname())
        accepted, _ = listener.accept()
        over = threading.Event()

        def trickle() -> None:
            with accepted, contextlib.suppress(OSError):
                while not over.wait(0.05):
                    accepted.sendall(b"x")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        began_at = time.monotonic()
        with pytest.raises(WireError, match=r"said nothing for 0\.3 s"):
            Channel(stream).receive(0.3)
        over.set()
        thread.join(WAIT_S)
        assert time.monotonic() - began_at < WAIT_S


BAD_TRIALS = [
    ("streams", 0),
    ("streams", 129),
    ("streams", True),
    ("streams", "4"),
    ("seconds", 61),
    ("seconds", 0),
    ("seconds", float("nan")),
    ("seconds", 10**400),
    ("seconds", None),
    ("direction", "up"),
    ("direction", ["there"]),
    ("wan", 1),
    ("congestion", "../x"),
    ("congestion", "x" * 16),
]


@pytest.mark.parametrize(("name", "value"), BAD_TRIALS, ids=lambda value: repr(value)[:20])
def test_what_a_client_may_ask_is_bounded(name: str, value: object) -> None:
    good = Trial(streams=128, seconds=60, direction="both", wan=True).to_message()
    assert Trial.from_message(good).streams == 128
    with pytest.raises(WireError, match=name):
        Trial.from_message({**good, name: value})


@pytest.mark.parametrize("value", [-1, True, "1", None, float("nan"), float("inf"), 10**400])
def test_numbers_of_the_other_end_are_bounded(value: object) -> None:
    with pytest.raises(WireError, match="bytes"):
        wire.number({"bytes": value}, "bytes")


# --- A whole measurement --------------------------------------------------------------------------


def test_measures_every_direction(address: tuple[str, int]) -> None:
    # Each step is long enough for its first bytes even if the machine's cores stall for 0.5 s.
    plan = Plan(streams=(1, 3), seconds=2, directions=("there", "back", "both"))
    with Client(*address) as client:
        assert 0 < client.rtt() < WAIT_S
        rates = list(client.measure(plan, rtt=0.1))
    assert [(rate.streams, rate.direction) for rate in rates] == [
        (streams, direction) for streams in (1, 3) for direction in ("there", "back", "both")
    ]
    for rate in rates:
        assert (rate.there is None) == (rate.direction == "back")
        assert (rate.back is None) == (rate.direction == "there")
        assert min(value for value in (rate.there, rate.back) if value is not None) > 1
    # Another test may allow cubic for the whole machine at the same time.
    assert client.settings.allowed
    here = HostSettings.from_texts(settings.read())
    assert client.settings == dataclasses.replace(here, allowed=client.settings.allowed)


def test_the_commands(tmp_path: Path) -> None:
    picture = tmp_path / "probe.png"
    with Program([*PROBE, "--serve", "--port", "0"]) as server:
        words = server.line().split()
        assert words[:3] == ["pccl", "probe", "listening"]
        options = ["--streams", "1,2", "--seconds", "2", "--plot", str(picture)]
        done = run_program([*PROBE, words[-1], *options], timeout=30)
        assert done.returncode == 0, done.stderr
        for text in ("ms RTT", "6 measurements", "Knee: ", "world 2: ", "tcp_wmem"):
            assert text in done.stdout
        assert picture.read_bytes().startswith(b"\x89PNG")
        server.send_signal(signal.SIGINT)
        assert server.wait(WAIT_S) == 0


def test_ctrl_c_ends_a_measurement(address: tuple[str, int]) -> None:
    name = f"{address[0]}:{address[1]}"
    command = [*PROBE, name, "--streams", "2", "--seconds", "60"]
    with Program(command, stderr=subprocess.PIPE) as client:
        while not (line := client.line()).startswith("streams"):
            assert line, "it ended without a measurement"
        client.send_signal(signal.SIGINT)
        _, errors = client.communicate(timeout=WAIT_S)
        assert errors == "\npccl probe: interrupted\n"
        assert client.returncode == 130
    measures(address)


def test_pccl_names_it() -> None:
    assert "probe" in run_program([*PROBE[:-1], "--help"]).stdout


def test_imports_no_torch() -> None:
    program = "import sys, pccl_backend.probe; print('torch' in sys.modules)"
    assert run_program([sys.executable, "-c", program]).stdout == "False\n"


# --- Clients that misbehave -----------------------------------------------------------------------


def test_a_second_client_is_told_that_it_is_busy(address: tuple[str, int]) -> None:
    connection, _, _ = welcomed(address)
    with connection, pytest.raises(ProbeError, match="busy with another client: try again"):
        Client(*address)
    measures(address)


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\n",
        b"{}\n",
        b"[" * 8000 + b"\n",
        b"x" * 9000,
        json.dumps({**hello("control"), "version": 2}).encode() + b"\n",
        json.dumps({**hello("control"), "token": [1]}).encode() + b"\n",
        json.dumps(hello("master")).encode() + b"\n",
        json.dumps(hello("data", "guessed")).encode() + b"\n",
    ],
    ids=lambda words: words[:12],
)
def test_garbage_costs_its_connection(address: tuple[str, int], words: bytes) -> None:
    with socket.create_connection(address, timeout=WAIT_S) as pending:
        pending.sendall(words)
        assert is_closed(pending)
    measures(address)


def test_silence_costs_its_connection(serve: Serve) -> None:
    address = serve(hello_timeout_s=0.2)
    with socket.create_connection(address) as silent, socket.create_connection(address) as slow:
        slow.sendall(b"{")
        assert is_closed(silent)
        assert is_closed(slow)
    measures(address)


def test_a_crowd_of_strangers_keeps_nobody_out(serve: Serve) -> None:
    address = serve(hello_timeout_s=60)
    with contextlib.ExitStack() as stack:
        crowd = [
            stack.enter_context(socket.create_connection(address, timeout=WAIT_S))
            for _ in range(PENDING_MAX + 20)
        ]
        measures(address)
        assert is_closed(crowd[0]), "the eldest makes room"


@pytest.mark.parametrize(
    "asked",
    [
        {"type": "trial"},
        {**Trial(streams=1, seconds=1, direction="both", wan=True).to_message(), "streams": 129},
        {"type": "result"},
        {},
    ],
    ids=str,
)
def test_a_client_that_asks_too_much_is_sent_away(
    address: tuple[str, int], asked: dict[str, object]
) -> None:
    connection, channel, _ = welcomed(address)
    with connection:
        channel.send(asked)
        with pytest.raises(WireError, match=r"says: (streams is|asked for nothing)"):
            channel.expect("ready")
    measures(address)


def test_streams_are_those_of_the_client(address: tuple[str, int]) -> None:
    connection, channel, token = welcomed(address)
    trial = Trial(streams=1, seconds=0.2, direction="there", wan=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(connection)

        def stream(word: str) -> socket.socket:
            opened = stack.enter_context(socket.create_connection(address, timeout=WAIT_S))
            Channel(opened).send(hello("data", word))
            return opened

        assert is_closed(stream(token)), "none is wanted yet"
        channel.send(trial.to_message())
        channel.expect("ready")
        assert is_closed(stream("another")), "not its token"
        Channel(stream(token)).expect("joined")
        assert is_closed(stream(token)), "one more than was asked for"
        channel.send({"type": "go"})
        assert channel.expect("result")["bytes"] == 0


def test_go_without_streams(address: tuple[str, int]) -> None:
    connection, channel, _ = welcomed(address)
    with connection:
        channel.send(Trial(streams=2, seconds=60, direction="both", wan=True).to_message())
        channel.expect("ready")
        channel.send({"type": "go"})
        with pytest.raises(WireError, match="2 streams were missing"):
            channel.expect("result")


@pytest.mark.parametrize("leaves", [True, False])
def test_a_client_that_vanishes_or_speaks_in_a_trial_frees_the_server(
    address: tuple[str, int], leaves: bool
) -> None:
    connection, channel, token = welcomed(address)
    with connection, socket.create_connection(address, timeout=WAIT_S) as stream:
        channel.send(Trial(streams=1, seconds=60, direction="back", wan=True).to_message())
        channel.expect("ready")
        data = Channel(stream)
        data.send(hello("data", token))
        data.expect("joined")
        channel.send({"type": "go"})
        assert stream.recv(1000), "bytes flow"
        if leaves:
            connection.close()
        else:
            channel.send({"type": "ping"})
            with pytest.raises(WireError, match="middle of a measurement"):
                channel.expect("result")
        measures(address)


# --- Servers that are not probe servers -----------------------------------------------------------


def test_nobody_listens() -> None:
    with pytest.raises(ProbeError, match="is `pccl probe --serve` running there"):
        Client("127.0.0.1", free_port())


def test_no_such_host() -> None:
    with pytest.raises(ProbeError, match=r"cannot connect to nowhere\.invalid:48149"):
        Client("nowhere.invalid", 48149)


def test_a_master_is_no_probe_server(master: Master) -> None:
    with pytest.raises(ProbeError, match=r"is no probe server .*`pccl probe --serve`"):
        Client("127.0.0.1", master.port)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (b"", "said nothing for 0.3 s"),
        (b"220 mail.example ESMTP\r\n", "220 mail.example"),
        (b'{"type": "\\u001b[2J"}\n', "is no probe server"),
    ],
)
def test_another_server_is_no_probe_server(words: bytes, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(words)
                connection.recv(1000)
                connection.settimeout(WAIT_S)
                connection.recv(1000)  # until the client gives up

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(ProbeError, match=says) as caught:
            Client(*listener.getsockname(), timeout_s=0.3)
        assert "\x1b" not in str(caught.value)
        thread.join(WAIT_S)
        assert not thread.is_alive()


# --- Arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name the HOST"),
        (["a", "--serve"], "leave HOST out"),
        (["a", "--host", "b"], "without it"),
        (["a", "--insecure"], "--insecure goes with --serve"),
        (["--serve", "--host", "0.0.0.0"], "add --insecure if you trust that network"),
        (["--serve", "--host", "::"], "nobody proves who they are"),
        (["--serve", "--host", "example.com"], "--host example.com serves everybody"),
        (["a:1", "--port", "2"], "two ports, 1 and 2"),
        (["a:0"], "must be 1 to 65535"),
        (["a:99999"], "'99999', must be a number from 0 to 65535"),
        (["[::1]x"], "write [v6]:port"),
        ([":1"], "names no host"),
        (["a", "--streams", "1,129"], "'129' is no number of streams from 1 to 128"),
        (["a", "--streams", "0"], "'0' is no number of streams"),
        (["a", "--streams", ""], "write them as 1,2,4"),
        (["a", "--streams", ",".join(map(str, range(1, 18)))], "17 numbers of streams, at most 16"),
        (["a", "--seconds", "61"], "'61', must be a number from 0.2 to 60"),
        (["a", "--seconds", "nan"], "'nan', must be a number"),
        (["a", "--parameters", "0"], "'0', must be a number from 1 to 1e+15"),
        (["a", "--bytes-per-parameter", "x"], "'x', must be a number"),
        (["a", "--plot", "x.jpeg"], "must end in .pdf, .png, .svg"),
    ],
)
def test_mistakes(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert says in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("a", ("a", 48149)),
        ("a:1", ("a", 1)),
        ("::1", ("::1", 48149)),
        ("[::1]", ("::1", 48149)),
        ("[::1]:7", ("::1", 7)),
    ],
)
def test_targets(text: str, target: tuple[str, int]) -> None:
    assert command._parse([text]).target == target


def test_by_default_it_takes_less_than_a_minute() -> None:
    options = command._parse(["a"])
    assert len(options.streams) * 3 * options.seconds < 60


def test_a_picture_that_could_not_be_drawn_is_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProbeError, match="there is no folder"):
        command._check_plot(tmp_path / "nowhere" / "x.png")
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(ProbeError, match=r"pip install 'pccl\[demo\]'"):
        command._check_plot(tmp_path / "x.png")


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        done = run_program([*PROBE, "--serve", "--port", port])
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
