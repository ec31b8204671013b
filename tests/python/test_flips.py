"""A network flips bits, and TCP does not notice: a secured run does, and only connections end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from machine import refusal
from network import own_boot_id

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "wan"))

import flips
from test_wan_lab import allowed  # noqa: F401  (a fixture)

SEED = 2
PARTS = pytest.mark.parametrize("part", flips.PARTS, ids=lambda part: part.name)
needs_lab = pytest.mark.usefixtures("allowed", "boot_ids")


@pytest.fixture
def boot_ids(tmp_path: Path) -> None:
    """Skip the test if this machine lets no process see another boot id."""
    if refused := refusal([*own_boot_id(tmp_path, 0), "true"], "unshare, and mounts of its own"):
        pytest.skip(refused)


@needs_lab
@PARTS
def test_a_flipped_bit_costs_a_connection(part: flips.Part) -> None:
    """A tenth of the calls of the benchmark."""
    outcome = flips.measure(part, part.calls // 10, seed=SEED, secured=True)
    assert outcome.good, outcome


@needs_lab
@pytest.mark.nightly
@pytest.mark.timeout(4 * flips.SECONDS_MAX)
@PARTS
def test_a_flipped_bit_costs_a_connection_in_all_calls(part: flips.Part) -> None:
    outcome = flips.measure(part, part.calls, seed=SEED, secured=True)
    assert outcome.good, outcome
