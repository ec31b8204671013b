"""DistributedDataParallel over pccl computes the same as training in one process."""

from __future__ import annotations

import work_ddp as work
from conftest import MakeWorld
from world import Lost, Returned


def test_trains_as_one_process_would(make_world: MakeWorld) -> None:
    make_world(2).run(work.all_of_it, timeout=60)


def test_a_loss_in_backward(make_open_world: MakeWorld) -> None:
    world = make_open_world(3, min_peers=2)
    world.start(work.loses_a_peer_in_backward)
    outcomes = world.outcomes(30, expect_success=False)
    survivors = [outcome for outcome in outcomes if isinstance(outcome, Returned)]
    assert [type(o) for o in outcomes if o not in survivors] == [Lost], world.tails()
    assert survivors[0].value == survivors[1].value  # the same error on all
