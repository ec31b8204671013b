"""The memory that the processes of a host share: one for all, zero at first, pinned for a GPU."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
import torch

from pccl_backend.trainers.flat import Plan
from pccl_backend.trainers.host.arena import Arena

PLAN: Plan = {
    "global": (1000, torch.float32),
    "none": (0, torch.float32),
    "wide": (5, torch.float64),
    "counters": (3, torch.int64),
}


def test_two_mappings_are_one_memory() -> None:
    arena = Arena.create(PLAN)
    mine = arena.tensors(pinned=False)
    theirs = Arena(arena.descriptor, PLAN).tensors(pinned=False)
    arena.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arena.descriptor)
    del arena
    for name, (count, dtype) in PLAN.items():
        assert (mine[name].shape, mine[name].dtype) == ((count,), dtype)
        assert not mine[name].any()
        mine[name].fill_(7)
        assert (theirs[name] == 7).all()
        theirs[name].zero_()
    assert not any(tensor.any() for tensor in mine.values())


def test_a_plan_of_nothing_has_memory() -> None:
    arena = Arena.create({"none": (0, torch.float32)})
    assert len(arena.tensors(pinned=False)["none"]) == 0
    arena.close()


@pytest.mark.parametrize("error", [0, 2])
def test_each_tensor_is_pinned_if_cuda_can(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    pinned: list[tuple[int, int]] = []

    class Runtime:
        def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
            assert flags == 0
            pinned.append((address, size))
            return error

    runtime: Any = Runtime
    monkeypatch.setattr(torch.cuda, "cudart", runtime)
    arena = Arena.create(PLAN)
    with caplog.at_level(logging.WARNING, "pccl"):
        tensors = arena.tensors(pinned=True)
    arena.close()
    assert pinned == [(t.data_ptr(), t.nbytes) for t in tensors.values() if len(t)]
    assert all(address % 4096 == 0 for address, _ in pinned)
    assert len(caplog.records) == (3 if error else 0)
