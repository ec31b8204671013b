"""FSDP2 within hosts, and pccl between them, in a step that the loss of a host interrupts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import work_fsdp as work
from conftest import MakeWorld
from world import Master, Returned


@pytest.mark.parametrize(
    ("policy", "train"), [("retry", work.replicated), ("raise", work.hooked)], ids=["mesh", "hook"]
)
def test_a_host_is_lost(
    make_world: MakeWorld,
    master: Master,
    tmp_path: Path,
    policy: str,
    train: Callable[[str, str], None],
) -> None:
    environment = {"PCCL_ON_PEER_LOSS": policy}
    world = make_world(work.HOSTS * work.LOCAL_RANKS, environment=environment)
    url = master.url(founders=work.HOSTS, min_peers=1)
    world.start(train, url, str(tmp_path), setup="nothing")
    outcomes = world.outcomes(60, expect_success=False)
    returned = [isinstance(outcome, Returned) for outcome in outcomes]
    assert returned == [True, True, False, False], world.tails()
