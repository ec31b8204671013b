"""torch's flight recorder and its analyzer find who is at fault for a failure of pccl."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import work_flight_recorder as work
from conftest import MakeWorld
from torch._C import _distributed_c10d

pytestmark = pytest.mark.skipif(
    not hasattr(_distributed_c10d, "FlightRecorderHook"),
    reason="the flight recorder of this torch is for NCCL and Gloo only",
)


def analyze(folder: Path, *options: str) -> str:
    module = "torch.distributed.flight_recorder.fr_trace"
    command = [sys.executable, "-m", module, folder, "--prefix", "trace_", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_call_that_differs(make_open_world: MakeWorld, tmp_path: Path) -> None:
    make_open_world(3).run(work.after_a_mismatch, tmp_path)
    text = analyze(tmp_path)
    assert "Collective sequence number: 2 has errors" in text
    assert "Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH" in text
    assert "after_a_mismatch at " in text  # the stack of the call


@pytest.mark.parametrize(
    ("dumped_before", "finding"),
    [(True, "missing ranks: {2}"), (False, "we missed FR dumps from ranks ({2})")],
)
def test_a_member_that_is_lost(
    make_open_world: MakeWorld, tmp_path: Path, dumped_before: bool, finding: str
) -> None:
    world = make_open_world(3)
    world.start(work.after_a_loss, tmp_path, dumped_before)
    world.outcomes(30, expect_success=False)
    assert finding in analyze(tmp_path, "--allow-incomplete-ranks")
