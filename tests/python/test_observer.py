"""`pccl status URL`: observers of a real master, from anywhere with a token."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet
from world import plain_text, run_program, wait_until

from pccl_backend._settings import OpenRun, read_url
from pccl_backend._tokens import Token
from pccl_backend.command import observing, runs
from pccl_backend.command.common import CommandError

PCCL = [sys.executable, "-m", "pccl_backend.cli"]
WAIT_S = 30.0
OBSERVERS_MAX = 64
WATCH, SNAPSHOT, REJECT = 40, 41, 2  # numbers of messages (PROTOCOL.md)
PING = 5
MAGIC = 0x4C434350
VERSION = 21
KIND = struct.Struct("<IH")


def status(url: str, *words: str, **environment: str) -> tuple[int, str, str]:
    done = run_program([*PCCL, "status", url, *words], environment=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Fleet]:
    with contextlib.closing(Fleet(journal=tmp_path / "journal")) as started:
        yield started


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Yield a fleet whose master has a keyring."""
    started = Fleet(journal=tmp_path / "journal", secured=True)
    try:
        yield started
    finally:
        started.close()


def token(fleet: Fleet, tmp_path: Path, *words: str) -> dict[str, str]:
    """Make a token; return the variable that names its file. The master notices it in a second."""
    path = tmp_path / f"token-{len(list(tmp_path.iterdir()))}"
    command = [*PCCL, "token", "new", "watcher", *words, "--out", path, "--keyring", fleet.keyring]
    subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
    variable = {"PCCL_SECRET_FILE": str(path)}
    unknown = "does not know the token"
    assert wait_until(
        lambda: unknown not in status(fleet.url("none"), **variable)[2], timeout_s=WAIT_S
    )
    return variable


def run_of(fleet: Fleet, run: str = "test") -> OpenRun:
    environment = {} if fleet.secrets is None else {"PCCL_SECRET_FILE": str(fleet.token)}
    return read_url(fleet.url(run), environment)


# --- Without tokens -------------------------------------------------------------------------------


@plain_text
def test_a_master_without_a_keyring_answers_everybody(plain: Fleet) -> None:
    plain.found(2, run="night", name="tokyo")
    code, shown, errors = status(plain.url("night", min_peers=2))
    assert (code, errors) == (0, ""), shown
    assert shown.startswith("run night: active, epoch ")
    code, shown, _ = status(plain.url("night"), "--json")
    snapshot = json.loads(shown)
    assert (code, snapshot["schema"], snapshot["run"]) == (0, 1, "night")
    assert [peer["name"] for peer in snapshot["groups"][0]["peers"]] == ["tokyo", "tokyo"]


@plain_text
def test_an_observer_is_no_peer_and_keeps_no_run_alive(plain: Fleet) -> None:
    assert plain.journal is not None
    (peer,) = plain.found(1, run="night")
    watched = observing.snapshots(run_of(plain, "night"), interval=0.2)
    for _ in range(3):
        assert len(next(watched)["groups"][0]["peers"]) == 1
    listed = json.loads(runs.ask(plain.journal, {"command": "runs"}))["runs"]
    assert [(run["run"], run["peers"]) for run in listed] == [("night", 1)]
    assert peer.call("leave")["ok"]
    with pytest.raises(CommandError, match=r'run "night" is (over|not known)'):
        for _ in watched:
            pass


@plain_text
def test_a_run_that_is_not_known(plain: Fleet) -> None:
    plain.found(1, run="secret")
    code, shown, errors = status(plain.url("day"))
    assert (code, shown) == (2, "")
    assert 'run "day" is not known to this master: `pccl runs` on the machine of the' in errors
    assert "secret" not in errors


@plain_text
def test_snapshots_come_at_most_five_times_a_second(plain: Fleet) -> None:
    plain.found(1)
    watched = observing.snapshots(run_of(plain), interval=0.2)
    next(watched)
    began = time.monotonic()
    for _ in range(5):
        next(watched)
    assert time.monotonic() - began >= 5 * 0.2
    watched.close()
    with pytest.raises(ValueError, match=r"interval is 0\.1, and must be at least 0\.2 seconds"):
        observing.snapshots(run_of(plain), interval=0.1)


@plain_text
def test_the_master_is_started_again(plain: Fleet) -> None:
    plain.found(2, run="night")
    first = observing.snapshot(run_of(plain, "night"))
    watched = observing.snapshots(run_of(plain, "night"), interval=0.2)
    next(watched)
    plain.kill_master()
    with pytest.raises(CommandError, match=r"gave no answer|does a master run there"):
        for _ in watched:
            pass
    code, shown, errors = status(plain.url("night"))
    assert (code, shown) == (2, "")
    assert f"{plain.address}: " in errors
    assert "does a master run there, and does a firewall let its port through?" in errors
    plain.start_master()
    assert wait_until(lambda: status(plain.url("night"))[0] == 0, timeout_s=WAIT_S)
    again = observing.snapshot(run_of(plain, "night"))
    assert again["master"]["incarnation"] > first["master"]["incarnation"]


# --- With tokens ----------------------------------------------------------------------------------


def test_an_observer_reads_and_cannot_join(fleet: Fleet, tmp_path: Path) -> None:
    fleet.found(2)
    observer = token(fleet, tmp_path, "--role", "observer")
    code, shown, errors = status(fleet.url(), **observer)
    assert (code, errors) == (0, ""), shown
    assert shown.startswith("run test: active")
    join = (
        "import sys, torch.distributed as d; d.init_process_group('pccl', init_method=sys.argv[1])"
    )
    done = run_program([sys.executable, "-c", join, fleet.url()], environment=observer)
    assert done.returncode != 0
    assert "is that of an observer: it may show a run (`pccl status`), and no" in done.stderr
    assert len(observing.snapshot(run_of(fleet))["groups"][0]["peers"]) == 2


def test_the_token_of_a_peer_observes(fleet: Fleet) -> None:
    fleet.found(2)
    code, shown, errors = status(fleet.url(), PCCL_SECRET_FILE=str(fleet.token))
    assert (code, errors) == (0, ""), shown


def test_a_token_for_another_run(fleet: Fleet, tmp_path: Path) -> None:
    fleet.found(1)
    observer = token(fleet, tmp_path, "--role", "observer", "--run", "day")
    for run in ("test", "none"):  # the answer does not tell whether a run exists
        code, shown, errors = status(fleet.url(run), **observer)
        assert (code, shown) == (2, "")
        assert 'of "watcher" is for other runs: ask the owner of the master' in errors
    assert 'run "day" is not known' in status(fleet.url("day"), **observer)[2]


@pytest.mark.parametrize("case", ["none", "unknown", "wrong secret"])
def test_a_wrong_token(fleet: Fleet, tmp_path: Path, case: str) -> None:
    fleet.found(1)
    right = Token.parse(fleet.token.read_text().strip())
    wrong = {
        "unknown": Token("zzzzzzzz", right.secret),
        "wrong secret": Token(right.id, bytes(32)),
    }
    environment = {}
    if case in wrong:
        path = tmp_path / "wrong.token"
        path.touch(0o600)
        path.write_text(wrong[case].text())
        environment = {"PCCL_SECRET_FILE": str(path)}
    code, shown, errors = status(fleet.url(), **environment)
    assert (code, shown) == (2, "")
    says = {
        "none": "this master admits only peers that have a token",
        "unknown": "does not know the token zzzzzzzz",
        "wrong secret": f"has another secret for the token {right.id}",
    }
    assert says[case] in errors
    assert right.text().rpartition(".")[2] not in errors


def test_a_revoked_observer_is_cut_off(fleet: Fleet, tmp_path: Path) -> None:
    fleet.found(1)
    observer = token(fleet, tmp_path, "--role", "observer")
    run = read_url(fleet.url(), observer)
    watched = observing.snapshots(run, interval=0.2)
    next(watched)
    assert run.peer.token is not None
    command = [*PCCL, "token", "revoke", run.peer.token.id, "--keyring", fleet.keyring]
    subprocess.run(
        [*command, "--journal", fleet.journal], check=True, capture_output=True, timeout=WAIT_S
    )
    with pytest.raises(CommandError, match="gave no answer"):
        for _ in watched:
            pass


# --- Observers that the test plays ----------------------------------------------------------------


class Raw:
    """An observer in plain text, as a blocking socket."""

    def __init__(self, fleet: Fleet, *, small: bool = False) -> None:
        host, _, port = fleet.address.rpartition(":")
        self.socket = socket.socket()
        if small:  # so that little waits in the buffers of the system
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        self.socket.settimeout(WAIT_S)
        self.socket.connect((host, int(port)))

    def ask(self, run: str = "test", *, times: int = 1) -> None:
        """Send the questions together: the master answers none before it has read them all."""
        name = run.encode()
        fields = struct.pack("<IHHI", MAGIC, VERSION, VERSION, len(name)) + name
        self.socket.sendall((KIND.pack(2 + len(fields), WATCH) + fields) * times)

    def hear(self) -> tuple[int, bytes]:
        """Return the number and the fields of the next message."""
        length, kind = KIND.unpack(self._read(KIND.size))
        return kind, self._read(length - 2)

    def _read(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            piece = self.socket.recv(size - len(content))
            if not piece:
                raise EOFError
            content += piece
        return content

    def hear_the_end(self) -> None:
        """Read what comes until the master has closed the connection."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                self.hear()

    def answer(self) -> str:
        """Return the text of a refusal, or "snapshot" after a whole one."""
        while True:
            kind, fields = self.hear()
            if kind == REJECT:
                return fields[5:].decode()
            assert kind == SNAPSHOT, kind
            if fields[-1] == 1:
                return "snapshot"


@plain_text
def test_the_65th_observer_is_refused(plain: Fleet) -> None:
    plain.found(1)
    with contextlib.ExitStack() as open_sockets:
        observers = [Raw(plain) for _ in range(OBSERVERS_MAX)]
        for one in observers:
            open_sockets.enter_context(one.socket)
            one.ask()
        assert {one.answer() for one in observers} == {"snapshot"}
        code, shown, errors = status(plain.url())
        assert (code, shown) == (2, "")
        assert "this master has 64 observers, the most that it serves at the same time" in errors
        observers[0].socket.close()
        assert wait_until(lambda: status(plain.url())[0] == 0, timeout_s=WAIT_S)


@plain_text
def test_a_slow_reader_is_dropped_and_delays_nobody(plain: Fleet) -> None:
    peers = plain.found(2)
    slow = Raw(plain, small=True)
    dropped = threading.Event()

    def ask_without_reading() -> None:
        with contextlib.suppress(OSError):
            while True:  # until the master has closed the connection
                slow.ask()
                time.sleep(0.21)
        dropped.set()

    thread = threading.Thread(target=ask_without_reading, daemon=True)
    thread.start()
    assert dropped.wait(120), "the master still serves it"
    slow.socket.close()
    for peer in peers:
        peer.tell("all_reduce", count=1000, seed=1)
    for peer in peers:
        assert "posted" in peer.answer()
        assert peer.answer()["ok"]
    assert status(plain.url())[0] == 0


@plain_text
@pytest.mark.parametrize("case", ["another run", "a ping", "too early"])
def test_an_observer_that_breaks_a_rule_loses_its_connection(plain: Fleet, case: str) -> None:
    plain.found(1)
    observer = Raw(plain)
    with observer.socket:
        observer.ask(times=2 if case == "too early" else 1)
        if case != "too early":
            assert observer.answer() == "snapshot"
        if case == "another run":
            observer.ask("day")
        if case == "a ping":
            observer.socket.sendall(KIND.pack(2 + 20, PING) + bytes(20))
        observer.hear_the_end()


# --- Wrong usage ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pccl://"], "names no host: expected pccl://host:port/RUN"),
        (["pccl://h:0/r"], "the port must be a number from 1 to 65535"),
        (["pccl://h/r", "--port", "1"], "a URL names the master, so --journal, --port and --pid"),
        (["pccl://h/r", "--pid", "1"], "a URL names the master, so --journal, --port and --pid"),
        (["pccl:h"], "names no host"),
    ],
)
def test_mistakes(words: list[str], says: str) -> None:
    code, shown, errors = status(words[0], *words[1:])
    assert (code, shown) == (2, "")
    assert says in errors


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(64)])
def test_another_program_listens(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        code, shown, errors = status(f"pccl://127.0.0.1:{server.getsockname()[1]}/r")
        thread.join(WAIT_S)
    assert (code, shown) == (2, "")
    assert "gave no answer (" in errors
    assert "is another program. Try again" in errors


def test_torch_is_not_imported() -> None:
    program = "import sys; import pccl_backend.command.observing; print('torch' in sys.modules)"
    assert run_program([sys.executable, "-c", program]).stdout == "False\n"
