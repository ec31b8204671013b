"""Arena: memory that the processes of a host share. It is freed when the last of them ends.

The memory is a file without a name (`memfd_create`); the leader sends its descriptor to the others.
Thus it is freed even after SIGKILL, and the size of /dev/shm does not matter: in a container it is
64 MB by default.
"""

from __future__ import annotations

import logging
import mmap
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pccl_backend.trainers.flat import Plan

__all__ = ["Arena"]

log = logging.getLogger("pccl")

ALIGN = 4096  # a page: each tensor may be pinned alone


class Arena:
    """A shared mapping with the tensors of a plan, in the plan's order.

    Example:
        >>> arena = Arena.create(plan)
        >>> send(arena.descriptor)  # the others: Arena(descriptor, plan)
        >>> tensors = arena.tensors(pinned=False)
    """

    def __init__(self, descriptor: int, plan: Plan) -> None:
        self.descriptor = descriptor
        self._plan = plan
        self._close: Callable[[], object] = lambda: None
        self._map = mmap.mmap(descriptor, max(size_of(plan), ALIGN))

    @staticmethod
    def create(plan: Plan) -> Arena:
        """Create new memory, all zeros. The kernel allocates each page at its first use.

        The descriptor is open until close(), or until the arena is garbage-collected.
        """
        descriptor = os.memfd_create("pccl-outer-state")
        try:
            os.ftruncate(descriptor, max(size_of(plan), ALIGN))
            arena = Arena(descriptor, plan)
        except BaseException:
            os.close(descriptor)
            raise
        arena._close = weakref.finalize(arena, os.close, descriptor)
        return arena

    def tensors(self, *, pinned: bool) -> dict[str, torch.Tensor]:
        """Return the tensors of the plan, by name. They keep the mapping alive."""
        tensors, start = {}, 0
        for name, (count, dtype) in self._plan.items():
            if count == 0:
                tensors[name] = torch.zeros(0, dtype=dtype, device="cpu")
                continue
            flat = torch.frombuffer(self._map, dtype=dtype, count=count, offset=start)
            start += _aligned(flat.nbytes)
            tensors[name] = flat
            if pinned:
                _pin(flat)
        return tensors

    def close(self) -> None:
        """Close the descriptor: it cannot be sent to another process any more."""
        self._close()


def size_of(plan: Plan) -> int:
    """Return the bytes that the tensors of a plan take."""
    return sum(_aligned(count * dtype.itemsize) for count, dtype in plan.values())


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _pin(flat: torch.Tensor) -> None:
    """Pin memory, so that copies from and to a GPU are fast. A failure only makes them slower."""
    runtime: Any = torch.cuda.cudart
    if error := int(runtime().cudaHostRegister(flat.data_ptr(), flat.nbytes, 0)):
        log.warning("CUDA did not pin %d bytes of the outer state: error %d", flat.nbytes, error)
