"""The speed of each variant of the hash kernel, so that the fastest one can be chosen.

This step goes away with the variants.
"""

from __future__ import annotations

from check import end, expect, report
from kernels import Kernels
from tensors import Hasher, microseconds, random_bytes

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


def main() -> None:
    kernels = Kernels()
    hashers = [Hasher(kernels) for _ in range(48)]
    buffers = [random_bytes(GIB, seed) for seed in range(3)]
    parts = [part[at : at + 16 * MIB] for part in buffers for at in range(0, GIB, GIB // 16)]
    quarters = [part[at : at + 64 * MIB] for part in buffers for at in range(0, GIB, GIB // 16)]
    reference = [hashers[0](buffer) for buffer in buffers]
    print("words rows resident blocks | 1 GiB TB/s, 1 GiB again, unaligned TB/s, 64 MiB us, 16 MiB us")
    best = (0.0, 0)
    for index, variant in enumerate(VARIANTS):
        found = [hashers[0](buffer, variant=index) for buffer in buffers]
        expect(found == reference, f"variant {variant} has other values")
        large = [
            lambda at=at, index=index: hashers[at].start([buffers[at % 3]], index)
            for at in range(24)
        ]
        odd = [
            lambda at=at, index=index: hashers[at].start([buffers[at % 3][3:]], index)
            for at in range(12)
        ]
        middle = [
            lambda at=at, index=index: hashers[at].start([quarters[at]], index) for at in range(48)
        ]
        small = [
            lambda at=at, index=index: hashers[at].start([parts[at]], index) for at in range(48)
        ]
        rate = GIB / microseconds(large) / 1e6
        again = GIB / microseconds(large) / 1e6
        unaligned = GIB / microseconds(odd) / 1e6
        times = microseconds(middle), microseconds(small)
        print(
            f"{variant!s:16} | {rate:.3f}, {again:.3f}, {unaligned:.3f}, "
            f"{times[0]:.1f}, {times[1]:.1f}"
        )
        best = max(best, (rate, index))
    report(best=VARIANTS[best[1]], tb_s=round(best[0], 3))
    end()


if __name__ == "__main__":
    main()
