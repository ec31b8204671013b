"""The examples, run as a user would run them, print the promised lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 170.0

# The output of each example, and how often each line appears. None: at least once.
PRINTED: dict[str, list[tuple[str, int | None]]] = {
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
    "05_digits_ddp.py": [
        (r"peer 3 begins at step [1-9]\d*", 1),
        (r"ends at step \d+, loss .* accuracy (0\.9|1\.0)\d+, .* sent \d+ bytes, hash \w+", 3),
    ],
    "06_chargpt_diloco.py": [
        (r"ends at step \d+ of \d+ inner steps, loss \d\.\d+, .* sent \d+ bytes, hash \w+", 2),
    ],
    "07_overlap.py": [
        (r"inner steps alone: \d+\.\d+ s|this machine lets nobody limit a link", None),
        (r"(blocking|overlapped): an outer step takes \d+\.\d+ s, .* loss \d\.\d+", 2),
        (r"ends the (blocking|overlapped) run at step 16 of 320 inner steps, .* hash \w+", 2),
    ],
    "08_fsdp2.py": [
        (r"host [AB], start 0: begins at step 0\n", 2),
        (r"host B, rank 1 is killed on purpose: .* tracebacks now", 1),
        (r"host A, step \d+: 0 joined, 1 left", 1),
        (r"host B, start 1: begins at step [1-9]", 1),
        (r"host [AB], rank \d ends at step \d+ .*, loss \d\.\d+, .* sent \d+ bytes, hash \w+", 5),
    ],
    "10_muon.py": [
        (r"ends at step 4 of 80 inner steps, loss \d\.\d+, .* sent \d+ bytes, hash \w+", 2),
    ],
    "09_resume.py": [
        (r"ends at step 5, loss", 2),
        (r"ends at step 10, loss", 2),
        (r"is refused with step 5: .*revision 5\b.*revision 10\b", 3),
        (r"ends at step 15, loss .* hash \w+", 3),
    ],
    "11_torchrun_hosts.py": [
        (r"host [AB], start 0: begins at step 0\n", 2),
        (r"host B, rank 1 is killed on purpose: .* tracebacks now", 1),
        (r"host B, start 1: begins at step [1-9]", 1),
        (r"host C, start 0: begins at step [1-9]", 1),
        (r"host [AC]: all_reduce.* lost", None),
        (r"host [ABC], rank [01] ends at step \d+, 3 hosts, hash \w+", 6),
    ],
    "12_torch_ddp.py": [
        (r"rank [012] of 3 is at step 20: its torchrun is ended on purpose, .* traceback now", 1),
        (r"rank [01] of 2 is at step 60", 2),
        (r"rank [01] of 2 ends at step 80, loss \d\.\d+, hash \w+", 2),
    ],
    "13_any_order.py": [
        (r"pccl, rank [01]: 32 of 32 sums are right", 4),
        (r"gloo, (different sizes|one size):", 2),
        (r"gloo, rank [01]: (0 of 32 sums are right|has failed|hangs)", 4),
    ],
}


def test_every_example_is_run_here() -> None:
    assert sorted(PRINTED) == sorted(path.name for path in EXAMPLES.glob("[0-9]*.py"))
    assert set(PRINTED) >= LONG


# Those that train for more than half a minute run in `make nightly`.
LONG = {
    *("06_chargpt_diloco.py", "07_overlap.py", "08_fsdp2.py", "10_muon.py"),
    *("11_torchrun_hosts.py", "12_torch_ddp.py"),
}


@pytest.mark.timeout(TIMEOUT_S + 20)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly) if name in LONG else name for name in PRINTED],
)
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
        found = len(re.findall(pattern, ended.stdout))
        assert found > 0 if count is None else found == count, f"{pattern}\n{ended.stdout}"
    ends = re.findall(r"ends (.*?at step \d+)?.*hash (\w+)", ended.stdout)
    hashes = [each for step, each in ends if step == ends[-1][0]]
    assert len(set(hashes)) <= 1, f"peers ended with different bits: {hashes}"
