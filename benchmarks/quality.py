"""The price of a setting in quality: the loss of a small GPT after equal numbers of tokens.

    .venv/bin/python benchmarks/quality.py overlap --seeds 3
    .venv/bin/python benchmarks/quality.py quantized --picture benchmarks/plots/quantized_loss.png

The peers train the GPT of examples/06_chargpt_diloco.py, each on batches of its own: two peers in
the study of overlap, eight in the study of quantization. Outer settings are the usual ones (0.7 and
0.9). H inner steps lie between two outer steps. A line for each setting: the loss of the global
parameters on text held out, the median over some seeds with the smallest and the largest, the
median of its ratios to its rival with the same seed (the first setting, or plain DDP), and the
bytes that a peer sends. Loss depends on numbers alone, so a busy machine changes nothing.

The goal of most formats is that their median differs from float32's by less than the seeds of
float32 differ among each other. The exit status is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import records
from options import at_least_one
from processes import Master, end, read_line, run_main

if TYPE_CHECKING:
    import torch

    from pccl_backend.demo.data import Text

EVERY = 20
OUTER_STEPS = 40
DDP_STEPS = 200
POINTS = 10  # of each training's curve
CONTEXT, BATCH = 64, 8
VALIDATION_WINDOWS = 256
TEXT_BYTES_MAX = 1 << 20
NOISE = "noise"  # a goal: the difference between the seeds of the rival


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A way to train.

    Attributes:
        options: of DiLoCo. For DDP: {"quantize": ...}, for its hook.
        ddp: whether torch's DDP averages the gradients of each step.
        bits: MinMax(bits) travels; 0: the tensors as they are.
        rival: the setting to compare with.
        goal: most of its loss, as a multiple of the rival's; or NOISE.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    ddp: bool = False
    bits: int = 0
    rival: str = ""
    goal: float | str | None = None


@dataclass(frozen=True, kw_only=True)
class Study:
    """Settings that are compared, and the number of peers that train."""

    peers: int
    settings: Mapping[str, Setting]


OVERLAP = Study(
    peers=2,
    settings={
        "blocking": Setting(),
        "overlap H/5, mix 0.5": Setting(
            options={"overlap": EVERY // 5, "mix": 0.5}, rival="blocking", goal=1.02
        ),
        "overlap H/5, mix 0.5, 2 fragments": Setting(
            options={"overlap": EVERY // 5, "mix": 0.5, "fragments": 2}, rival="blocking"
        ),
        "overlap H, carry": Setting(
            options={"overlap": EVERY, "mix": "carry"}, rival="blocking", goal=1.13
        ),
        "delay": Setting(options={"mix": "delay"}, rival="blocking"),
    },
)
QUANTIZED = Study(
    peers=8,
    settings={
        "float32": Setting(),
        "8 bit": Setting(bits=8, rival="float32", goal=NOISE),
        "4 bit, error feedback": Setting(
            bits=4, options={"error_feedback": True}, rival="float32", goal=NOISE
        ),
        "4 bit": Setting(bits=4, rival="float32"),
        "DDP, float32": Setting(ddp=True),
        "DDP, 8 bit": Setting(ddp=True, bits=8, rival="DDP, float32", goal=1.01),
    },
)
STUDIES = {"overlap": OVERLAP, "quantized": QUANTIZED}


@dataclass(kw_only=True)
class Row:
    """One training.

    Attributes:
        loss: of the global parameters on text held out, in nats per character.
        digest: of the global parameters.
        curve: [bytes that a peer has sent, loss] at some moments; only rank 0 has it.
    """

    setting: str
    seed: int
    loss: float
    digest: str
    curve: list[list[float]]


# ---- One rank, in a process of its own -----------------------------------------------------------


def rank_main(study: str, address: str, seeds: int, outer_steps: int, ddp_steps: int) -> None:
    """Train once for each setting and seed; print the rows."""
    import torch

    warnings.simplefilter("ignore")  # of mix="delay", which is here on purpose
    torch.set_num_threads(1)
    peers = STUDIES[study].peers
    for number, (name, setting) in enumerate(STUDIES[study].settings.items()):
        for seed in range(1, 1 + seeds):
            url = f"pccl://{address}/quality-{number}-{seed}?min_peers={peers}"
            steps = ddp_steps if setting.ddp else outer_steps
            row = train(url, name, setting, seed, steps)
            print(json.dumps(asdict(row)), flush=True)


def train(url: str, name: str, setting: Setting, seed: int, steps: int) -> Row:
    """Train for this number of outer steps, or of steps of DDP."""
    import names
    import torch
    import torch.distributed as dist

    from pccl_backend.demo.data import SYMBOLS, Text, read_standard_library
    from pccl_backend.demo.model import CharGpt

    dist.init_process_group("pccl", init_method=url)
    torch.manual_seed(seed)
    model = CharGpt(symbols=SYMBOLS, context=CONTEXT, layers=2, width=64, heads=4)
    text = Text(read_standard_library(TEXT_BYTES_MAX), context=CONTEXT)
    batches = text.batches(BATCH, seed=dist.get_world_size() * seed + dist.get_rank())
    curve: list[list[float]] = []
    learn = _learn_with_ddp if setting.ddp else _learn
    for step in learn(model, setting, batches, steps):
        if dist.get_rank() == 0 and step * POINTS // steps > len(curve):
            curve.append([float(names.run_info().bytes_sent), _loss_on(model, text)])
    row = Row(
        setting=name, seed=seed, loss=_loss_on(model, text), digest=_digest(model), curve=curve
    )
    dist.destroy_process_group()
    return row


def _learn(model: Any, setting: Setting, batches: Iterator[Any], outer_steps: int) -> Iterator[int]:
    """Train with DiLoCo; yield after each outer step, and in the end, with the globals."""
    import torch

    from pccl_backend.demo.model import loss_of
    from pccl_backend.quantization import MinMax
    from pccl_backend.trainers import DiLoCo

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    options = dict(setting.options)
    if setting.bits:
        options["quantize"] = MinMax(bits=setting.bits)
    with DiLoCo(model, optimizer, every=EVERY, **options) as outer:
        for step in range(1, 1 + EVERY * outer_steps):
            loss_of(model, next(batches)).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % EVERY == 0 and step < EVERY * outer_steps:
                with outer.global_parameters():
                    yield step // EVERY
        outer.finish()
        with outer.global_parameters():
            yield outer_steps
            end_of = [parameter.detach().clone() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), end_of, strict=True):
            parameter.copy_(value)


def _learn_with_ddp(
    model: Any, setting: Setting, batches: Iterator[Any], steps: int
) -> Iterator[int]:
    """Train with torch's DDP; yield after each step."""
    import names
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from pccl_backend.demo.model import loss_of
    from pccl_backend.quantization import MinMax

    ddp: Any = DistributedDataParallel(model)
    if setting.bits:
        hooks = names.hooks()
        state = hooks.QuantizeState(MinMax(bits=setting.bits))
        ddp.register_comm_hook(state, hooks.quantize_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, 1 + steps):
        loss_of(ddp, next(batches)).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield step


def _loss_on(model: torch.nn.Module, text: Text) -> float:
    import torch

    from pccl_backend.demo.model import CharGpt, loss_of

    assert isinstance(model, CharGpt)
    with torch.no_grad():
        return loss_of(model, text.validation(VALIDATION_WINDOWS)).item()


def _digest(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


# ---- The table -----------------------------------------------------------------------------------


def show(name: str, setting: Setting, rows: Sequence[Row], rivals: Sequence[Row]) -> bool:
    """Print the line of a setting; return whether it has reached its goal."""
    losses = [row.loss for row in rows]
    line = f"{name:34} loss {statistics.median(losses):.3f} "
    line += f"({min(losses):.3f} to {max(losses):.3f})"
    line += f", {rows[0].curve[-1][0] / 1e6:.2f} MB sent"
    reached = True
    if rivals:
        others = [row.loss for row in rivals]
        ratio = statistics.median(a / b for a, b in zip(losses, others, strict=True))
        line += f", {ratio:.3f} x {setting.rival}"
        if setting.goal == NOISE:
            noise = max(others) - min(others)
            difference = statistics.median(losses) - statistics.median(others)
            reached = abs(difference) <= noise
            line += f", {difference:+.3f}, goal {noise:.3f}, the spread of {setting.rival}"
        elif setting.goal is not None:
            reached = ratio <= float(setting.goal)
            line += f", goal {setting.goal}"
    print(line + ("" if reached else " MISSED"), flush=True)
    return reached


def collect(
    study: Study, ranks: Sequence[subprocess.Popen[str]], seeds: int
) -> tuple[list[Row], bool]:
    """Read all rows, and print a line for each setting as soon as it is known.

    Return the rows, and whether all goals were reached.
    """
    found: dict[str, list[Row]] = {}
    reached = True
    for name, setting in study.settings.items():
        for _ in range(seeds):
            rows = [Row(**json.loads(read_line(rank))) for rank in ranks]
            same = {(row.setting, row.seed, row.loss, row.digest) for row in rows}
            assert len(same) == 1, f"the peers differ: {same}"
            found.setdefault(name, []).append(max(rows, key=lambda row: len(row.curve)))
        reached &= show(name, setting, found[name], found.get(setting.rival, []))
    return [row for rows in found.values() for row in rows], reached


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=at_least_one, default=3, help="number of seeds")
    parser.add_argument("--outer-steps", type=at_least_one, default=OUTER_STEPS)
    parser.add_argument("--ddp-steps", type=at_least_one, default=DDP_STEPS)
    parser.add_argument("--picture", type=Path, help="draw the loss over the bytes there")
    parser.add_argument("--rank", metavar="ADDRESS", help=argparse.SUPPRESS)
    records.add_option(parser)
    given = parser.parse_args()
    if given.rank:
        rank_main(given.study, given.rank, given.seeds, given.outer_steps, given.ddp_steps)
        return 0
    study, begun, master = STUDIES[given.study], time.monotonic(), Master()
    command = [sys.executable, __file__, given.study, "--seeds", str(given.seeds)]
    command += ["--outer-steps", str(given.outer_steps), "--ddp-steps", str(given.ddp_steps)]
    pipe = subprocess.PIPE
    quiet = {**os.environ, "TORCH_FR_BUFFER_SIZE": "0"}  # it warns when a rank changes
    ranks = [
        subprocess.Popen(
            [*command, "--rank", master.address], stdout=pipe, stdin=pipe, text=True, env=quiet
        )
        for _ in range(study.peers)
    ]
    try:
        rows, reached = collect(study, ranks, given.seeds)
    finally:
        end(ranks, master)
    print(f"{(time.monotonic() - begun) / 60:.1f} minutes")
    record = records.Record(congestion=records.congestion_here(), rounds=given.seeds, rows=rows)
    records.write(record, given.json)
    if given.picture is not None:
        sys.path.insert(
            0, str(Path(__file__).resolve().parent / "wan")
        )  # plots.py draws these, too
        import plots

        plots.losses(rows, given.picture)
    return int(not reached)


if __name__ == "__main__":
    run_main(main)
