"""Training over pccl has the losses of training over Gloo, and goes on through a loss."""

from __future__ import annotations

from pathlib import Path

import pytest
import work_beside_gloo as work
import work_fsdp
from conftest import MakeWorld
from world import Lost, Master, Returned


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("way", work.WAYS)
def test_the_losses_are_those_of_gloo(make_world: MakeWorld, way: str, size: int) -> None:
    make_world(size).run(work.same_losses, way, timeout=60)


@pytest.mark.parametrize("policy", ["raise", "retry"])
def test_ddp_goes_on_without_a_replica(make_open_world: MakeWorld, policy: str) -> None:
    world = make_open_world(3, min_peers=2, environment={"PCCL_ON_PEER_LOSS": policy})
    world.start(work.ddp_loses_a_replica, policy)
    outcomes = world.outcomes(60, expect_success=False)
    assert sum(isinstance(outcome, Lost) for outcome in outcomes) == 1, world.tails()
    sizes = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert sizes == [2, 2], world.tails()


@pytest.mark.parametrize(
    ("policy", "way"), [("raise", "hook"), ("retry", "hook"), ("retry", "mesh")]
)
def test_hsdp_goes_on_without_a_replica(
    make_world: MakeWorld, master: Master, tmp_path: Path, policy: str, way: str
) -> None:
    size = work_fsdp.HOSTS * work_fsdp.LOCAL_RANKS
    world = make_world(size, environment={"PCCL_ON_PEER_LOSS": policy})
    url = master.url(founders=work_fsdp.HOSTS, min_peers=1)
    world.start(work.hsdp_loses_a_replica, url, str(tmp_path), policy, way, setup="nothing")
    outcomes = world.outcomes(60, expect_success=False)
    assert [isinstance(outcome, Lost) for outcome in outcomes] == [False, False, True, True]
    sizes = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert sizes == [1, 1], world.tails()
