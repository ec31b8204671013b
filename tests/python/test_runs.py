"""`pccl runs` and `pccl forget` with a real master, and with simulated answers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet import Fleet
from played_master import PlayedMaster
from programs import Program
from world import run_program

from pccl_backend.command import runs

PCCL = [sys.executable, "-m", "pccl_backend.cli"]
WAIT_S = 10.0

Done = subprocess.CompletedProcess[str]
Play = Callable[[bytes], Path]


def pccl(*words: str | Path, **environment: str) -> Done:
    return run_program([*PCCL, *map(str, words)], environment=environment)


@contextlib.contextmanager
def serving(journal: Path, *options: str, **environment: str) -> Iterator[Program]:
    """Start a real master; yield it once it listens."""
    where = ["--journal", str(journal)] if not options else list(options)
    command = [*PCCL, "master", "--port", "0", *where]
    with Program(command, env={**os.environ, **environment}) as master:
        assert master.line().startswith("pccl master listening on ")
        yield master


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Path]:
    """Return the journal of a running master."""
    path = tmp_path / "journal"
    with serving(path):
        yield path


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Yield a function that starts a master with one fixed answer and returns its journal."""
    played: list[PlayedMaster] = []

    def start(said: bytes) -> Path:
        played.append(PlayedMaster(tmp_path / "played", said))
        return played[-1].journal

    yield start
    for master in played:
        master.close()


# --- A real master --------------------------------------------------------------------------------


def test_a_master_without_runs(journal: Path) -> None:
    done = pccl("runs", "--journal", journal)
    assert (done.returncode, done.stdout, done.stderr) == (0, "this master has no runs\n", "")
    done = pccl("runs", "--journal", journal, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"runs": []})


def test_a_run_that_is_there(tmp_path: Path) -> None:
    fleet = Fleet(journal=tmp_path / "journal")
    try:
        fleet.found(1, run="night")
        done = pccl("runs", "--journal", tmp_path / "journal")
        assert done.returncode == 0, done.stderr
        head, row = done.stdout.splitlines()
        assert head.startswith("run    state")
        assert row.startswith("night  ")
    finally:
        fleet.close()


def test_forgetting_what_is_not_there(journal: Path) -> None:
    done = pccl("forget", "night", "--journal", journal)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pccl forget: ")


def test_the_socket_is_private_and_goes_with_the_master(tmp_path: Path) -> None:
    path = tmp_path / "journal.sock"
    before = os.umask(0)
    try:
        with serving(tmp_path / "journal") as master:
            assert stat.S_IMODE(path.lstat().st_mode) == 0o600
            master.terminate()
            assert master.wait() == 0
    finally:
        os.umask(before)
    assert not path.exists()


def test_after_a_master_that_was_killed(tmp_path: Path) -> None:
    with serving(tmp_path / "journal") as master:
        master.kill()
        master.wait()
    done = pccl("runs", "--journal", tmp_path / "journal")
    assert done.returncode == 1
    assert "has ended: start one with this journal" in done.stderr
    with serving(tmp_path / "journal"):
        assert pccl("runs", "--journal", tmp_path / "journal").returncode == 0


def test_a_journal_with_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 200) / ("e" * 200)
    folder.mkdir(parents=True)
    path = folder / ("f" * 200)
    with serving(path):
        done = pccl("runs", "--journal", path)
    assert (done.returncode, done.stdout) == (0, "this master has no runs\n"), done.stderr


def test_a_master_that_does_not_answer(journal: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "stopped") as master:
        master.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, master.pid, os.WSTOPPED)  # all its threads have stopped
        with pytest.raises(runs.MasterError, match=r"does not answer within 0\.3 s"):
            runs.ask(tmp_path / "stopped", {"command": "runs"}, timeout=0.3)
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(40)]
        for one in crowd:
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(str(tmp_path / "stopped.sock"))
        with pytest.raises(runs.MasterError, match=r"does not answer within 0\.3 s"):
            runs.ask(tmp_path / "stopped", {"command": "runs"}, timeout=0.3)
        for one in crowd:
            one.close()


def test_a_place_that_is_taken_keeps_the_master_from_starting(tmp_path: Path) -> None:
    (tmp_path / "journal.sock").write_text("dear diary")
    done = pccl("master", "--port", "0", "--journal", tmp_path / "journal")
    assert done.returncode == 1
    assert "journal.sock is a file, not a socket: move it away" in done.stderr
    done = pccl("runs", "--journal", tmp_path / "journal")
    assert done.returncode == 1
    assert "journal.sock is no socket: move it away" in done.stderr


def test_without_a_journal_there_is_nobody_to_ask(tmp_path: Path) -> None:
    with serving(tmp_path / "journal", "--no-journal"):
        done = pccl("runs", "--journal", tmp_path / "journal")
    assert done.returncode == 1
    assert f"there is no {tmp_path / 'journal.sock'}: no master with this journal" in done.stderr
    assert "--no-journal" in done.stderr


def test_another_user_is_told_so(journal: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    journal.parent.chmod(0o755)
    program = f"""
import os
from pathlib import Path
from pccl_backend.command.runs import MasterError, ask
os.chdir({str(journal.parent)!r})  # the folders above may be closed to others
os.setuid(12345)
try:
    ask(Path({journal.name!r}), {{"command": "runs"}})
except MasterError as error:
    print(error)
"""
    done = run_program([sys.executable, "-c", program])
    assert "journal.sock is not for this user" in done.stdout, done.stderr


def test_the_master_says_where_it_is_asked() -> None:
    assert "pccl runs" in pccl("master", "--help").stdout


@pytest.mark.parametrize("state", [None, "relative", "state"])
def test_the_default_place_is_the_masters(tmp_path: Path, state: str | None) -> None:
    """With its own port, the master chooses the default folder itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    absolute = {"state": str(tmp_path / "state")}
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": absolute.get(state or "", state or "")}
    command = [*PCCL, "master", "--port", port]
    with Program(command, env={**os.environ, **home}) as master:
        assert master.line().startswith("pccl master listening on ")
        done = pccl("runs", "--port", port, **home)
    assert (done.returncode, done.stdout) == (0, "this master has no runs\n"), done.stderr


# --- Answers of a master --------------------------------------------------------------------------

NIGHT = {
    "run": "night",
    "state": "training",
    "peers": 3,
    "address": "10.0.0.7",
    "since": 1764000000,
    "shared_states": [
        {"group": 0, "revision": 120, "hash": "00c0ffee00c0ffee"},
        {"group": 1, "revision": 7, "hash": "0123456789abcdef"},
    ],
}


def test_the_table(play: Play) -> None:
    later = {"run": "東京", "state": "finished", "peers": 0, "since": 1764000061, "new": [1]}
    journal = play(json.dumps({"runs": [NIGHT, later, {"run": "x"}, 7]}).encode() + b"\n")
    done = pccl("runs", "--journal", journal, TZ="UTC")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "run    state     peers  since                shared state (group: revision, hash)\n"
        "night  training  3      2025-11-24 16:00:00  0: 120, 00c0ffee00c0ffee\n"
        "                                             1: 7, 0123456789abcdef\n"
        "東京   finished  0      2025-11-24 16:01:01  -\n"
        "x      -         -      -                    -\n"
        "-      -         -      -                    -\n"
    )


def test_names_do_not_command_the_terminal(play: Play) -> None:
    run = {"run": "a\x1b[2J\u202e[bold]b", "state": "x\ny", "since": 1e300, "shared_states": ["\n"]}
    journal = play(json.dumps({"runs": [run]}).encode() + b"\n")
    done = pccl("runs", "--journal", journal, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["a\\x1b[2J\\u202e[bold]b  x\\ny   -      -      -"]


def test_a_terminal_that_lacks_characters(play: Play) -> None:
    said = '{"runs":[{"run":"東京"}]}\n'.encode()
    journal = play(said)
    done = pccl("runs", "--journal", journal, PYTHONIOENCODING="ascii")
    assert "\\u6771\\u4eac" in done.stdout, done.stderr
    done = pccl("runs", "--journal", journal, "--json", PYTHONIOENCODING="ascii")
    assert done.stdout.encode() == said, "JSON is passed on as it is"


def test_what_was_forgotten_is_shown(play: Play) -> None:
    journal = play(json.dumps({"forgot": NIGHT}).encode() + b"\n")
    done = pccl("forget", "night", "--journal", journal)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("forgotten:\nrun ")
    assert "\nnight " in done.stdout
    assert "00c0ffee00c0ffee" in done.stdout


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b'{"error":"it trains\\u001b"}\n', "pccl runs: it trains\\x1b\n"),
        (b"", "without an answer"),
        (b"[]\n", "did not answer as a master does"),
        (b'{"runs":[]}', "did not answer as a master does"),
        (b"[" * 100_000 + b"\n", "did not answer as a master does"),
        (b"\xff\n", "did not answer as a master does"),
        (b"{}\n", "names no runs"),
    ],
)
def test_answers_that_are_none(play: Play, said: bytes, shown: str) -> None:
    done = pccl("runs", "--journal", play(said))
    assert (done.returncode, done.stdout) == (1, "")
    assert shown in done.stderr
    assert "Traceback" not in done.stderr


def test_a_long_answer_that_is_cut_off_by_its_reader(play: Play) -> None:
    everything = {"runs": [{**NIGHT, "run": f"run-{number}"} for number in range(20_000)]}
    journal = play(json.dumps(everything).encode() + b"\n")
    command = [*PCCL, "runs", "--journal", str(journal)]
    with Program(command, stderr=subprocess.PIPE) as asked:
        assert asked.line().startswith("run ")
        assert asked.stdout is not None
        asked.stdout.close()
        assert asked.wait() == -signal.SIGPIPE


# --- Wrong arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["runs", "x"], "unrecognized arguments: x"),
        (["runs", "--journal", ""], "the path is empty"),
        (["runs", "--journal", "x", "--port", "1"], "not allowed with"),
        (["runs", "--port", "0"], "port is '0', must be a number from 1 to 65535"),
        (["forget"], "required: RUN"),
        (["forget", ""], "the name is empty"),
        (["forget", "\udcff"], "is no UTF-8"),
    ],
)
def test_mistakes(words: list[str], says: str) -> None:
    done = pccl(*words)
    assert done.returncode == 2
    assert says in done.stderr


def test_without_a_home() -> None:
    done = pccl("runs", HOME="", XDG_STATE_HOME="")
    assert done.returncode == 2
    assert "HOME is not set: give --journal PATH" in done.stderr
