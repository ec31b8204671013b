"""Residuals of a trainer: what counts as lost, and when."""

from __future__ import annotations

import pytest
import torch

import pccl_backend as pccl
from pccl_backend.quantization import loss_of
from pccl_backend.trainers.exchange import Exchange
from pccl_backend.trainers.residuals import Residuals

Q = pccl.quantization.MinMax(bits=4)


def numbers(seed: int, count: int = 500) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def test_what_a_round_loses_is_added_once_it_has_landed() -> None:
    residuals = Residuals(Q, [(0, 500), (500, 1000)])
    first = numbers(1)
    lost = loss_of(first, Q)
    residuals.compensate(0, first)
    assert torch.equal(first, numbers(1)), "nothing was lost before"
    residuals.landed(0, quantized=True)
    other = numbers(2)
    residuals.compensate(1, other)
    assert torch.equal(other, numbers(2)), "another fragment"
    residuals.landed(1, quantized=True)
    second = numbers(3)
    residuals.compensate(0, second)
    assert torch.equal(second, numbers(3) + lost)


def test_a_round_that_is_measured_again_counts_once() -> None:
    residuals = Residuals(Q, [(0, 500)])
    residuals.compensate(0, numbers(1))
    residuals.drop()
    residuals.landed(0, quantized=True)
    again = numbers(2)
    residuals.compensate(0, again)
    assert torch.equal(again, numbers(2))


def test_what_was_not_quantized_or_not_finite_loses_nothing() -> None:
    residuals = Residuals(Q, [(0, 500)])
    residuals.compensate(0, numbers(1))
    residuals.landed(0, quantized=False)
    sick = numbers(2)
    residuals.compensate(0, sick)
    assert torch.equal(sick, numbers(2))
    sick[7] = float("nan")
    assert loss_of(sick, Q)[:64].eq(0).all()
    assert loss_of(sick, Q).isfinite().all()
    residuals.landed(0, quantized=True)
    residuals.reset()
    other = numbers(3)
    residuals.compensate(0, other)
    assert torch.equal(other, numbers(3))


@pytest.mark.parametrize(
    ("rows", "weights"),
    [
        ([[3.0, 5.0], [0, 0], [1, 1], [1, 1]], [3.0, 5.0]),
        ([[0.0, 5.0], [0, 0], [0, 1], [0, 1]], [5.0, 5.0]),
        ([[0.0, 5.0], [0, 0], [1, 1], [1, 1]], [0.0, 5.0]),
        ([[0.0, 0.0], [0, 0], [0, 0], [0, 0]], [1.0, 1.0]),
    ],
    ids=["all known", "one lost", "one weighs nothing", "none known"],
)
def test_a_weight_that_is_not_known_is_that_of_the_others(
    rows: list[list[float]], weights: list[float]
) -> None:
    exchange = object.__new__(Exchange)
    exchange._quantize, exchange._names = Q, ["a", "b"]
    exchange._rows = torch.tensor(rows).flatten()
    assert exchange._numbers({"a", "b"})[0] == weights
    assert exchange._numbers({"b"})[0] == [0.0, weights[1]]
