"""A hanging program and a hanging test are ended, with a message about it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import KEYBOARD, Program
from world import run_program

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); "
# The hang that the limits have to end. Each test bounds its own wait for it.
SLEEPS = "import time; time.sleep(100)"
LIMIT_S = 1
WAIT_S = 90.0

HANGS = """
import ctypes, subprocess, threading
import pytest

def stuck():
    libc = ctypes.PyDLL(None)  # its calls keep the interpreter to themselves
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)

@pytest.fixture
def stuck_at_the_end():
    yield
    stuck()

def test_in_c():
    stuck()

def test_while_it_unwinds():
    with subprocess.Popen(["sleep", "20"]):
        threading.Event().wait()

def test_after_a_failure(stuck_at_the_end):
    assert False

def test_in_a_thread_that_it_leaves():
    threading.Thread(target=threading.Event().wait).start()
"""


# ---- Tests ---------------------------------------------------------------------------------------


def run_hanging(
    folder: Path, *options: str, limit_s: int = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """Run pytest on tests that hang, with this project's conftest and a limit for each test."""
    shutil.copy(CONFTEST, folder)
    (folder / "test_it.py").write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "--timeout", str(limit_s), *options, "test_it.py"]
    return run_program(command, cwd=folder, timeout=WAIT_S)


@pytest.mark.parametrize(
    "name", ["in_c", "while_it_unwinds", "after_a_failure", "in_a_thread_that_it_leaves"]
)
def test_a_hang_ends_the_run_with_stacks(tmp_path: Path, name: str) -> None:
    ended = run_hanging(tmp_path, "-n0", "-k", name)
    assert ended.returncode == 1, ended.stdout
    assert re.search(r"^Timeout \(0:00:0[12]\.", ended.stderr, re.MULTILINE)
    assert "most recent call first" in ended.stderr
    if "thread" not in name:
        assert "test_it.py" in ended.stderr


def test_a_hang_in_a_worker_of_xdist_is_a_failure(tmp_path: Path) -> None:
    # The limit counts for the controller too, which waits for its workers on a busy machine.
    ended = run_hanging(tmp_path, "-n1", "-k", "in_c or in_a_thread", limit_s=5)
    assert ended.returncode == 1, ended.stdout
    assert "crashed while running 'test_it.py::test_in_c'" in ended.stdout
    assert "1 failed, 1 passed" in ended.stdout
    assert "in stuck" in ended.stderr


# ---- Programs ------------------------------------------------------------------------------------


def test_a_program_that_heeds_nothing_ends_with_its_block() -> None:
    began_at = time.monotonic()
    with Program([sys.executable, "-c", DEAF + SLEEPS]) as program:
        assert program.line() == "deaf\n"
        program.terminate()
    assert program.returncode == -signal.SIGKILL
    assert time.monotonic() - began_at < WAIT_S


def test_a_program_that_says_nothing_is_waited_for_no_longer_than_asked() -> None:
    with Program([sys.executable, "-c", SLEEPS]) as program:
        with pytest.raises(TimeoutError, match=r"printed no line within 0\.1 s"):
            program.line(0.1)
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.1)
        with pytest.raises(subprocess.TimeoutExpired):
            program.communicate(timeout=0.1)


def test_lines_and_the_rest_of_a_program() -> None:
    text = "import sys; print('one\\ntwo\\nthree'); print(input()); sys.stderr.write('oh')"
    options = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Program([sys.executable, "-c", text], **options) as program:
        program.stdin.write("four\n")
        program.stdin.flush()
        assert (program.line(), program.line()) == ("one\n", "two\n")
        assert program.communicate() == ("three\nfour\n", "oh")
    with Program([sys.executable, "-c", "print('no end', end='')"]) as program:
        assert (program.line(), program.line()) == ("no end", "")


@pytest.mark.parametrize("number", KEYBOARD)
@pytest.mark.parametrize("heeds", [True, False])
def test_signals_of_a_run_in_the_background(number: signal.Signals, heeds: bool) -> None:
    """A program can react to signals that `nohup` and `command &` make the whole run ignore."""
    text = f"import signal; print(signal.getsignal({int(number)}) == signal.SIG_IGN)"
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with Program([sys.executable, "-c", text], heeds_signals=heeds) as program:
            assert program.line() == f"{not heeds}\n"
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
