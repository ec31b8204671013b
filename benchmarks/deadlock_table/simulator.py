"""Runs pccl-deadlock-table, the simulator of this folder, on all cores.

The seeds are fixed: a simulation of so many rounds has the same result on each machine, whatever
the number of its cores.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from configurations import World

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "core" / "pccl-deadlock-table"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The rounds of a simulation.

    Attributes:
        published: rounds with a deadlock by the check of the paper, which also counts chains of
            waits that end by themselves.
        exact: rounds in which GPUs wait for each other in a cycle.
    """

    rounds: int
    published: int
    exact: int


def _run(world: World, disorder: float, sync: float | None, rounds: int, seed: int) -> Outcome:
    model = "queue" if sync is None else "synchronization"
    words = [model, world.stages, disorder, *([] if sync is None else [sync]), rounds, seed]
    done = subprocess.run(
        [PROGRAM, *map(str, words)], input=world.text(), check=False, text=True, stdout=-1
    )
    if done.returncode != 0:
        raise SystemExit(f"{PROGRAM.name} has failed: see its error above")
    shown, published, exact = map(int, done.stdout.split())
    return Outcome(rounds=shown, published=published, exact=exact)


def simulate(
    world: World,
    *,
    disorder: float,
    synchronization: float | None,
    rounds: int,
    seed: int,
    cores: int | None = None,
) -> Outcome:
    """Return the outcome of so many rounds.

    Args:
        disorder: probability that a GPU skips the next call of its list.
        synchronization: probability that a turn is a synchronization; None: single-queue model.
        seed: each simulation with a number of its own is independent of the others.
        cores: how many to use; None: all.

    Raises:
        SystemExit: there is no simulator, or it has failed.
    """
    if not PROGRAM.exists():
        raise SystemExit(f"there is no {PROGRAM}: run `make core` first")
    parts = _parts(rounds, rounds_of_part=1000 if synchronization is None else 100)
    with ThreadPoolExecutor(cores or os.cpu_count()) as pool:
        runs = [
            pool.submit(_run, world, disorder, synchronization, part, (seed << 20) + number)
            for number, part in enumerate(parts)
        ]
        outcomes = [run.result() for run in runs]
    return Outcome(
        rounds=sum(outcome.rounds for outcome in outcomes),
        published=sum(outcome.published for outcome in outcomes),
        exact=sum(outcome.exact for outcome in outcomes),
    )


def _parts(rounds: int, *, rounds_of_part: int) -> Sequence[int]:
    whole, rest = divmod(rounds, rounds_of_part)
    return [rounds_of_part] * whole + ([rest] if rest else [])
