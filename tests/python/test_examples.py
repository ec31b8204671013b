"""The examples, run as a user would run them, print what they promise."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import Program
from world import Master

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 90.0

# The output of each example, and how often each line appears.
PRINTED = {
    "01_all_reduce.py": [(r"rank \d of 3: all averages are right", 3)],
    "02_survive_a_kill.py": [
        (r"step 3: all_reduce.*\(survive, #3\).* lost: ", 2),
        (r"step 3: tensor untouched; now rank [01] of 2", 2),
        (r"step 2: average 21.0", 3),
        (r"step 3: average 31.0", 2),
        (r"step 5: average 50.5", 2),
    ],
    "03_shared_state.py": [
        (r"peer 2 begins at revision [1-9]\d*, fetched 4\d{5} bytes", 1),
        (r"ends at revision \d+, error 0\.\d+, hash \w+", 3),
    ],
    "04_train_diloco.py": [
        (r"peer 0 is killed", 1),
        (r"peer 1, outer step \d+: [01] joined, 1 left", 1),
        (r"peer 3 begins at outer step [1-9]", 1),
        (r"ends with error 0\.0\d+, hash \w+", 3),
    ],
}


def test_every_example_is_run_here() -> None:
    assert sorted(PRINTED) == sorted(path.name for path in EXAMPLES.glob("[0-9]*.py"))


def test_the_smallest_program_of_the_readme(master: Master, tmp_path: Path) -> None:
    """Start two processes, the second while the first runs; then kill the first."""
    readme = (EXAMPLES.parent / "README.md").read_text()
    program = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    assert "pccl://127.0.0.1:48148/hello" in program
    script = tmp_path / "train.py"
    script.write_text(program.replace("pccl://127.0.0.1:48148/hello", master.url("hello")))
    peers: list[Program] = []
    with contextlib.ExitStack() as stack:
        for size in (1, 2):
            peers.append(stack.enter_context(Program([sys.executable, script])))
            read_until(peers[0], f"rank 0 of {size}: {size - 1}")
        read_until(peers[1], "rank 1 of 2: 1")
        peers[0].kill()  # in the all-reduce, which raises, or in update_topology, which succeeds
        read_until(peers[1], "rank 0 of 1: 0")


def read_until(peer: Program, pattern: str) -> None:
    while line := peer.line():
        if re.search(pattern, line):
            return
    raise AssertionError(f"ended before it printed {pattern!r}")


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        # Lines of several processes stay whole only if each line is written in one call.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for pattern, count in PRINTED[name]:
        assert len(re.findall(pattern, ended.stdout)) == count, f"{pattern}\n{ended.stdout}"
    hashes = re.findall(r"ends .*hash (\w+)", ended.stdout)
    assert len(set(hashes)) <= 1, f"peers ended with different bits: {hashes}"
