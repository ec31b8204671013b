"""The time of an optimizer's step with trainers.DDP: two peers on loopback, beside torch's DDP.

    tools/stock-network.sh .venv/bin/python benchmarks/ddp_step.py
    PYTHONPATH=/another/tree .venv/bin/python benchmarks/ddp_step.py --only pccl

AdamW moves 10 million parameters in 100 tensors. The loss is their sum, so that the gradients and
the optimizer take nearly all of the time. "step" is the time of `optimizer.step()`, which includes
the averages and the meeting of trainers.DDP. "with backward" is the time of `backward()` and the
step: torch's DDP averages in the former. "alone" are two processes that average nothing. The
contenders take turns. Each figure is the median of one rank's steps in a round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import records
from options import add_only, at_least_one
from processes import Master, ask, end, environment_of, read_line, run_main

if TYPE_CHECKING:
    import torch

TENSORS, EDGE = 100, 316  # of EDGE x EDGE elements
STEPS = 10  # in a round
NAMES = {
    "pccl": "trainers.DDP",
    "gloo": "DistributedDataParallel over Gloo",
    "alone": "alone",
}
STEP, WHOLE = "ddp step", "ddp step with backward"


@dataclass(kw_only=True)
class Row:
    """A contender: the seconds of each round."""

    contender: str
    step_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)


# ---- One rank, in a process of its own -----------------------------------------------------------


@contextmanager
def averaged(
    contender: str, place: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[torch.nn.Module]:
    """Yield the module whose forward pass begins a step."""
    if contender == "pccl":
        from pccl_backend.trainers import DDP

        with DDP(model, optimizer, url=place):
            yield model
    elif contender == "gloo":
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        init_method, rank = place.split()
        dist.init_process_group("gloo", init_method=init_method, rank=int(rank), world_size=2)
        yield DistributedDataParallel(model)
        dist.destroy_process_group()
    else:
        yield model


def rank_main(contender: str, place: str) -> None:
    """Make a round for each line on stdin; print the medians in microseconds."""
    import torch

    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ParameterList(torch.ones(EDGE, EDGE) for _ in range(TENSORS))

        def forward(self) -> torch.Tensor:
            return torch.stack([layer.sum() for layer in self.layers]).sum()

    torch.set_num_threads(1)
    model = Sum()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(module: torch.nn.Module) -> dict[str, float]:
        loss = module()
        begun = time.perf_counter()
        loss.backward()
        stepping = time.perf_counter()
        optimizer.step()
        done = time.perf_counter()
        optimizer.zero_grad()
        return {STEP: (done - stepping) * 1e6, WHOLE: (done - begun) * 1e6}

    with averaged(contender, place, model, optimizer) as module:
        print("ready", flush=True)
        for _ in sys.stdin:
            times = [step(module) for _ in range(STEPS)]
            medians = {name: statistics.median(one[name] for one in times) for name in times[0]}
            print(json.dumps(medians), flush=True)


# ---- The table -----------------------------------------------------------------------------------


def start(
    place: str, *, contender: str = "pccl", build: Path | None = None
) -> subprocess.Popen[str]:
    """Start a rank; `build`: folder of its package pccl_backend (processes.environment_of)."""
    return subprocess.Popen(
        [sys.executable, __file__, "--rank-of", contender, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment_of(build), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
    )


def measure(contenders: Sequence[str], rounds: int) -> list[Row]:
    """Return a row for each contender."""
    master = Master()
    ranks: dict[str, list[subprocess.Popen[str]]] = {}
    rows = {contender: Row(contender=contender) for contender in contenders}
    with tempfile.TemporaryDirectory(prefix="pccl-bench-") as folder:
        places: dict[str, Callable[[int], str]] = {
            "pccl": lambda rank: f"pccl://{master.address}/ddp?min_peers=2",
            "gloo": lambda rank: f"file://{folder}/store {rank}",
            "alone": lambda rank: "",
        }
        for contender in contenders:
            place = places[contender]
            ranks[contender] = [start(place(rank), contender=contender) for rank in range(2)]
        everyone = [process for both in ranks.values() for process in both]
        try:
            for process in everyone:
                assert read_line(process).strip() == "ready"
            for round_number in range(-1, rounds):  # the first round is a warm-up
                for contender, both in ranks.items():
                    medians = json.loads(ask(both, "go")[0])
                    if round_number >= 0:
                        rows[contender].step_s.append(medians[STEP] / 1e6)
                        rows[contender].whole_s.append(medians[WHOLE] / 1e6)
        finally:
            end(everyone, master)
    return list(rows.values())


HEAD = "| two peers | step (min-max) | with backward |\n|---|---|---|"


def line(row: Row) -> str:
    """Return a row as one line of a Markdown table."""
    spreads = f"{records.spread(row.step_s)} | {records.spread(row.whole_s)}"
    return f"| {NAMES[row.contender]} | {spreads} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=9)
    add_only(parser, "--only", list(NAMES), "the contenders")
    records.add_option(parser)
    parser.add_argument("--rank-of", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_main(*given.rank_of)
        return
    rows = measure(given.only, given.rounds)
    print("\n".join([HEAD, *map(line, rows)]))
    congestion = records.congestion_here()
    records.write(records.Record(congestion=congestion, rounds=given.rounds, rows=rows), given.json)


if __name__ == "__main__":
    run_main(main)
