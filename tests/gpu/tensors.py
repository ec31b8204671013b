"""Calls of the kernels with tensors of torch, and measurements on the GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from kernels import Kernels, Workspace

AHEAD_CYCLES = 40_000_000  # about 20 ms: meanwhile the host enqueues the calls to be measured


class Hasher:
    """The hash of tensors, with workspaces of torch. One call at a time may be in flight."""

    def __init__(self, kernels: Kernels, spans_max: int = 1) -> None:
        self._kernels = kernels
        size = kernels.workspace_bytes(spans_max)
        self._device = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self._workspace = Workspace(self._device.data_ptr(), self._host.data_ptr())

    def start(self, tensors: Sequence[torch.Tensor]) -> None:
        spans = [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors]
        stream = torch.cuda.current_stream().cuda_stream
        self._kernels.hash(spans, self._workspace, stream)

    def __call__(self, *tensors: torch.Tensor) -> list[int]:
        self.start(tensors)
        torch.cuda.current_stream().synchronize()
        return self._kernels.values(self._workspace, len(tensors))


def random_bytes(size: int, seed: int) -> torch.Tensor:
    """Return random bytes on the GPU, in memory of their own."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    words = torch.empty(-(-size // 8), dtype=torch.int64, device="cuda")
    words.random_(-(2**63), None, generator=generator)
    return words.view(torch.uint8)[:size]


def in_turn(count: int, call: Callable[[int], None]) -> list[Callable[[], None]]:
    """Return the calls with the arguments 0, 1, 2, ..."""
    return [partial(call, at) for at in range(count)]


def microseconds(calls: Sequence[Callable[[], None]]) -> float:
    """Return the median time that one of the calls takes on the GPU.

    The calls wait behind a kernel that sleeps, so that the time of the host does not count.
    """
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(calls) + 1)]
    for call in calls[:3]:
        call()
    torch.cuda.synchronize()
    torch.cuda._sleep(AHEAD_CYCLES)  # a kernel: the host queues all calls behind it
    events[0].record()
    for call, event in zip(calls, events[1:], strict=True):
        call()
        event.record()
    torch.cuda.synchronize()
    times = [before.elapsed_time(after) for before, after in pairwise(events)]
    return 1000 * statistics.median(times)
