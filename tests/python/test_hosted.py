"""`pccl status` finds the masters inside a peer's process (torchrun)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import Program
from world import require_own_name, run_program, wait_until

PCCL = [sys.executable, "-m", "pccl_backend.cli"]
HOST = socket.gethostname()
WAIT_S = 60.0

Play = Callable[..., Path]


def status(folder: Path, *words: str) -> tuple[int, str, str]:
    done = run_program([*PCCL, "status", *words], environment=places(folder))
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def places(folder: Path) -> dict[str, str]:
    return {
        "XDG_RUNTIME_DIR": str(folder / "runtime"),
        "XDG_STATE_HOME": str(folder / "state"),
        "HOME": str(folder),
    }


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Yield a function that plays a master at a socket, with one run."""
    with contextlib.ExitStack() as servers:

        def listen(name: str, run: str, state: str = "training", *, place: str = "runtime") -> Path:
            path = tmp_path / place / "pccl" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            server = servers.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(path))
            server.listen()
            threading.Thread(target=serve, args=(server, run, state), daemon=True).start()
            return path

        yield listen


def serve(server: socket.socket, run: str, state: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError, ValueError):
                request = json.loads(connection.makefile().readline() or "null")
                if request is None:
                    continue
                runs = {"runs": [{"run": run, "state": state}]}
                answer: dict[str, Any] = runs
                if request["command"] == "status":
                    answer = {"schema": 1, "run": run, "findings": []}
                connection.sendall(json.dumps(answer).encode() + b"\n")


def dead(play: Play, name: str) -> None:
    """Leave a socket that nobody listens on."""
    path = play("passing", "x").with_name(name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    path.with_name("passing").unlink()


def test_the_only_one_is_asked(play: Play, tmp_path: Path) -> None:
    play(f"4711@{HOST}.sock", "night")
    dead(play, f"4712@{HOST}.sock")
    play("4713@another-host.sock", "week")
    code, shown, errors = status(tmp_path)
    assert (code, errors) == (0, "")
    assert shown.startswith("run night")
    assert status(tmp_path, "--pid", "4711")[0] == 0


@pytest.mark.parametrize("place", ["runtime", "state"])
def test_both_folders_are_searched(play: Play, tmp_path: Path, place: str) -> None:
    play(f"4711@{HOST}.sock", "night", place=place)
    assert status(tmp_path)[1].startswith("run night")


def test_several_are_listed(play: Play, tmp_path: Path) -> None:
    play(f"4711@{HOST}.sock", "night")
    play(f"4712@{HOST}.sock", "day")
    play("master-48148.journal.sock", "week", place="state")
    code, shown, errors = status(tmp_path)
    assert (code, shown) == (2, "")
    assert "3 masters of this user run on this machine, so name a run, or one of them: " in errors
    assert 'in process 4711 (--pid 4711): run "night"; in process 4712 (--pid 4712): run' in errors
    assert '(--port 48148): run "week"' in errors
    for run in ("night", "day", "week"):
        assert status(tmp_path, run)[1].startswith(f"run {run}"), run
    assert status(tmp_path, "--pid", "4712")[1].startswith("run day")
    assert status(tmp_path, "--port", "48148")[1].startswith("run week")
    code, _, errors = status(tmp_path, "noon")
    assert code == 2
    assert "so name one of them: " in errors


def test_runs_that_are_over(play: Play, tmp_path: Path) -> None:
    play(f"4711@{HOST}.sock", "night")
    play("master-48148.journal.sock", "week", "finished", place="state")
    assert status(tmp_path)[1].startswith("run night")


def test_a_process_without_a_master(play: Play, tmp_path: Path) -> None:
    dead(play, f"4711@{HOST}.sock")
    code, _, errors = status(tmp_path, "--pid", "4711")
    assert code == 2
    assert "process 4711 has no master of this user: without --pid, `pccl status` lists" in errors
    code, _, errors = status(tmp_path)
    assert code == 2
    assert "no master with this journal runs here" in errors


@pytest.mark.parametrize("word", ["", "x", "0", "-1", "99999999999"])
def test_a_pid_is_a_number(tmp_path: Path, word: str) -> None:
    code, _, errors = status(tmp_path, f"--pid={word}")
    assert code == 2
    assert f"pid is {word!r}, must be the number of a process" in errors


# --- A real one -----------------------------------------------------------------------------------

TRAINS = """
import os, sys
import torch, torch.distributed as dist
import pccl_backend
dist.init_process_group("pccl")
dist.all_reduce(torch.ones(3))
print("ready", os.getpid(), dist.get_rank(), flush=True)
sys.stdin.readline()
dist.barrier()
dist.destroy_process_group()
"""


@contextlib.contextmanager
def world(tmp_path: Path, size: int = 2) -> Iterator[list[Program]]:
    """Start the ranks of a fixed world; yield them when all are ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with contextlib.ExitStack() as started:
        ranks = []
        for rank in range(size):
            environment = {
                **os.environ,
                **places(tmp_path),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
            }
            program = Program([sys.executable, "-c", TRAINS], stdin=-1, env=environment)
            ranks.append(started.enter_context(program))
        for program in ranks:
            assert program.line(WAIT_S).startswith("ready ")
        yield ranks


def test_the_master_of_a_fixed_world(tmp_path: Path) -> None:
    require_own_name()
    (tmp_path / "runtime").mkdir()
    folder = tmp_path / "runtime" / "pccl"
    with world(tmp_path) as ranks:
        (path,) = folder.iterdir()
        assert path.name == f"{ranks[0].pid}@{HOST}.sock"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600
        code, shown, errors = status(tmp_path)
        assert (code, errors) == (0, ""), shown
        assert ": active, epoch " in shown.splitlines()[0]
        assert "2 members" in shown.splitlines()[0]
        ranks[0].send_signal(signal.SIGKILL)
        ranks[0].wait(WAIT_S)
        assert path.exists(), "nobody could remove it"
        assert status(tmp_path)[0] == 2
    with world(tmp_path) as ranks:
        assert [one.name for one in folder.iterdir()] == [f"{ranks[0].pid}@{HOST}.sock"]
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write("go\n")
            rank.stdin.flush()
        assert [rank.wait(WAIT_S) for rank in ranks] == [0, 0]
    assert wait_until(lambda: not list(folder.iterdir()), timeout_s=WAIT_S)
