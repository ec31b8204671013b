"""`pccl master --http`: the pages of a real master, for browsers, programs and attackers."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import resource
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet
from keyrings import TEXT, TOKEN, new, revoke, serving, shows, written
from programs import Program
from test_runs import PCCL, pccl
from world import plain_text, run_program, wait_until

from pccl_backend._tokens import Token
from pccl_backend.command import runs

WAIT_S = 30.0
REQUEST_S = 5.0  # a master waits so long for a request (master/shell/http_server.h)
LINE = "shows its runs at "


class Page:
    """The pages of one master, as a client sees them."""

    def __init__(self, url: str, token: Token | None = None) -> None:
        self.url = url
        self.port = int(url.rstrip("/").rpartition(":")[2])
        self._login = {} if token is None else {"Authorization": login(token)}

    def get(self, target: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        """Return the status and the text of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        with contextlib.closing(connection):
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, target, headers=self._login | given)
            answer = connection.getresponse()
            assert answer.headers["Cache-Control"] == "no-store"
            assert "Access-Control-Allow-Origin" not in answer.headers
            return answer.status, answer.read().decode()

    def json(self, target: str) -> object:
        status, text = self.get(target)
        assert status == 200, text
        return json.loads(text)

    @contextlib.contextmanager
    def events(self, run: str) -> Iterator[Iterator[tuple[str, object]]]:
        """Yield the events of a stream: the name and the data of each."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        with contextlib.closing(connection):
            connection.request("GET", f"/events?run={run}", headers=self._login)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["Content-Type"] == "text/event-stream"
            yield read_events(answer)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_S)


def read_events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, object]]:
    name = ""
    while line := answer.readline().decode():
        field, _, value = line.rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def login(token: Token) -> str:
    pair = f"{token.id}:{token.http_password()}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def url_of(master: Program) -> str:
    while line := master.line(WAIT_S):
        if line.startswith(LINE):
            return line.removeprefix(LINE).strip()
    raise AssertionError("the master has not printed the address of its pages")


def serve(fleet: Fleet, port: int = 0) -> str:
    """Start the master of the fleet again, with pages."""
    fleet.kill_master()
    fleet.start_master("--http", str(port))
    return url_of(fleet.master)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with contextlib.closing(Fleet(journal=tmp_path / "journal")) as started:
        yield started


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Yield the pages of a master without runs and without a keyring."""
    with serving(tmp_path, "--http", "0") as master:
        yield Page(url_of(master))


# --- What is shown --------------------------------------------------------------------------------


@plain_text
def test_the_pages_show_what_status_shows(fleet: Fleet) -> None:
    shown = Page(serve(fleet))
    fleet.found(1, run="night")
    assert shown.get("/")[1].startswith("<!DOCTYPE html>")
    assert shown.get("/run/night")[1] == shown.get("/")[1]
    listed = shown.json("/api/v1/runs")
    assert isinstance(listed, dict)
    assert [run["run"] for run in listed["runs"]] == ["night"]
    status = pccl("status", "night", "--json", "--journal", fleet.journal or "")
    snapshot = shown.json("/api/v1/run/night")
    assert isinstance(snapshot, dict)
    assert snapshot.keys() == json.loads(status.stdout).keys()
    assert [peer["rank"] for peer in snapshot["groups"][0]["peers"]] == [0]
    assert shown.json("/healthz") == {"healthy": True}


@plain_text
def test_a_stream_has_a_snapshot_each_second_until_its_run_ends(fleet: Fleet) -> None:
    shown = Page(serve(fleet))
    (peer,) = fleet.found(1, run="night")
    with shown.events("night") as events:
        assert next(events)[0] == "snapshot"
        began = time.monotonic()
        for _ in range(2):
            name, data = next(events)
            assert name == "snapshot"
            assert isinstance(data, dict)
            assert data["run"] == "night"
        assert time.monotonic() - began >= 1.0
        assert peer.call("leave")["ok"]
        rest = dict(events)
        assert isinstance(rest["gone"], dict)
        assert 'run "night" is' in rest["gone"]["error"]


@plain_text
def test_a_master_that_is_started_again_serves_its_runs(fleet: Fleet) -> None:
    shown = Page(serve(fleet))
    fleet.found(1, run="night")
    with shown.events("night") as events:
        next(events)
        serve(fleet, shown.port)
        with contextlib.suppress(ConnectionError):
            assert len(list(events)) <= 2
    with shown.events("night") as events:
        name, data = next(events)
        assert isinstance(data, dict)
        assert (name, data["run"]) == ("snapshot", "night")


def test_a_run_that_is_not_known(page: Page) -> None:
    for target in ("/api/v1/run/day", "/events?run=day"):
        status, text = page.get(target)
        assert status == 404
        assert 'run "day" is not known to this master' in json.loads(text)["error"]


# --- Attacks --------------------------------------------------------------------------------------


def test_other_methods_are_refused(page: Page) -> None:
    for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert page.get("/", method)[0] == 405


def test_other_hosts_and_origins_are_refused(page: Page) -> None:
    assert page.get("/api/v1/runs", Host="evil.example")[0] == 421
    assert page.get("/api/v1/runs", Host=f"127.0.0.1.evil.example:{page.port}")[0] == 421
    assert page.get("/api/v1/runs", Origin="http://evil.example")[0] == 403
    assert page.get("/api/v1/runs", Sec_Fetch_Site="cross-site")[0] == 403
    assert page.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
    assert page.get("/api/v1/runs", Host="localhost:9000")[0] == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nGET / HTT",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /" + b"x" * 4000,
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 4000,
        b"\r\n\r\n" * 4000,
    ],
)
def test_bytes_that_are_no_request_get_a_refusal(page: Page, request_: bytes) -> None:
    end = contextlib.suppress(ConnectionResetError)  # without an answer, after a while
    with page.connect() as connection, end:
        connection.sendall(request_)
        assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert page.get("/healthz")[0] == 200


def test_a_connection_has_one_answer(page: Page) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with page.connect() as connection:
        connection.sendall(request * 50 + b"\0garbage")
        answer = b""
        with contextlib.suppress(ConnectionError):  # bytes that were not read reset it
            while piece := connection.recv(1 << 16):
                answer += piece
        assert answer.count(b"HTTP/1.1 200 OK") == 1


def test_a_thousand_connections_and_slow_ones_disturb_nobody(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip(f"SKIPPED: this process may open {hard} files, and 1,000 connections need more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    with serving(tmp_path, "--http", "0") as master, contextlib.ExitStack() as opened:
        page = Page(url_of(master))
        before = memory_of(master)
        flood = [opened.enter_context(page.connect()) for _ in range(1000)]
        for number, connection in enumerate(flood):
            connection.settimeout(WAIT_S)
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * (number % 7000))
        began = time.monotonic()
        assert json.loads(runs.ask(journal, {"command": "runs"})) == {"runs": []}
        assert page.get("/healthz")[0] == 200
        assert time.monotonic() - began < REQUEST_S
        assert memory_of(master) - before < 32 << 20
        for connection in flood:
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1 << 16) == b""


def memory_of(master: Program) -> int:
    """Return the bytes of memory that the process of the master has."""
    (line,) = [
        line
        for line in Path(f"/proc/{master.pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    ]
    return int(line.split()[1]) << 10


# --- Passwords ------------------------------------------------------------------------------------


def test_a_keyring_asks_for_the_password_of_a_token(tmp_path: Path) -> None:
    keyring = tmp_path / "keyring"
    alice = new(keyring, "alice", "--role", "observer")
    bob = new(keyring, "bob", "--role", "observer", "--run", "night")
    with serving(tmp_path, "--keyring", keyring, "--http", "0") as master:
        url = url_of(master)
        stranger = Page(url)
        for target in ("/", "/run/night", "/api/v1/runs", "/metrics", "/events?run=night"):
            assert stranger.get(target)[0] == 401
        assert stranger.get("/healthz")[0] == 200
        other = Token(alice.id, bob.secret)
        assert Page(url, other).get("/")[0] == 401
        secret = base64.b64encode(f"{alice.id}:{alice.text().rpartition('.')[2]}".encode()).decode()
        assert stranger.get("/", Authorization=f"Basic {secret}")[0] == 401
        assert Page(url, alice).get("/")[0] == 200
        assert Page(url, alice).get("/api/v1/run/day")[0] == 404
        assert Page(url, bob).get("/api/v1/run/day")[0] == 403
        assert Page(url, bob).get("/metrics")[0] == 403
        # The end of `serving` kills the master, and with it the lines that its log has not written.
        log = tmp_path / "master.log"
        assert wait_until(lambda: "wrong user or password" in log.read_text(), timeout_s=WAIT_S)
    assert not shows(log.read_bytes(), alice)


def test_a_revoked_token_ends_its_stream(tmp_path: Path) -> None:
    fleet = Fleet(journal=tmp_path / "journal", secured=True)
    with contextlib.closing(fleet):
        watcher = new(fleet.keyring, "watcher", "--role", "observer")
        shown = Page(serve(fleet), watcher)
        fleet.found(1, run="night")
        with shown.events("night") as events:
            assert next(events)[0] == "snapshot"
            assert revoke(fleet.keyring, watcher.id, fleet.journal).returncode == 0
            with contextlib.suppress(ConnectionError):
                assert all(name == "snapshot" for name, _ in events)
        assert shown.get("/")[0] == 401


def test_the_command_prints_user_and_password(tmp_path: Path) -> None:
    file = written(tmp_path / "token", TEXT)
    done = pccl("token", "http-password", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{TOKEN.id}:{TOKEN.http_password()}\n"
    assert not shows(done.stdout)
    missing = pccl("token", "http-password", tmp_path / "nothing")
    assert missing.returncode == 1
    assert missing.stderr.endswith("/nothing: the file does not exist\n")
    itself = pccl("token", "http-password", TEXT)
    assert itself.returncode == 2
    assert not shows(itself.stdout + itself.stderr)


# --- Places ---------------------------------------------------------------------------------------


def test_a_unix_socket_is_for_its_user_and_needs_no_password(tmp_path: Path) -> None:
    new(tmp_path / "keyring", "alice")
    path = tmp_path / "pages.sock"
    options = ("--keyring", tmp_path / "keyring", "--http", f"unix:{path}")
    with serving(tmp_path, *options) as master:
        assert url_of(master) == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT_S)
            connection.connect(str(path))
            connection.sendall(b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost:9000\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK\r\n")
        master.terminate()
        assert master.wait() == 0
    assert not path.exists()


def test_a_proxy_may_have_another_name(tmp_path: Path) -> None:
    options = ("--insecure", "--http", "0.0.0.0:0", "--http-behind-proxy", "Pccl.example.org")
    with serving(tmp_path, *options) as master:
        page = Page(url_of(master))
        assert page.get("/", Host="pccl.example.org")[0] == 200
        assert page.get("/", Host="example.org")[0] == 421


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--http", "80x"), '--http is "80x", and PORT, ADDRESS:PORT or unix:PATH is needed'),
        (("--http", "0.0.0.0:0"), "--http is 0.0.0.0:0, which other machines may reach, and"),
        (("--http-behind-proxy", "a"), "--http-behind-proxy names the host of a proxy for"),
        (("--http", "0", "--http-behind-proxy", "a:1"), '--http-behind-proxy is "a:1", and the'),
        (
            ("--http", "0.0.0.0:0", "--http-behind-proxy", "a"),
            "--http is 0.0.0.0:0, which other machines may reach, and this master has no keyring",
        ),
    ],
)
def test_wrong_options_are_refused(options: tuple[str, ...], text: str) -> None:
    done = run_program([*PCCL, "master", "--port", "0", "--no-journal", *options])
    assert done.returncode == 2
    assert text in done.stderr


def test_a_port_that_is_taken_is_named(page: Page) -> None:
    command = [*PCCL, "master", "--port", "0", "--no-journal", "--http", str(page.port)]
    done = run_program(command)
    assert done.returncode == 1
    assert f"--http: cannot listen on 127.0.0.1:{page.port}: address already in use" in done.stderr
    assert wait_until(lambda: page.get("/healthz")[0] == 200, timeout_s=WAIT_S)
