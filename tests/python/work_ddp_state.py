"""Run by test_ddp_state.py in every process of a world."""

from __future__ import annotations

import torch

import pccl_backend as pccl
from pccl_backend.hooks import QuantizeState
from pccl_backend.quantization import loss_of

Q = pccl.quantization.MinMax(bits=4)


class Bucket:
    """A bucket of gradients, as torch gives it to a hook."""

    def __init__(self, index: int, parameters: list[torch.Tensor], seed: int) -> None:
        count = sum(parameter.numel() for parameter in parameters)
        self._index, self._parameters = index, parameters
        self._buffer = torch.randn(count, generator=torch.Generator().manual_seed(seed))

    def index(self) -> int:
        return self._index

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters

    def buffer(self) -> torch.Tensor:
        return self._buffer


def compensated(state: QuantizeState, index: int, of: list[torch.Tensor]) -> torch.Tensor:
    """Return how much is added to the gradients of a bucket."""
    bucket, same = Bucket(index, of, seed=index), Bucket(index, of, seed=index)
    state.compensate(bucket)  # type: ignore[arg-type]
    return bucket.buffer() - same.buffer()


def residuals_follow_their_buckets() -> None:
    one, two = torch.zeros(100, 200), torch.zeros(300, 100)
    state = QuantizeState(Q)
    assert compensated(state, 0, [one, two]).eq(0).all()
    lost = loss_of(Bucket(0, [one, two], seed=0).buffer(), Q)
    torch.testing.assert_close(compensated(state, 0, [one, two]), lost, atol=1e-6, rtol=0)

    saved = state.state_dict()
    other = QuantizeState(Q)
    other.load_state_dict(saved)
    residual = saved["buckets"][0]["residual"]
    assert compensated(other, 0, [one]).eq(0).all(), "the first step has another bucket"
    kept = other.state_dict()["buckets"][0]
    assert torch.equal(kept["residual"], residual), "it still waits for its bucket"
    added = compensated(other, 0, [one, two])
    torch.testing.assert_close(added, residual, atol=1e-6, rtol=0)

    other.load_state_dict(saved)
    assert compensated(other, 0, [one]).eq(0).all()
    assert compensated(other, 0, [two, one]).eq(0).all(), "the order of parameters differs"
    assert compensated(other, 0, [one, two]).eq(0).all(), "it was dropped"
