"""PCCL_PATTERN: the direct pattern over real connections."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import work_collectives
import work_pattern as work
from conftest import MakeWorld, Master
from world import Returned

MIB = 1 << 20
DIRECT = {"PCCL_PATTERN": "direct"}
COMBINATIONS = 10


def test_direct_sums_are_those_of_rank_order(make_world: MakeWorld) -> None:
    world = make_world(4, environment=DIRECT)
    hashes = world.run(work.sums_in_rank_order, [MIB, 3 * MIB + 5, 7])
    assert len(set(hashes)) == 1


def test_shares_by_hand(make_world: MakeWorld, tmp_path: Path) -> None:
    master = Master(tmp_path / "log.txt", options=["--shares", "0,200,56"])
    try:
        world = make_world(3, init_method=master.url(min_peers=3), environment=DIRECT)
        assert world.run(work.shares) == [[0, 200, 56]] * 3
        assert len(set(world.run(work.sums_in_rank_order, [MIB]))) == 1
    finally:
        master.stop()


def shares_of(chance: random.Random, size: int) -> str:
    """Return random shares, some of them 0."""
    cuts = sorted(chance.choice([0, 256, chance.randrange(257)]) for _ in range(size - 1))
    ends = [0, *cuts, 256]
    return ",".join(str(stop - start) for start, stop in itertools.pairwise(ends))


@pytest.fixture(scope="module")
def sums() -> dict[int, str]:
    """Return digests of the sums of 64 MiB in rank order, by world size."""
    total, digests = work.numbers(0, 16 * MIB), {}
    for rank in range(1, 6):
        total += work.numbers(rank, 16 * MIB)
        digests[rank + 1] = work.digest(total)
    return digests


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(COMBINATIONS))
def test_the_bits_depend_on_the_contributions_alone(
    make_world: MakeWorld, tmp_path: Path, sums: dict[int, str], seed: int
) -> None:
    """Shares, lanes and a loss before the repetition differ; 64 MiB have the bits of rank order."""
    chance = random.Random(seed)
    size, lanes = 3 + seed % 4, chance.randint(1, 8)
    peers = size + (seed % 3 == 0)
    shares = shares_of(chance, size)
    environment = DIRECT | {"PCCL_LANES": str(lanes), "PCCL_ON_PEER_LOSS": "raise"}
    master = Master(tmp_path / "log.txt", options=["--shares", shares])
    try:
        url = master.url(min_peers=size)
        world = make_world(peers, init_method=url, environment=environment)
        world.start(work.sum_of_everybody, 16 * MIB, size, peers)
        outcomes = world.outcomes(timeout=60, expect_success=peers == size)
    finally:
        master.stop()
    digests = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert digests == [sums[size]] * size, (peers, lanes, shares, outcomes)


def test_every_reduction_is_right_with_the_direct_pattern(make_world: MakeWorld) -> None:
    make_world(3, environment=DIRECT).run(work_collectives.reductions, [0, 1, 70007])
    make_world(3, environment=DIRECT).run(work_collectives.averages_of_16_bit_floats)
