"""The state hash on the GPU: equal to the CPU's hash of the same bytes, and as fast as a copy."""

from __future__ import annotations

import random
import time

import torch
from check import end, expect, report, skip
from kernels import Kernels, host_hash
from tensors import Hasher, in_turn, microseconds, random_bytes

MIB = 1 << 20
GIB = 1 << 30
ROW = 256
TILE = 16384
SPANS_MAX = 1000

# The sizes of the golden values in tests/cpp/memory/test_state_hash.cc, and two of the values.
GOLDEN_SIZES = (0, 1, 8, 255, 256, 257, 4096, 16383, 16384, 16385, 100000, 1500000)
GOLDEN = {0: 0x38BC31AF52A94EDD, 1500000: 0x8109A463A1189A26}
EDGES = (0, 8, ROW, 8 * ROW, TILE, 3 * 8 * TILE, MIB, 132 * 8 * TILE)
DELTAS = (-257, -16, -9, -8, -7, -1, 0, 1, 7, 8, 9, 16, 255)
LARGE = 4 * GIB  # more than 32 bits

# The bars for the figures.
COPY_SHARE_MIN = 0.9
MICROSECONDS_MAX_16_MIB = 30.0


def pattern(size: int) -> torch.Tensor:
    index = torch.arange(size, dtype=torch.int64)
    return ((index * 37 + (index >> 8)) & 255).to(torch.uint8)


def expected(tensor: torch.Tensor) -> int:
    copy = tensor.cpu()
    return host_hash(copy.data_ptr(), copy.nbytes)


def check_golden(hasher: Hasher) -> None:
    for size in GOLDEN_SIZES:
        data = pattern(size)
        value = host_hash(data.data_ptr(), size)
        expect(value == GOLDEN.get(size, value), f"the CPU's hash of {size} bytes")
        for offset in range(9):
            place = torch.empty(offset + size, dtype=torch.uint8, device="cuda")
            place[offset:].copy_(data)
            expect(hasher(place[offset:]) == [value], f"{size} bytes at offset {offset}")


def check_edges(hasher: Hasher) -> int:
    """Compare random bytes of sizes around each edge, at 9 offsets."""
    count = 0
    device = random_bytes(max(EDGES) + 512, 1)
    host = device.cpu()
    for edge in EDGES:
        for size in (edge + delta for delta in DELTAS if edge + delta >= 0):
            for offset in range(9):
                value = host_hash(host.data_ptr() + offset, size)
                found = hasher(device[offset : offset + size])
                expect(found == [value], f"{size} bytes at offset {offset}")
                count += 1
    return count


def check_large(hasher: Hasher) -> None:
    device = random_bytes(LARGE + 64, 2)
    host = device.cpu()
    for offset, size in ((0, LARGE), (0, LARGE + 1), (3, LARGE + 50), (8, 3 * GIB - 1)):
        value = host_hash(host.data_ptr() + offset, size)
        expect(hasher(device[offset : offset + size]) == [value], f"{size} bytes at {offset}")


def check_many(kernels: Kernels) -> None:
    """Hash many tensors in one call, on a stream of torch."""
    chance = random.Random(3)
    tensors = []
    for _ in range(SPANS_MAX):
        size = chance.choice((0, 4, 300, TILE, 5 * TILE, 60 * TILE))
        size = chance.randrange(size + 1)
        offset = chance.randrange(9)
        tensors.append(random_bytes(offset + size, chance.randrange(2**60))[offset:])
    values = [expected(tensor) for tensor in tensors]
    torch.cuda.synchronize()
    hasher = Hasher(kernels, SPANS_MAX)
    with torch.cuda.stream(torch.cuda.Stream()):
        expect(hasher(*tensors) == values, f"{SPANS_MAX} tensors in one call")


def measure(kernels: Kernels) -> None:
    buffers = [random_bytes(GIB, seed) for seed in range(3)]
    hashers = [Hasher(kernels) for _ in range(48)]
    # Buffers in turn, so that none is still in the L2 cache of the GPU.
    copies = in_turn(12, lambda at: buffers[at % 3].copy_(buffers[(at + 1) % 3]))
    copy_rate = 2 * GIB / microseconds(copies) / 1e6
    hashes = in_turn(30, lambda at: hashers[at].start([buffers[at % 3]]))
    rate = GIB / microseconds(hashes) / 1e6
    share = rate / copy_rate
    report(copy_tb_s=round(copy_rate, 3), hash_1gib_tb_s=round(rate, 3), share=round(share, 3))
    expect(share >= COPY_SHARE_MIN, f"1 GiB reaches {share:.3f} of the copy rate")

    for name, size in (("4kib", 4096), ("1mib", MIB), ("16mib", 16 * MIB), ("64mib", 64 * MIB)):
        taken = part_microseconds(hashers, buffers, size)
        report(**{f"hash_{name}_us": round(taken, 1)})
        if name == "16mib":
            expect(taken < MICROSECONDS_MAX_16_MIB, f"16 MiB take {taken:.1f} us")
    odd = in_turn(12, lambda at: hashers[at].start([buffers[at % 3][3:]]))
    report(hash_1gib_unaligned_tb_s=round(GIB / microseconds(odd) / 1e6, 3))
    report(wall_16mib_us=round(wall_microseconds(hashers[0], buffers), 1))

    many = [part for buffer in buffers for part in buffer.split(3 * MIB + 8)]
    group = [Hasher(kernels, len(many)) for _ in range(6)]
    lists = in_turn(len(group), lambda at: group[at].start(many))
    report(hash_1000_spans_tb_s=round(3 * GIB / microseconds(lists) / 1e6, 3))


def part_microseconds(hashers: list[Hasher], buffers: list[torch.Tensor], size: int) -> float:
    parts = [part[at : at + size] for part in buffers for at in range(0, GIB, GIB // 16)]
    return microseconds(in_turn(48, lambda at: hashers[at].start([parts[at]])))


def wall_microseconds(hasher: Hasher, buffers: list[torch.Tensor]) -> float:
    """Return what one call of 16 MiB takes, for a caller that waits for it."""
    times = []
    for at in range(30):
        part = buffers[at % 3][at * 16 * MIB : (at + 1) * 16 * MIB]
        start = time.perf_counter()
        hasher(part)
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e6


def main() -> None:
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    kernels = Kernels()
    hasher = Hasher(kernels)
    check_golden(hasher)
    report(edges=check_edges(hasher))
    check_many(kernels)
    measure(kernels)
    check_large(hasher)
    end()


if __name__ == "__main__":
    main()
