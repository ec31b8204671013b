"""A master that runs for months: signals, first lines, journal copies, limits, its unit.

docs/operating.md makes the promises that are tested here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet
from programs import Program
from world import run_program

from pccl_backend.cli import MASTER

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging" / "pccl-master.service"
PCCL = [sys.executable, "-m", "pccl_backend.cli"]


def start_lines(journal: Path, lines: int) -> list[str]:
    """Start a master with this journal; return its output after its address and its path."""
    with Program([*PCCL, "master", "--port", "0", "--journal", str(journal)]) as master:
        assert master.line().startswith("pccl master listening on 127.0.0.1:")
        assert master.line() == "admits everybody on this machine, in plain text\n"
        assert master.line() == f"remembers its runs in {journal}\n"
        said = [master.line().rstrip("\n") for _ in range(lines)]
        master.terminate()
        assert master.communicate() == ("", None)
        assert master.returncode == 0
    return said


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(journal=tmp_path / "journal")
    yield fleet
    fleet.close()


def test_it_outlives_its_terminal(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with Program([*PCCL, "master", "--port", "0", "--journal", str(journal)]) as master:
        for _ in range(3):  # its lines; after them it waits for signals
            assert master.line()
        master.send_signal(signal.SIGHUP)
        done = run_program([*PCCL, "runs", "--journal", str(journal)])
        assert (done.returncode, done.stdout) == (0, "this master has no runs\n"), done.stderr
        master.terminate()
        assert master.wait() == 0


def test_it_says_at_its_start_what_it_remembers(fleet: Fleet, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    assert start_lines(tmp_path / "another", 1) == ["it knows no runs so far"]
    peers = fleet.found(2, run="night")
    for peer in peers:
        peer.tell("set_state", value=1.0, revision=7)
        assert peer.answer()["ok"]
        peer.tell("sync")
    assert all(peer.answer()["ok"] for peer in peers)
    fleet.kill_master()
    assert start_lines(journal, 2) == [
        "it knows 1 run: 1 going on with 2 members, 0 finished",
        'run "night": 2 members may come back, shared state at revision 7',
    ]


def test_a_copy_of_the_journal_of_a_running_master_is_a_journal(
    fleet: Fleet, tmp_path: Path
) -> None:
    """The shared state advances while the copies are made, so a copy may end within a write."""
    peers = fleet.found(2, run="night")
    for peer in peers:
        peer.tell("set_state", value=1.0, revision=1)
        assert peer.answer()["ok"]
        peer.tell("train")
    for peer in peers:
        assert "first_step" in peer.answer()
    copies = [tmp_path / f"copy-{number}" for number in range(20)]
    for copy in copies:
        shutil.copy(tmp_path / "journal", copy)
    revisions = []
    for copy in copies[::5]:
        head, run = start_lines(copy, 2)
        assert head == "it knows 1 run: 1 going on with 2 members, 0 finished"
        found = re.fullmatch(r'run "night": 2 .*, shared state at revision (\d+)', run)
        assert found is not None, run
        revisions.append(int(found.group(1)))
    assert revisions == sorted(revisions)


def test_a_cut_copy_of_the_journal_is_refused(tmp_path: Path) -> None:
    journal, copy = tmp_path / "journal", tmp_path / "copy"
    assert start_lines(journal, 1) == ["it knows no runs so far"]
    whole = journal.read_bytes()
    for size in (1, len(whole) // 2, len(whole) - 1):
        copy.write_bytes(whole[:size])
        done = run_program([*PCCL, "master", "--port", "0", "--journal", str(copy)], timeout=20)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert f"the journal {copy} was cut off: it has {size} bytes, and it" in done.stderr
        assert "Put back a copy that can be read, or begin afresh with --new" in done.stderr
        assert copy.read_bytes() == whole[:size]
    assert f"and it had at least {len(whole)} when it was made" in done.stderr


@pytest.mark.parametrize("exists", [True, False])
def test_an_empty_journal_is_warned_of(tmp_path: Path, exists: bool) -> None:
    journal, log = tmp_path / "journal", tmp_path / "log"
    if exists:
        journal.touch()
    command = [*PCCL, "master", "--port", "0", "--journal", str(journal)]
    with log.open("w") as errors, Program(command, stderr=errors) as master:
        for _ in range(3):
            assert master.line()
        assert master.line() == "it knows no runs so far\n"
        master.terminate()
        assert master.wait() == 0
    assert (f"the journal {journal} is an empty file" in log.read_text()) == exists


# --- Limits ---------------------------------------------------------------------------------------


def test_a_master_without_memory_says_so(tmp_path: Path) -> None:
    """It reads its journal, which is larger than the memory that it may have."""
    journal = tmp_path / "journal"
    with journal.open("wb") as file:
        file.truncate(1 << 30)  # takes no space on the disk
    limited = ["sh", "-c", 'ulimit -v 524288; exec "$@"', "-"]
    done = run_program([*limited, str(MASTER), "--port", "0", "--journal", str(journal)])
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("pccl master: there is no memory left, so this master ends.")


def death_by_abort(program: Program) -> int:
    """Kill the program as a failed assertion does; return how it died: an si_code of waitid()."""
    program.send_signal(signal.SIGABRT)
    found = os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert found is not None
    assert program.wait() == -signal.SIGABRT
    return found.si_code


def test_a_master_leaves_no_core(tmp_path: Path) -> None:
    """Its memory has the secrets of tokens. Here the limit on core dumps is lifted."""
    lifted = ["sh", "-c", 'ulimit -S -c "$(ulimit -H -c)"; exec "$@"', "-"]
    with Program([*lifted, "sh", "-c", "echo begun; exec sleep 600"], cwd=tmp_path) as other:
        assert other.line() == "begun\n"
        if death_by_abort(other) != os.CLD_DUMPED:
            pytest.skip("SKIPPED: this machine makes no core dumps, so none can be missing")
    command = [*lifted, *PCCL, "master", "--port", "0", "--no-journal"]
    with Program(command, cwd=tmp_path) as master:
        assert master.line().startswith("pccl master listening on 127.0.0.1:")
        assert death_by_abort(master) == os.CLD_KILLED


# --- The unit -------------------------------------------------------------------------------------


def test_the_unit_is_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: packaging/pccl-master.service is not checked")
    text = UNIT.read_text()
    assert text.count("/opt/pccl/bin/pccl ") == 1
    program = tmp_path / "pccl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace("/opt/pccl/bin/pccl", str(program)))
    done = run_program(["systemd-analyze", "verify", str(copy)])
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_calls_the_master_as_it_is() -> None:
    """Its options exist, and it sets the same variables as the page."""
    text = UNIT.read_text()
    (command,) = re.findall(r"^ExecStart=/opt/pccl/bin/pccl master (.*)$", text, re.MULTILINE)
    explained = run_program([*PCCL, "master", "--help"]).stdout
    for option in re.findall(r"--[a-z-]+", command):
        assert option in explained
    page = (ROOT / "docs" / "operating.md").read_text()
    for name in re.findall(r"Environment=(\w+)=", page):
        assert re.search(rf"^Environment=.*\b{name}=", text, re.MULTILINE), name
    assert "/var/lib/pccl/master.journal" in page
    assert "StateDirectory=pccl\n" in text
    assert "User=pccl\n" in text
    assert "\nLimitCORE=0\n" in text
