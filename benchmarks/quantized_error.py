"""The error of a quantized sum over the number of members, around a ring and direct.

    .venv/bin/python benchmarks/quantized_error.py
    .venv/bin/python benchmarks/quantized_error.py --rounding  # another table: the mean of rounds

This is a model in one process, with the codes of the wire (quantize_dequantize). Direct: each
tensor is quantized once, the decoded tensors are added in float32, and so is the sum quantized
once, in 8 bits (not between two members). The ring per hop (PCCL_PATTERN=ring): each tensor is
quantized once, too, and each hop quantizes the partial sum again. pccl refuses 4 bits there, and
two members never take it. The error is relative to the size of the sum, both as Euclidean norms.

Two kinds of tensors: independent normal numbers, and pseudo-gradients, which resemble each other:
what peers have learned in 12 steps of AdamW from the same start of the GPT of
examples/06_chargpt_diloco.py, each on batches of its own.

With --rounding, eight members add the same tensors in 64 rounds. The table has the error of one
sum, and of the mean of all rounds: what rounding to nearest loses is the same in each round, what
stochastic rounding loses is not, and error feedback sends it in the next round.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import records
import torch
from options import at_least_one
from processes import run_main

from pccl_backend.demo.data import SYMBOLS, Text, read_standard_library
from pccl_backend.demo.model import CharGpt, loss_of
from pccl_backend.quantization import MinMax, quantize_dequantize

RING, DIRECT = "ring per hop", "direct"
MEMBERS = (2, 3, 4, 6, 8, 12, 18)
PSEUDO, NORMAL = "pseudo-gradients", "normal numbers"
BITS = (8, 4)
STEPS = 12
CONTEXT, BATCH = 64, 8
COUNT = 1 << 17  # normal numbers of a member
GOALS = {8: 0.01, 4: 0.035}  # most error of direct sums of the most pseudo-gradients
ROUNDED_MEMBERS, ROUNDS = 8, 64
NEAREST, STOCHASTIC, FEEDBACK = "nearest", "stochastic", "nearest, error feedback"
GROWTH = 1.2  # most error of direct sums of many, as a multiple of sums of three
FLAT = (NORMAL, 8)  # where the growth is looked at


@dataclass(frozen=True, kw_only=True)
class Row:
    """The error of one sum, as a part of its size."""

    data: str
    bits: int
    way: str
    members: int
    error: float


def normal_numbers(members: int) -> list[torch.Tensor]:
    """Return a tensor for each member."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(COUNT, generator=generator) for _ in range(members)]


def pseudo_gradients(members: int) -> list[torch.Tensor]:
    """Return the pseudo-gradient of each member, all from the same start."""
    text = Text(read_standard_library(1 << 20), context=CONTEXT)
    return [_learned(text, member) for member in range(members)]


def _learned(text: Text, member: int) -> torch.Tensor:
    torch.manual_seed(1)
    model = CharGpt(symbols=SYMBOLS, context=CONTEXT, layers=2, width=64, heads=4)
    start = _flat(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batches = text.batches(BATCH, seed=member)
    for _ in range(STEPS):
        loss_of(model, next(batches)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return start - _flat(model)


def _flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def direct(tensors: Sequence[torch.Tensor], bits: int) -> torch.Tensor:
    """Return the sum that pccl gives."""
    q = MinMax(bits=bits)
    decoded = [quantize_dequantize(tensor, q) for tensor in tensors]
    total = sum(decoded[1:], decoded[0])
    return total if len(tensors) == 2 else quantize_dequantize(total, MinMax(bits=8))


def errors_of_rounds(tensors: Sequence[torch.Tensor], bits: int, way: str) -> tuple[float, float]:
    """Return the error of the first sum, and of the mean of all rounds."""
    rounding = STOCHASTIC if way == STOCHASTIC else NEAREST
    q, result = (MinMax(bits=b, rounding=rounding) for b in (bits, 8))
    exact = torch.stack(list(tensors)).double().sum(0)
    lost = [torch.zeros_like(tensor) for tensor in tensors]
    mean = torch.zeros_like(exact)
    errors = []
    for turn in range(ROUNDS):
        total = torch.zeros_like(tensors[0])
        seed = turn * (len(tensors) + 1)
        for member, tensor in enumerate(tensors):
            own = tensor + lost[member]
            decoded = quantize_dequantize(own, q, seed=seed + member)
            if way == FEEDBACK:
                lost[member] = own - decoded
            total += decoded
        total = quantize_dequantize(total, result, seed=seed + len(tensors))
        mean += total / ROUNDS
        errors.append(((total.double() - exact).norm() / exact.norm()).item())
    return errors[0], ((mean - exact).norm() / exact.norm()).item()


def print_roundings() -> None:
    """Print the table of --rounding."""
    print(f"| | one sum | mean of {ROUNDS} rounds |\n|---|---|---|")
    for data, make in ((PSEUDO, pseudo_gradients), (NORMAL, normal_numbers)):
        tensors = make(ROUNDED_MEMBERS)
        for bits in BITS:
            for way in (NEAREST, STOCHASTIC, FEEDBACK):
                one, mean = errors_of_rounds(tensors, bits, way)
                print(f"| {data}, {bits} bits, {way} | {100 * one:.2f} % | {100 * mean:.3f} % |")


def around_the_ring(tensors: Sequence[torch.Tensor], bits: int) -> torch.Tensor:
    """Return the sum that pccl gives around a ring: each partial one was quantized."""
    q = MinMax(bits=bits)
    decoded = [quantize_dequantize(tensor, q) for tensor in tensors]
    total = decoded[0]
    for tensor in decoded[1:-1]:
        total = quantize_dequantize(total + tensor, q)
    return quantize_dequantize(total + decoded[-1], MinMax(bits=8))


def measure(members: Sequence[int]) -> list[Row]:
    """Return the errors of all sums."""
    rows = []
    for data, make in ((PSEUDO, pseudo_gradients), (NORMAL, normal_numbers)):
        tensors = make(max(members))
        for bits in BITS:
            for way, reduce in ((RING, around_the_ring), (DIRECT, direct)):
                for count in members:
                    own = tensors[:count]
                    exact = torch.stack(own).double().sum(0)
                    error = (reduce(own, bits).double() - exact).norm() / exact.norm()
                    rows.append(
                        Row(data=data, bits=bits, way=way, members=count, error=error.item())
                    )
    return rows


def missed(rows: Sequence[Row]) -> list[str]:
    """Return the goals that were missed, in words."""
    most = max(row.members for row in rows)
    found = {(row.data, row.bits, row.members): row.error for row in rows if row.way == DIRECT}
    missed = [
        f"{bits} bits: {found[PSEUDO, bits, most]:.2%}, goal {goal:.1%}"
        for bits, goal in GOALS.items()
        if found[PSEUDO, bits, most] > goal
    ]
    few = min((row.members for row in rows if row.members > 2), default=most)
    growth = found[(*FLAT, most)] / found[(*FLAT, few)]  # two members do not quantize the result
    if growth > GROWTH:
        missed.append(f"{most} members have {growth:.2f} times the error of {few}, goal {GROWTH}")
    return missed


def head(members: Sequence[int]) -> str:
    """Return the head of the table."""
    cells = ["", *(f"{count} members" for count in members)]
    return f"| {' | '.join(cells)} |\n|" + "---|" * len(cells)


def lines(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table, one for each kind of sum."""
    kinds = list(dict.fromkeys((row.data, row.bits, row.way) for row in rows))
    found = []
    for data, bits, way in kinds:
        own = [row for row in rows if (row.data, row.bits, row.way) == (data, bits, way)]
        cells = [f"{data}, {bits} bits, {way}", *(f"{100 * row.error:.2f} %" for row in own)]
        found.append(f"| {' | '.join(cells)} |")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=at_least_one, nargs="+", default=list(MEMBERS))
    parser.add_argument("--rounding", action="store_true", help="the table of roundings instead")
    records.add_option(parser)
    given = parser.parse_args()
    if min(given.members) < 2:
        parser.error("--members: 2 or more, because one member adds nothing")
    torch.set_num_threads(1)
    if given.rounding:
        print_roundings()
        return 0
    rows = measure(sorted(given.members))
    print("\n".join([head(sorted(given.members)), *lines(rows)]))
    bad = missed(rows)
    for text in bad:
        print(f"MISSED: {text}")
    records.write(
        records.Record(congestion=records.congestion_here(), rounds=1, rows=rows), given.json
    )
    return int(bool(bad))


if __name__ == "__main__":
    run_main(main)
