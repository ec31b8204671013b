"""What overlap costs in quality: the loss of a small GPT after equal numbers of tokens.

    .venv/bin/python benchmarks/quality.py --seeds 3

Two peers train the GPT of examples/06_chargpt_diloco.py, each on batches of its own, with the usual
outer settings (0.7 and 0.9). H inner steps lie between two outer steps. A line for each setting:
the loss of the global parameters on text held out, the median over some seeds with the smallest and
the largest, and the median of its ratios to blocking DiLoCo with the same seed. Loss depends on
numbers alone, so a busy machine changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import warnings
from typing import Any

from processes import Master, end, read_line, run_main

EVERY = 20
OUTER_STEPS = 40
CONTEXT, BATCH = 64, 8
VALIDATION_WINDOWS = 256
TEXT_BYTES_MAX = 1 << 20
SETTINGS: dict[str, dict[str, Any]] = {
    "blocking": {},
    "overlap H/5, mix 0.5": {"overlap": EVERY // 5, "mix": 0.5},
    "overlap H/5, mix 0.5, 2 fragments": {"overlap": EVERY // 5, "mix": 0.5, "fragments": 2},
    "overlap H, carry": {"overlap": EVERY, "mix": "carry"},
    "delay": {"mix": "delay"},
}
GOALS = {"overlap H/5, mix 0.5": 1.02, "overlap H, carry": 1.13}  # times the loss of blocking


def rank_main(address: str, seeds: int) -> None:
    """Train once for each setting and seed; print the loss and the hash of the globals."""
    import torch

    warnings.simplefilter("ignore")  # of mix="delay", which is here on purpose
    torch.set_num_threads(1)
    for number, options in enumerate(SETTINGS.values()):
        for seed in range(1, 1 + seeds):
            url = f"pccl://{address}/quality-{number}-{seed}?min_peers=2"
            print(json.dumps(train(url, options, seed)), flush=True)


def train(url: str, options: dict[str, Any], seed: int) -> tuple[float, str]:
    import torch
    import torch.distributed as dist

    from pccl_backend.demo.data import SYMBOLS, Text, read_standard_library
    from pccl_backend.demo.model import CharGpt, loss_of
    from pccl_backend.trainers import DiLoCo

    dist.init_process_group("pccl", init_method=url)
    torch.manual_seed(seed)
    model = CharGpt(symbols=SYMBOLS, context=CONTEXT, layers=2, width=64, heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = Text(read_standard_library(TEXT_BYTES_MAX), context=CONTEXT)
    batches = text.batches(BATCH, seed=2 * seed + dist.get_rank())
    with DiLoCo(model, optimizer, every=EVERY, **options) as outer:
        for _ in range(EVERY * OUTER_STEPS):
            loss_of(model, next(batches)).backward()
            optimizer.step()
            optimizer.zero_grad()
        outer.finish()
        assert outer.last is not None
        with outer.global_parameters(), torch.no_grad():
            loss = loss_of(model, text.validation(VALIDATION_WINDOWS)).item()
    dist.destroy_process_group()
    return loss, f"{outer.last.synced.hash:x}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    arguments = parser.parse_args()
    if arguments.rank:
        rank_main(arguments.rank, arguments.seeds)
        return 0
    master = Master()
    command = [sys.executable, __file__, "--seeds", str(arguments.seeds), "--rank", master.address]
    pipe = subprocess.PIPE
    quiet = {**os.environ, "TORCH_FR_BUFFER_SIZE": "0"}  # it warns when a rank changes
    ranks = [
        subprocess.Popen(command, stdout=pipe, stdin=pipe, text=True, env=quiet) for _ in range(2)
    ]
    try:
        return show(ranks, arguments.seeds)
    finally:
        end(ranks, master)


def show(ranks: list[subprocess.Popen[str]], seeds: int) -> int:
    """Print a line for each setting; return 1 if a goal is missed."""
    code = 0
    blocking: list[float] = []
    for setting in SETTINGS:
        losses = []
        for _ in range(seeds):
            first, second = (json.loads(read_line(rank)) for rank in ranks)
            assert first == second, f"the peers differ: {first}, {second}"
            losses.append(first[0])
        blocking = blocking or losses
        ratio = statistics.median(a / b for a, b in zip(losses, blocking, strict=True))
        goal = GOALS.get(setting)
        print(
            f"{setting:34} loss {statistics.median(losses):.3f} "
            f"({min(losses):.3f} to {max(losses):.3f}), {ratio:.3f} x blocking"
            + (f", goal {goal}" if goal else ""),
            flush=True,
        )
        code |= goal is not None and ratio > goal
    return code


if __name__ == "__main__":
    run_main(main)
