"""The core that ships, driven by a fake group: joins, losses, timeouts, an exception at every call.

After each outer step all peers hold the same, every round is applied once, and nothing that a peer
has learned is counted twice or lost (fake_group.py).
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from fake_group import simulate

SEEDS = 2000
PARTS = 4

OVERLAPS: list[dict[str, Any]] = [
    {"overlap": 0, "carry": True},
    {"overlap": 2, "carry": True},
    {"overlap": 1 << 62, "carry": True},
    {"overlap": None, "carry": True},
    {"overlap": 2, "carry": False},
]


def options(chance: random.Random) -> dict[str, Any]:
    kind = chance.choice(OVERLAPS)
    fragments = chance.choice([1, 1, 3])
    return {
        "settings": {"overlap": kind["overlap"], "every": 4 * fragments, "fragments": fragments},
        "carry": kind["carry"],
        "founders": chance.randint(1, 4),
        "rounds": chance.randint(4, 9),
        "faults": chance.choice([0, 0, 0.002, 0.02]),
        "joins": chance.choice([0, 0.003, 0.01]),
        "losses": chance.choice([0, 0.001, 0.005]),
        "kicks": chance.choice([0, 0.001, 0.003]),
        "timeouts": chance.choice([0, 0, 0.002]),
    }


@pytest.mark.parametrize("part", range(PARTS))
def test_equal_hashes_and_every_round_once(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        try:
            peers = simulate(seed, options)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert peers
