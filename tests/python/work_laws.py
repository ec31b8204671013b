"""Run by test_laws.py: trainers between real peers, and their reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import reference
import torch
import torch.distributed as dist
from reference import Part, Reference, Worker, make_model

import pccl_backend as pccl
from pccl_backend.trainers import DDP, DiLoCo, Observer, OuterStep

EVERY = 6
SMALL, LARGE = 8, 128  # widths of the model: its average takes one message, or goes round the ring
DTYPES = {
    "float32": (torch.float32,),
    "mixed": (torch.float32, torch.bfloat16, torch.float16),
    "bfloat16": (torch.bfloat16,),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "blocking": {},
    "delay": {"mix": "delay"},
    "carry": {"mix": "carry", "overlap": EVERY},
    "streaming": {"fragments": 3, "overlap": 1, "mix": 0.5},
    "overlap": {"overlap": 2, "mix": 0.25},
}


def expected(name: str, workers: list[Worker]) -> Iterator[Part]:
    """Return the reference of a setting."""
    plain = {
        "blocking": reference.diloco,
        "delay": reference.delayed,
        "carry": reference.carried,
    }
    if name in plain:
        return plain[name](workers, every=EVERY)
    settings = SETTINGS[name]
    cuts = {"streaming": [range(2), range(2, 4), range(4, 6)], "overlap": [range(6)]}
    return reference.streaming(
        workers,
        every=EVERY,
        fragments=cuts[name],
        overlap=settings["overlap"],
        alpha=settings["mix"],
    )


class Recorder(Observer):
    """Keeps globals and momentum after each boundary, and the hashes that all share."""

    def __init__(self) -> None:
        self.globals: list[Part] = []
        self.momenta: list[Part] = []
        self.steps: list[OuterStep] = []

    def stepped(self, trainer: DiLoCo, done: OuterStep) -> None:
        state = trainer.state_dict()["tensors"]
        self.globals.append([t.clone() for n, t in state.items() if n.startswith("global/")])
        self.momenta.append([t.clone() for n, t in state.items() if n.startswith("momentum/")])
        self.steps.append(done)


def averages_go_round_the_ring() -> bool:
    """Return whether the averages so far have gone around the ring; False: each took one message.

    Raises:
        AssertionError: there was none, or some took one way and some another one.
    """
    info = pccl.run_info()
    assert info.direct is None, "all larger all-reduces go around the ring"
    sums = [past for past in info.history if past.operation.startswith("all_reduce(sum")]
    large = {past.bytes > info.one_shot_bytes for past in sums}
    assert len(large) == 1, info.history
    return large.pop()


def train(name: str, dtypes: str, boundaries: int, width: int) -> tuple[Recorder, list[Worker]]:
    """Train; return the record, and the workers of one process that have done nothing.

    Raises:
        AssertionError: the averages took another way than a model of this width needs.
    """
    recorder = Recorder()
    me = Worker(dist.get_rank(), make_model(DTYPES[dtypes], width))
    with DiLoCo(me.model, me.optimizer, every=EVERY, observer=recorder, **SETTINGS[name]):
        while len(recorder.globals) < boundaries:
            me.inner_step()
        assert averages_go_round_the_ring() == (width == LARGE)
    hashes = torch.tensor([done.synced.hash % (1 << 62) for done in recorder.steps])
    least, most = hashes.clone(), hashes.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    assert torch.equal(least, most), "hashes differ"
    assert len(set(hashes.tolist())) == len(hashes), "nothing was trained"
    size = dist.get_world_size()
    return recorder, [Worker(rank, make_model(DTYPES[dtypes], width)) for rank in range(size)]


def difference(got: Part, want: Part) -> float:
    """Return the greatest difference, relative to the greatest element."""
    scale = max(part.abs().max().item() for part in want)
    return max((a - b).abs().max().item() for a, b in zip(got, want, strict=True)) / scale


def follows_its_law(name: str, dtypes: str, boundaries: int, width: int) -> list[float]:
    """Train; return the difference to the reference at each boundary."""
    recorder, workers = train(name, dtypes, boundaries, width)
    laws = expected(name, workers)
    return [difference(got, want) for got, want in zip(recorder.globals, laws, strict=False)]


def follows_its_law_step_by_step(dtypes: str, boundaries: int, width: int) -> list[float]:
    """Train with blocking DiLoCo; return the difference that each outer step alone has made.

    The reference begins each outer step where the peers have begun it.
    """
    recorder, workers = train("blocking", dtypes, boundaries, width)
    run = Reference(workers)
    parameters = range(len(run.theta))
    differences = []
    for theta, momentum in zip(recorder.globals, recorder.momenta, strict=True):
        run.inner_steps(EVERY)
        deltas = [run.delta(rank, parameters) for rank in range(len(workers))]
        run.outer(run.mean(deltas), parameters)
        differences.append(difference(theta, run.theta))
        run.theta, run.momentum = theta, momentum
        run.load(parameters)
    return differences


def ddp_follows_gloo() -> bool:
    """Train beside torch's DistributedDataParallel over Gloo; return whether the bits are equal."""
    from torch.nn.parallel import DistributedDataParallel

    rank = dist.get_rank()
    gloo = dist.new_group(backend="gloo")
    ours, theirs = Worker(rank, make_model()), Worker(rank, make_model())
    wrapped = DistributedDataParallel(theirs.model, process_group=gloo)
    theirs.optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.01)
    ours.optimizer = torch.optim.AdamW(ours.model.parameters(), lr=0.01)
    theirs.model = wrapped
    with DDP(ours.model, ours.optimizer) as outer:
        for _ in range(10):
            ours.inner_step()
            theirs.inner_step()
    assert outer.revision == 10
    pairs = zip(ours.model.parameters(), wrapped.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
