"""CUDA tensors, without a GPU: tensors that say they are on CUDA, over a device that is a fake.

tests/gpu has the checks for a real one.
"""

from __future__ import annotations

import pytest
import torch
import work_cuda as work
from conftest import MakeWorld
from reconfigurable import needs_reconfigure
from world import Lost


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_collective_gives_the_bits_of_the_cpu(make_world: MakeWorld, size: int) -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn]
    assert min(make_world(size).run(work.every_collective, dtypes, timeout=60)) > 100


@pytest.mark.parametrize("size", [2, 3])
def test_quantized_all_reduces_give_the_bits_of_the_cpu(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.quantized, 40_000, timeout=60)


def test_cpu_and_cuda_calls_without_tags_match(make_world: MakeWorld) -> None:
    assert make_world(4).run(work.mixed_without_tags, 1000, timeout=60) == [1000] * 4


REFUSED = {
    "two devices": ("ValueError", "all_gather was given tensors on cuda:0 and on cuda:1"),
    "host and device": ("ValueError", "was given tensors on cuda:0 and on cpu: all tensors of one"),
    "capture": ("InvalidStateError", "all_reduce cannot be captured in a CUDA graph"),
    "pinned": ("OSError", "all_reduce: no pinned memory of 4000 bytes is left"),
}


def test_refusals_come_before_anything_is_touched(make_world: MakeWorld) -> None:
    for found in make_world(2).run(work.refusals):
        for name, (kind, text) in REFUSED.items():
            assert found[name]["type"] == kind, found[name]
            assert text in found[name]["text"]


def test_cuda_of_another_backend_is_refused(make_world: MakeWorld) -> None:
    for found in make_world(2).run(work.foreign_cuda, "cpu:pccl,cuda:gloo", setup="nothing"):
        assert found["type"] == "ValueError", found
        assert 'dist.new_group(backend="pccl")' in found["text"]


@needs_reconfigure
def test_a_reconfigure_leaves_cuda_tensors_as_they_were(make_world: MakeWorld) -> None:
    make_world(3).run(work.reconfigured, setup="nothing", timeout=60)


def test_a_copy_that_fails_ends_its_operation_for_all(make_world: MakeWorld) -> None:
    results = make_world(3).run(work.failing_copies)
    failed = 0
    for errors in zip(*results, strict=True):
        if "takes no copy" in errors[1]["text"]:
            assert errors[0]["type"] == errors[2]["type"] == "nothing"
            continue
        failed += 1
        assert {error["type"] for error in errors} == {"OSError"}
        assert len({error["text"] for error in errors}) == 1
        assert "failed on rank 1" in errors[0]["text"]
    assert failed > 0


def test_an_outcome_does_not_wait_for_the_device(make_world: MakeWorld) -> None:
    for found in make_world(2).run(work.outcome_before_the_copy):
        assert found["type"] == "OperationTimeoutError", found
        assert found["pinned"] == 4000


def test_a_call_returns_before_the_copy(make_world: MakeWorld) -> None:
    make_world(2).run(work.call_returns_at_once)


def test_the_poller_rests_while_the_device_is_busy(make_world: MakeWorld) -> None:
    assert max(make_world(2).run(work.poller_rests)) < 0.25


def test_a_program_ends_though_its_device_does_not(make_world: MakeWorld) -> None:
    world = make_world(2)
    world.start(work.ends_while_stuck, setup="program")
    outcomes = world.outcomes(timeout=30, expect_success=False)
    assert [outcome.exit_code for outcome in outcomes if isinstance(outcome, Lost)] == [0, 0]
