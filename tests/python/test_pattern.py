"""PCCL_PATTERN: the direct pattern over real connections, and the agreement on it."""

from __future__ import annotations

from pathlib import Path

import work_collectives
import work_pattern as work
from conftest import MakeWorld, Master

MIB = 1 << 20
DIRECT = {"PCCL_PATTERN": "direct"}


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


def test_every_reduction_is_right_with_the_direct_pattern(make_world: MakeWorld) -> None:
    make_world(3, environment=DIRECT).run(work_collectives.reductions, [0, 1, 70007])
    make_world(3, environment=DIRECT).run(work_collectives.averages_of_16_bit_floats)


def test_another_pattern_than_the_others_is_refused(make_world: MakeWorld, master: Master) -> None:
    (text,) = make_world(1, environment=DIRECT).run(
        work.joins_with_another_pattern, master.url(), setup="nothing"
    )
    assert text == (
        "this peer has PCCL_PATTERN=ring, and the rest of this run PCCL_PATTERN=direct: set "
        "PCCL_PATTERN to the same on all peers"
    )
