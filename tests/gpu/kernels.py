"""libpccl_cuda.so (cuda/device_api.h) and the CPU's state hash, called by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from check import BUNDLE

LIBRARY = BUNDLE / "pccl_backend" / "libpccl_cuda.so"
HOST_HASH = BUNDLE / "lib" / "libpccl_host_hash.so"


class Span(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64))


class ExpfCounts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("nan", "inf", "finite", "bits_sum", "bits_xor")
    )


@dataclass(frozen=True)
class Workspace:
    """The addresses of the two workspaces of a call."""

    device: int
    host: int


class Kernels:
    """The functions of the library. A status that is not 0 becomes a RuntimeError."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.pccl_cuda_error_text.restype = ctypes.c_char_p
        self._library.pccl_cuda_hash_workspace.restype = ctypes.c_size_t
        self._library.pccl_cuda_hash_workspace.argtypes = [ctypes.c_size_t]
        self._library.pccl_cuda_hash.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_void_p,
        ]
        self._library.pccl_cuda_hash_values.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
        ]
        self._library.pccl_cuda_expf_check.argtypes = [
            ctypes.c_uint64,
            ctypes.c_uint64,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_void_p,
        ]

    def _check(self, status: int) -> None:
        if status != 0:
            text = self._library.pccl_cuda_error_text(status).decode()
            raise RuntimeError(f"libpccl_cuda: status {status}, {text}")

    def device_count(self) -> int:
        count = ctypes.c_int()
        self._check(self._library.pccl_cuda_device_count(ctypes.byref(count)))
        return count.value

    def workspace_bytes(self, count: int) -> int:
        return int(self._library.pccl_cuda_hash_workspace(count))

    def hash(self, spans: Sequence[tuple[int, int]], workspace: Workspace, stream: int) -> None:
        """Put the hash of all spans (address, bytes) on the stream."""
        table = (Span * len(spans))(*spans)
        status = self._library.pccl_cuda_hash(
            table, len(spans), workspace.device, workspace.host, 0, stream
        )
        self._check(status)

    def values(self, workspace: Workspace, count: int) -> list[int]:
        """Return the hashes of a call that the stream has passed."""
        hashes = (ctypes.c_uint64 * count)()
        self._library.pccl_cuda_hash_values(workspace.host, count, hashes)
        return list(hashes)

    def expf_check(self, first: int, count: int, counts: int, stream: int) -> None:
        self._check(self._library.pccl_cuda_expf_check(first, count, counts, 0, stream))


_host = ctypes.CDLL(str(HOST_HASH))
_host.pccl_host_hash.restype = ctypes.c_uint64
_host.pccl_host_hash.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def host_hash(address: int, size: int) -> int:
    return int(_host.pccl_host_hash(address, size))
