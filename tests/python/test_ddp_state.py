"""The state of quantize_hook: the residual of each bucket, and the refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import work_ddp_state as work
from conftest import MakeWorld

import pccl_backend as pccl

Q = work.Q


def test_residuals_follow_their_buckets(make_world: MakeWorld) -> None:
    make_world(2).run(work.residuals_follow_their_buckets)


def entry(**changes: Any) -> dict[str, Any]:
    whole = {"index": 0, "shapes": [[2, 3], [4]], "residual": torch.zeros(10)}
    return {"format": repr(Q), "buckets": [whole | changes]}


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (
            {"format": "MinMax(bits=8)", "buckets": []},
            r"the state is of MinMax\(bits=8\), and this",
        ),
        ({}, "the state is of None"),
        (entry(index=-1), "a bucket of the state has index -1"),
        (entry(shapes=None), "shapes None"),
        (entry(residual=torch.zeros(9)), r"the shape \(9,\), and its parameters have 10 elements"),
        (entry(residual=torch.zeros(10).double()), "must be a float32 tensor, not torch.float64"),
        (entry(residual=[0.0] * 10), "must be a float32 tensor, not list"),
        (entry(residual=torch.full((10,), float("nan"))), "numbers that are not finite"),
    ],
)
def test_a_state_that_does_not_fit(state: dict[str, Any], says: str) -> None:
    hook_state = pccl.hooks.QuantizeState(Q)
    hook_state.load_state_dict(entry())
    before = hook_state.state_dict()
    assert len(before["buckets"]) == 1
    with pytest.raises(ValueError, match=says):
        hook_state.load_state_dict(state)
    assert hook_state.state_dict()["buckets"][0]["residual"] is before["buckets"][0]["residual"]


def test_a_state_without_feedback_loads_nothing() -> None:
    with pytest.raises(ValueError, match="error_feedback=False, so there is nothing to load"):
        pccl.hooks.QuantizeState(Q, error_feedback=False).load_state_dict(entry())
