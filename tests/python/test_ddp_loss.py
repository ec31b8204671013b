"""The gradients of DistributedDataParallel in a step with the loss of a peer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import work_ddp_loss as work
from conftest import MakeWorld
from work_ddp_loss import Variant
from world import Lost, Returned, World


def survivors(world: World) -> list[object]:
    """Return the results of all processes but the victim."""
    outcomes = world.outcomes(60, expect_success=False)
    returned = [outcome for outcome in outcomes if isinstance(outcome, Returned)]
    assert [type(o) for o in outcomes if o not in returned] == [Lost], world.tails()
    return [outcome.value for outcome in returned]


RETRIED = {
    "one bucket": Variant(),
    "several buckets": Variant(buckets=True),
    "static graph": Variant(static=True, buckets=True),
    "no_sync": Variant(accumulates=True, buckets=True),
    "first step": Variant(first=True),
    "bfloat16": Variant(dtype=torch.bfloat16),
    "float16": Variant(dtype=torch.float16, buckets=True),
}


@pytest.mark.parametrize("variant", RETRIED.values(), ids=RETRIED)
def test_retry_with_the_hook(make_open_world: MakeWorld, tmp_path: Path, variant: Variant) -> None:
    world = make_open_world(3, min_peers=2, environment={"PCCL_ON_PEER_LOSS": "retry"})
    world.start(work.retried, variant, tmp_path, 1.0)
    survivors(world)


@pytest.mark.parametrize("buckets", [False, True])
@pytest.mark.parametrize("hook", ["", "allreduce"])
def test_retry_without_the_hook_is_smaller(
    make_open_world: MakeWorld, tmp_path: Path, hook: str, buckets: bool
) -> None:
    """torch divides by three before the sum, and two are in the sum."""
    world = make_open_world(3, min_peers=2, environment={"PCCL_ON_PEER_LOSS": "retry"})
    world.start(work.retried, Variant(hook=hook, buckets=buckets), tmp_path, 2 / 3)
    survivors(world)


WAYS = {"pccl": {}, "allreduce": {}, "": {"reset": True}}
RAISED = {
    f"{name}, {hook or 'no hook'}": Variant(hook=hook, **way, **options)
    for hook, way in WAYS.items()
    for name, options in {
        "one bucket": {},
        "several buckets": {"buckets": True},
        "static graph": {"static": True, "buckets": True},
        "no_sync": {"accumulates": True, "buckets": True},
        "first step": {"first": True},
    }.items()
}


@pytest.mark.parametrize("variant", RAISED.values(), ids=RAISED)
def test_raise_then_repeat(make_open_world: MakeWorld, tmp_path: Path, variant: Variant) -> None:
    world = make_open_world(3, min_peers=2)
    world.start(work.raised, variant, tmp_path, 1.0)
    survivors(world)


def test_raise_then_repeat_without_a_hook_is_smaller(
    make_open_world: MakeWorld, tmp_path: Path
) -> None:
    """torch keeps the divisor of a backward pass that failed, for one more."""
    world = make_open_world(3, min_peers=2)
    world.start(work.raised, Variant(hook=""), tmp_path, 2 / 3)
    survivors(world)
