"""Shared state on CUDA devices, without a GPU: the device is a fake, as in test_cuda.py."""

from __future__ import annotations

import pytest
import work_cuda_state as work
from conftest import MakeWorld

IN_PART = "the other members have the agreed state, and this entry may hold a part of it"


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "host"])
def test_the_state_is_that_of_the_cpu(make_world: MakeWorld, kernels: bool) -> None:
    found = make_world(3).run(work.matches_the_cpu, kernels)
    assert len({one["hash"] for one in found}) == 1
    copied_for_hashes = [one["hashed"] > 0 for one in found]
    assert copied_for_hashes == [False, not kernels, not kernels]


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "host"])
def test_pinned_memory_is_bounded(make_world: MakeWorld, kernels: bool) -> None:
    for most in make_world(2).run(work.bounded, kernels, timeout=60):
        assert most == work.PINNED_MAX


def test_a_device_that_fails_ends_the_call_for_all(make_world: MakeWorld) -> None:
    kinds = set()
    for errors in zip(*make_world(3).run(work.failures, 40, timeout=60), strict=True):
        types = [error["type"] for error in errors]
        kinds.add(tuple(types))
        if types == ["nothing"] * 3:
            assert all(error["after"] for error in errors)
        elif types == ["SharedStateError"] * 3:
            assert len({error["text"] for error in errors}) == 1
            assert "rank 1 (peer" in errors[0]["text"]
            assert "entr" in errors[0]["text"]
            assert '"' in errors[0]["text"]
            assert all(error["before"] for error in errors)
        else:  # the device failed when it was given the agreed state
            assert types == ["nothing", "OSError", "nothing"], errors
            assert IN_PART in errors[1]["text"]
            assert all(error["after"] for error in (errors[0], errors[2]))
    assert len(kinds) == 3, kinds


def test_a_device_that_fails_where_nobody_else_may_send(make_world: MakeWorld) -> None:
    others, failed = make_world(2).run(work.no_other_state)
    assert others["type"] == "SharedStateError"
    assert failed["type"] == "SharedStateError"
    assert 'the entries "complex" to "weight": ' in failed["text"]


def test_a_device_that_is_busy_without_end(make_world: MakeWorld) -> None:
    _, busy = make_world(2).run(work.stuck, setup="nothing")
    assert busy["type"] in ("OperationTimeoutError", "SharedStateError")
    assert "and was given this work before the call" in busy["text"]


def test_a_wait_for_a_device_can_be_interrupted(make_world: MakeWorld) -> None:
    other, stopped = make_world(2).run(work.interrupted)
    assert stopped["type"] == "StoppedError"
    assert other["type"] in ("OperationTimeoutError", "SharedStateError")
    assert max(stopped["seconds"], other["seconds"]) < 10, "far below the timeout of the group"


REFUSED = {
    "capture": ("InvalidStateError", "sync_shared_state cannot be captured in a CUDA graph"),
    "pinned": ("nothing", ""),
    "no pinned memory": (
        "SharedStateError",
        'entry "weights": no pinned memory of 64 bytes is left',
    ),
    "strided": ("ValueError", "'weights' is on cuda:0 and not contiguous"),
    "meta": ("ValueError", "'weights' is on meta: pccl shares tensors on the CPU and on CUDA"),
}


def test_refusals(make_world: MakeWorld) -> None:
    (found,) = make_world(1).run(work.refusals)
    for name, (kind, text) in REFUSED.items():
        assert found[name]["type"] == kind, found[name]
        assert text in found[name]["text"], found[name]
