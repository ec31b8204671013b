"""A trainer of a model on a CUDA device has the bits of the same model on the CPU.

The device is a fake, and needs no GPU (work_cuda.py).
"""

from __future__ import annotations

from typing import Any

import pytest
import work_cuda_trainers as work
from conftest import MakeWorld

import pccl_backend as pccl

KINDS: dict[str, dict[str, Any]] = {
    "blocking": {},
    "overlap": {"overlap": 2},
    "carry": {"overlap": 4, "mix": "carry"},
    "delay": {"mix": "delay", "outer_lr": 0.5, "outer_momentum": 0.5},
    "streaming": {"fragments": 2, "overlap": 1},
    "quantized": {"quantize": pccl.quantization.MinMax(bits=8), "wide": True},
    "with feedback": {
        "quantize": pccl.quantization.MinMax(bits=4),
        "error_feedback": True,
        "overlap": 2,
        "wide": True,
    },
    "ddp": {"ddp": True},
    "moves": {"moves": True},
    "moves, with overlap": {"moves": True, "overlap": 2},
    "ddp moves": {"ddp": True, "moves": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_on_a_device_has_the_bits_of_the_cpu(make_world: MakeWorld, kind: str) -> None:
    wanted = make_world(2).run(work.on_the_host, KINDS[kind], timeout=60)
    got = make_world(2).run(work.on_a_device, KINDS[kind], timeout=60)
    for (hashes, parameters), (wanted_hashes, wanted_parameters) in zip(got, wanted, strict=True):
        assert len(hashes) >= work.STEPS // 4 - 1
        assert hashes == wanted_hashes
        assert parameters == wanted_parameters
