"""The speed of each variant of the hash kernel, so that the fastest one can be chosen.

This step goes away with the variants.
"""

from __future__ import annotations

import torch
from check import end, expect, report
from kernels import Kernels
from tensors import Hasher, in_turn, microseconds, random_bytes

MIB = 1 << 20
GIB = 1 << 30

# The list in cuda/state_hash.cu: words of a thread, rows in flight, resident blocks, blocks.
VARIANTS = (
    (1, 16, 4, 4),
    (1, 16, 4, 64),
    (1, 8, 4, 4),
    (1, 8, 4, 64),
    (1, 16, 3, 3),
    (1, 16, 3, 64),
    (1, 32, 2, 2),
    (1, 32, 2, 64),
    (2, 4, 4, 4),
    (2, 4, 4, 64),
    (2, 8, 3, 3),
    (2, 8, 3, 64),
    (2, 16, 2, 2),
    (2, 16, 2, 64),
)


def speeds(
    hashers: list[Hasher], buffers: list[torch.Tensor], variant: int
) -> tuple[float, float, float, float, float]:
    """Return three rates in TB/s of 1 GiB, the last unaligned; microseconds of 64 and 16 MiB."""

    def taken(count: int, tensors: list[torch.Tensor]) -> float:
        calls = in_turn(count, lambda at: hashers[at].start([tensors[at % len(tensors)]], variant))
        return microseconds(calls)

    def parts(size: int) -> list[torch.Tensor]:
        return [part[at : at + size] for part in buffers for at in range(0, GIB, GIB // 16)]

    rates = [GIB / taken(count, buffers) / 1e6 for count in (24, 24)]
    unaligned = GIB / taken(12, [buffer[3:] for buffer in buffers]) / 1e6
    return rates[0], rates[1], unaligned, taken(48, parts(64 * MIB)), taken(48, parts(16 * MIB))


def main() -> None:
    kernels = Kernels()
    hashers = [Hasher(kernels) for _ in range(48)]
    buffers = [random_bytes(GIB, seed) for seed in range(3)]
    reference = [hashers[0](buffer) for buffer in buffers]
    print("words rows resident blocks | 1 GiB TB/s, again, unaligned, 64 MiB us, 16 MiB us")
    best = (0.0, 0)
    for index, variant in enumerate(VARIANTS):
        found = [hashers[0](buffer, variant=index) for buffer in buffers]
        expect(found == reference, f"variant {variant} has other values")
        figures = speeds(hashers, buffers, index)
        print(f"{variant!s:16} | " + ", ".join(f"{figure:.3f}" for figure in figures))
        best = max(best, (figures[0], index))
    report(best=VARIANTS[best[1]], tb_s=round(best[0], 3))
    end()


if __name__ == "__main__":
    main()
