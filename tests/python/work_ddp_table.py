"""Run by test_ddp_table.py: a cell of the table between real peers."""

from __future__ import annotations

from typing import Any

import ddp_table as table
from ddp_table import LOOPS, ROUNDS

CELLS = (
    ("AdamW", "plain"),
    ("SGD nesterov", "closure"),
    ("Adam", "accumulation"),
    ("RMSprop centered", "GradScaler"),
    ("AdamW", "fused"),
    ("Muon", "two"),
    ("Adam amsgrad", "GAN"),
    ("Adagrad", "clip"),
    ("SGD", "plain"),
    ("AdamW", "GAN"),
)


def train(url: str, name: str, loop: str, number: int) -> list[float]:
    """Train as the peer of this number."""
    me = table.program(name, loop, scale=2.0 ** (4 - number))
    options: Any = {"url": url}
    return table.under_ddp(me, LOOPS[loop], number, ROUNDS.get(loop, 1), **options).tolist()
