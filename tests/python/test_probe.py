"""`pccl probe`: its results on loopback, who may connect, how it ends, and wrong arguments.

The tests of csrc/probe have what hostile clients and servers do to its connections.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from keyrings import TEXT, TOKEN, new, shows, written
from programs import Program
from world import Master, free_port, is_running, plain_text, run_program, wait_until

from pccl_backend._tokens import Token
from pccl_backend.command import endpoint
from pccl_backend.command.common import CommandError
from pccl_backend.command.endpoint import Endpoint
from pccl_backend.probe import client as client_module
from pccl_backend.probe import command, settings
from pccl_backend.probe.client import Client, Plan, ProbeError
from pccl_backend.probe.settings import HostSettings

PROBE = [sys.executable, "-m", "pccl_backend.cli", "probe"]
WAIT_S = 10.0
SHORT = Plan(streams=(1,), seconds=0.2, directions=("there",))


@pytest.fixture(autouse=True)
def _no_token_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PCCL_SECRET_FILE", raising=False)


@pytest.fixture
def server() -> Iterator[Program]:
    with Program([*PROBE, "--serve", "--port", "0"]) as program:
        yield program
        program.send_signal(signal.SIGTERM)
        assert program.wait(WAIT_S) == 0


@pytest.fixture
def address(server: Program) -> tuple[str, int]:
    return address_of(server)


def address_of(server: Program) -> tuple[str, int]:
    """Return where a server listens, from its first line."""
    words = server.line().split()
    assert words[:3] == ["pccl", "probe", "listening"]
    host, _, port = words[-1].rpartition(":")
    return host, int(port)


def measures(address: tuple[str, int], token: Token | None = None) -> None:
    """Check that the server serves a client soon; another one may be on its way out."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            with Client(*address, SHORT, token) as client:
                assert len(list(client.measure())) == 1
            return
        except ProbeError as error:
            if "busy" not in str(error) or time.monotonic() > deadline:
                raise


def endpoints_of(parent: int) -> list[int]:
    """Return the processes `pccl-probe` that a process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name == "pccl-probe" and int(rest.split()[1]) == parent:
            found.append(int(folder.name))
    return found


# --- A whole measurement --------------------------------------------------------------------------


def test_measures_every_direction(address: tuple[str, int]) -> None:
    # Each step is long enough for its first bytes even if the machine's cores stall for 0.5 s.
    plan = Plan(streams=(1, 3), seconds=2, directions=("there", "back", "both"))
    with Client(*address, plan) as client:
        assert 0 < client.rtt < WAIT_S
        rates = list(client.measure())
    assert [(rate.streams, rate.direction) for rate in rates] == [
        (streams, direction) for streams in (1, 3) for direction in ("there", "back", "both")
    ]
    for rate in rates:
        assert (rate.there is None) == (rate.direction == "back")
        assert (rate.back is None) == (rate.direction == "there")
        assert min(value for value in (rate.there, rate.back) if value is not None) > 1
        assert 0 < rate.busy < 1.5
    # Another test may allow cubic for the whole machine at the same time.
    assert client.settings.allowed
    here = HostSettings.from_texts(settings.read())
    assert client.settings == dataclasses.replace(here, allowed=client.settings.allowed)


def test_the_commands(tmp_path: Path) -> None:
    picture = tmp_path / "probe.png"
    with Program([*PROBE, "--serve", "--port", "0"]) as server:
        host, port = address_of(server)
        options = ["--streams", "1,2", "--seconds", "2", "--plot", str(picture)]
        done = run_program([*PROBE, f"{host}:{port}", *options], timeout=30)
        assert done.returncode == 0, done.stderr
        for text in ("ms RTT", "6 measurements", "Knee: ", "world 2: ", "tcp_wmem"):
            assert text in done.stdout
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert server.line() == "client 127.0.0.1: measures\n"
        assert server.line() == "client 127.0.0.1: has ended, after 6 measurements\n"
        server.send_signal(signal.SIGINT)
        assert server.wait(WAIT_S) == 0


def test_pccl_names_it() -> None:
    assert "probe" in run_program([*PROBE[:-1], "--help"]).stdout


def test_imports_no_torch() -> None:
    program = "import sys, pccl_backend.probe; print('torch' in sys.modules)"
    assert run_program([sys.executable, "-c", program]).stdout == "False\n"


# --- Its ends -------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_measurement(address: tuple[str, int]) -> None:
    name = f"{address[0]}:{address[1]}"
    words = [*PROBE, name, "--streams", "2", "--seconds", "60"]
    # A terminal sends the signal to the whole process group, `pccl-probe` included.
    with Program(words, stderr=subprocess.PIPE, start_new_session=True) as client:
        while not (line := client.line()).startswith("streams"):
            assert line, "it ended without a measurement"
        os.killpg(client.pid, signal.SIGINT)
        _, errors = client.communicate(timeout=WAIT_S)
        assert errors == "\npccl probe: interrupted\n"
        assert client.returncode == 130
    measures(address)


def test_a_killed_command_leaves_no_process(server: Program) -> None:
    address = address_of(server)
    words = [*PROBE, f"{address[0]}:{address[1]}", "--streams", "2", "--seconds", "60"]
    with Program(words) as client:
        while not client.line().startswith("streams"):
            pass
        (left,) = endpoints_of(client.pid)
        client.kill()
        client.wait(WAIT_S)
    assert wait_until(lambda: not is_running(left), timeout_s=WAIT_S), "it outlives its parent"
    measures(address)


def test_an_endpoint_ends_when_its_input_does() -> None:
    asked = {"host": "127.0.0.1", "port": 0, "about": "{}"}
    running = Endpoint({"serve": asked}, [])
    assert "listening" in next(running.lines())
    running.close()
    assert running._process.returncode == 0


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "[]",
        json.dumps({"tokens": []}),
        json.dumps({"tokens": ["x"], "serve": {"host": "a", "port": 1, "about": "{}"}}),
        json.dumps({"tokens": [], "serve": {"host": "a", "port": 1, "about": ""}}),
        json.dumps(
            {
                "tokens": [],
                "measure": {
                    "host": "a",
                    "port": 1,
                    "streams": [129],
                    "directions": ["there"],
                    "milliseconds": 1000,
                    "congestion": "",
                },
            }
        ),
    ],
)
def test_a_program_without_a_request(line: str) -> None:
    done = subprocess.run(
        [endpoint.PROGRAM], input=line, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "`pccl` starts this program" in done.stderr


def test_an_incomplete_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "PROGRAM", Path("/nowhere/pccl-probe"))
    with pytest.raises(CommandError, match="pccl-probe is missing, so this installation"):
        Client("127.0.0.1", 1, SHORT)


# --- Who may connect ------------------------------------------------------------------------------


def test_a_second_client_is_told_that_it_is_busy(address: tuple[str, int]) -> None:
    plan = dataclasses.replace(SHORT, seconds=60)
    with (
        Client(*address, plan),
        pytest.raises(ProbeError, match="busy with another client: try again"),
    ):
        Client(*address, SHORT)
    measures(address)


def test_both_ends_prove_their_token(tmp_path: Path) -> None:
    secret = written(tmp_path / "token", TEXT)
    variables = {**os.environ, "PCCL_SECRET_FILE": str(secret)}
    # With a token no --insecure is needed.
    with Program([*PROBE, "--serve", "--port", "0", "--host", "::"], env=variables) as server:
        address = ("127.0.0.1", address_of(server)[1])
        measures(address, TOKEN)
        arguments = b"".join(
            Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            for pid in endpoints_of(server.pid)
        )
        assert b"pccl-probe" in arguments
        assert not shows(arguments)
        with pytest.raises(ProbeError, match="admits only clients with a token"):
            Client(*address, SHORT)
        with pytest.raises(ProbeError, match="does not prove that it knows the token"):
            Client(*address, SHORT, Token(TOKEN.id, bytes(32)))
        with pytest.raises(ProbeError, match="does not prove that it knows the token alicealice"):
            Client(*address, SHORT, Token("alicealice", TOKEN.secret))
        done = run_program(
            [*PROBE, f"127.0.0.1:{address[1]}", "--streams", "1", "--seconds", "0.5"],
            environment={"PCCL_SECRET_FILE": str(secret)},
        )
        assert done.returncode == 0, done.stderr
        assert not shows(done.stdout + done.stderr)


def test_a_keyring_admits_all_its_tokens(tmp_path: Path) -> None:
    keyring = tmp_path / "keyring"
    tokens = [new(keyring, "alice"), new(keyring, "bob")]
    with Program([*PROBE, "--serve", "--port", "0", "--keyring", str(keyring)]) as server:
        address = address_of(server)
        for token in tokens:
            measures(address, token)
        with pytest.raises(ProbeError, match="does not prove"):
            Client(*address, SHORT, TOKEN)


def test_a_keyring_that_is_not_there(tmp_path: Path) -> None:
    done = run_program([*PROBE, "--serve", "--keyring", str(tmp_path / "none")])
    assert done.returncode == 1
    assert "there is no keyring" in done.stderr


def test_a_token_is_not_shown_to_a_server_without_one(address: tuple[str, int]) -> None:
    with pytest.raises(ProbeError, match="PCCL_SECRET_FILE"):
        Client(*address, SHORT, TOKEN)
    measures(address)


# --- Servers that are not probe servers -----------------------------------------------------------


def test_nobody_listens() -> None:
    with pytest.raises(ProbeError, match="is `pccl probe --serve` running there"):
        Client("127.0.0.1", free_port(), SHORT)


def test_no_such_host() -> None:
    with pytest.raises(ProbeError, match=r"cannot connect to nowhere\.invalid:48149"):
        Client("nowhere.invalid", 48149, SHORT)


@plain_text
def test_a_master_is_no_probe_server(master: Master) -> None:
    with pytest.raises(ProbeError, match=r"is no probe server .*`pccl probe --serve`"):
        Client("127.0.0.1", master.port, SHORT)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (b"", "said nothing for 5 s"),
        (b"220 mail.example ESMTP\r\n".ljust(80), "no pccl lane speaks like this"),
    ],
)
def test_another_server_is_no_probe_server(words: bytes, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(words)
                connection.settimeout(WAIT_S)
                while connection.recv(1000):
                    pass  # until the client gives up

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(ProbeError, match=f"is no probe server .*{says}"):
            Client(*listener.getsockname(), SHORT)
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("text", ["", "[1]", "[" * 5000, '{"tcp_wmem": 1}', '{"tcp_rmem": "a"}'])
def test_what_a_server_says_about_its_host_is_checked(text: str) -> None:
    assert HostSettings.from_texts(client_module._parsed(text)) == HostSettings()


# --- Arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name the HOST"),
        (["a", "--serve"], "leave HOST out"),
        (["a", "--host", "b"], "without it"),
        (["a", "--insecure"], "--insecure and --keyring go with --serve"),
        (["a", "--keyring", "k"], "--insecure and --keyring go with --serve"),
        (["--serve", "--keyring", "k", "--insecure"], "never speaks plain text"),
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
    with pytest.raises(ProbeError, match=r"pip install 'pccl-torch\[demo\]'"):
        command._check_plot(tmp_path / "x.png")


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        done = run_program([*PROBE, "--serve", "--port", port])
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
