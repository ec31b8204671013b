"""expf of all 2^32 floats has the same bits as on the GPUs of the report (appendix A.2)."""

from __future__ import annotations

import ctypes

import torch
from check import end, expect, report, skip
from kernels import ExpfCounts, Kernels

EXPECTED = {
    "nan": 16777214,
    "inf": 1020169705,
    "finite": 3258020377,
    "bits_sum": 4602279786742895247,
    "bits_xor": 0x45ABDA35,
}


def main() -> None:
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    counts = torch.full((ctypes.sizeof(ExpfCounts) // 8,), -1, dtype=torch.int64, device="cuda")
    stream = torch.cuda.current_stream()
    Kernels().expf_check(0, 2**32, counts.data_ptr(), stream.cuda_stream)
    found = dict(zip(EXPECTED, counts.tolist(), strict=True))
    report(**found)
    for name, value in EXPECTED.items():
        expect(found[name] == value, f"{name}: {found[name]}, but the report has {value}")
    end()


if __name__ == "__main__":
    main()
