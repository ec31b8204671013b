"""Run by test_trainers.py: trainers between real peers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from reference import Worker, make_model
from world import expected

import pccl_backend as pccl
from pccl_backend.trainers import DDP, DiLoCo, Observer, OuterStep

EVERY = 4
PARAMETERS = 48 * 500 * 500


class Recorder(Observer):
    """Keeps the records of all outer steps, and may do something after one."""

    def __init__(self, then: Callable[[OuterStep], None] = lambda done: None) -> None:
        self.steps: list[OuterStep] = []
        self._then = then

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        self.steps.append(done)
        self._then(done)


def hashes(steps: list[OuterStep]) -> dict[int, int]:
    return {done.synced.revision: done.synced.hash for done in steps}


class Stop:
    """Decides when to stop: some steps after a newcomer has joined in place of the lost peer."""

    def __init__(self, *, dies_at: int | None) -> None:
        self._dies_at = dies_at
        self._lost = False
        self.at: int | None = None

    def after(self, done: OuterStep) -> None:
        if self._dies_at is not None and done.revision >= self._dies_at:
            os._exit(9)
        self._lost = self._lost or bool(done.left)
        # The peer that will be lost may have joined in the same step in which it is lost.
        if self._lost and done.joined and done.world_size == 3 and self.at is None:
            self.newcomer_begins(done.revision)

    def newcomer_begins(self, revision: int) -> None:
        self.at = revision + 5

    def is_due(self, last: OuterStep | None) -> bool:
        return last is not None and self.at is not None and last.revision >= self.at


def train(options: dict[str, Any], seed: int, dies_at: int | None, newcomer: bool) -> Any:
    """Train until a newcomer has taken part for some outer steps; or die in one."""
    stop = Stop(dies_at=dies_at)
    recorder = Recorder(stop.after)
    me = Worker(seed, make_model())
    if "ddp" in options:
        me.optimizer = torch.optim.AdamW(me.model.parameters(), lr=0.01)
        outer: Any = DDP(me.model, me.optimizer, observer=recorder)
    else:
        outer = DiLoCo(me.model, me.optimizer, every=EVERY, observer=recorder, **options)
    with outer:
        first = outer.revision
        if newcomer:
            stop.newcomer_begins(first)
        while not stop.is_due(outer.last):
            me.inner_step()
            time.sleep(0.01)
    sizes = max(done.world_size for done in recorder.steps)
    return first, hashes(recorder.steps), sizes, outer_parameters(me.model)


def outer_parameters(model: torch.nn.Module) -> float:
    return sum(p.detach().double().abs().sum().item() for p in model.parameters())


def weighted(by: str) -> None:
    """Rank 0 takes one inner step, rank 1 three; tokens are ten a step."""
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    tokens = 0
    weight: Any = (lambda: tokens) if by == "tokens" else by
    outer = DiLoCo(model, optimizer, outer_lr=1.0, outer_momentum=0.0, weight=weight)
    with outer:
        before = model.weight.item()
        for _ in range(1 + 2 * dist.get_rank()):
            model.weight.grad = torch.full_like(model.weight, 1.0 + dist.get_rank())
            optimizer.step()
            tokens += 10
        outer.step()
        # Rank 0 has learned -1 with weight 1, rank 1 -6 with weight 3.
        mean = (1 + 6) / 2 if by == "equal" else (1 * 1 + 3 * 6) / 4
        assert abs(model.weight.item() - (before - mean)) < 1e-6


def a_sick_peer_is_named(overlap: int) -> None:
    recorder = Recorder()
    me = Worker(dist.get_rank(), make_model())
    name = pccl.run_info().members[1].peer
    with DiLoCo(me.model, me.optimizer, every=4, overlap=overlap, observer=recorder):
        for step in range(16):
            if step == 5 and dist.get_rank() == 1:
                with torch.no_grad():
                    next(me.model.parameters()).fill_(float("nan"))
            me.inner_step()
    named = [done.excluded for done in recorder.steps]
    assert named.count((name,)) == 1, named
    assert all(p.isfinite().all() for p in me.model.parameters())


def leaves_by_an_exception() -> int:
    """Rank 1 leaves its loop by an exception; the others go on."""
    me = Worker(dist.get_rank(), make_model())
    outer = DiLoCo(me.model, me.optimizer, every=2, overlap=1)
    if dist.get_rank() == 1:
        with expected(ZeroDivisionError), outer:
            for _ in range(5):
                me.inner_step()
            raise ZeroDivisionError
        revision = outer.revision
        for _ in range(4):
            me.inner_step()
        assert outer.revision == revision, "no further outer step"
        with expected(pccl.InvalidStateError):
            outer.step()
        return -1
    with outer:
        while outer.revision < 8:
            me.inner_step()
    return outer.last.world_size


def buffers_are_averaged(trainer: str) -> list[float]:
    """Train a batch norm on data that differ; return its statistics in the shared state."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    model.register_buffer("constant", torch.tensor([1 / 3, float("-inf")]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rank = dist.get_rank()
    outer: Any = DDP(model, optimizer) if trainer == "ddp" else DiLoCo(model, optimizer, every=3)
    with outer:
        for step in range(6):
            if rank == 0 or step % 3 == 0 or trainer == "ddp":
                x = torch.randn(8, 4) + 5 * rank
                optimizer.zero_grad()
                model(x).square().mean().backward()
            optimizer.step()
    assert model.constant.tolist() == [torch.tensor(1 / 3).item(), float("-inf")]
    assert model[1].num_batches_tracked.item() == 6
    return [*model[1].running_mean.tolist(), *model[1].running_var.tolist()]


def resumes(folder: str, part: str, rounds: int) -> Any:
    """Train in one of several lives of a run, each from a checkpoint of an earlier one."""
    import torch.distributed.checkpoint as dcp

    me = Worker(dist.get_rank(), make_model())
    outer = DiLoCo(me.model, me.optimizer, every=EVERY, overlap=1)
    if part:
        state = outer.state_dict()
        dcp.load(state, checkpoint_id=f"{folder}/{part}", no_dist=True)
        outer.load_state_dict(state)
    with outer:
        while outer.last is None or outer.last.revision < rounds:
            me.inner_step()
        outer.finish()
        state = outer.state_dict()
        if dist.get_rank() == 0:
            dcp.save(state, checkpoint_id=f"{folder}/{rounds}", no_dist=True)
            Path(f"{folder}/{rounds}.txt").write_text(f"{state['revision']} {state['hash']}")
    return outer.revision


def peak_bytes(mix: Any) -> int:
    """Return by how much the peak of this process's memory rises."""
    model = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(500, 500)) for _ in range(48))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model:
        parameter.grad = torch.full_like(parameter, 1e-3)
    overlap = 2 if mix == "carry" else 0
    dist.all_reduce(torch.ones(1 << 16))  # what any program has touched
    optimizer.step()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = memory("VmRSS")
    with DiLoCo(model, optimizer, every=2, overlap=overlap, mix=mix):
        for _ in range(6):
            optimizer.step()
    return memory("VmHWM") - before


def adam(flats: list[torch.Tensor]) -> torch.optim.Optimizer:
    """An outer optimizer whose state torch makes in its first step."""
    return torch.optim.AdamW(flats, lr=0.01)


def stays_where_nobody_learns(options: dict[str, Any]) -> None:
    """Resume where globals lie between values of bfloat16: ten outer steps do not move a bit."""
    me = Worker(dist.get_rank(), make_model((torch.bfloat16,)))
    with DiLoCo(me.model, me.optimizer, every=EVERY, outer_momentum=0.0) as outer:
        while outer.revision < 2:
            me.inner_step()
        state = outer.state_dict()
    before = flat_globals(state["tensors"])
    assert not torch.equal(before, before.bfloat16().float()), "nothing was rounded"
    me.optimizer.param_groups[0]["lr"] = 0.0
    outer = DiLoCo(me.model, me.optimizer, every=EVERY, outer_momentum=0.0, **options)
    outer.load_state_dict(state)
    with outer:
        while outer.last is None or outer.last.revision < 12:
            me.inner_step()
        after = flat_globals(outer.state_dict()["tensors"])
    assert torch.equal(before.view(torch.int32), after.view(torch.int32))


def flat_globals(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.flatten() for n, t in tensors.items() if n.startswith("global/")])


def forgets_its_momentum() -> tuple[dict[int, int], int]:
    """Rank 1 loses its outer momentum; return the hashes, and the bytes that were corrected."""
    recorder = Recorder()
    me = Worker(dist.get_rank(), make_model())
    with DiLoCo(me.model, me.optimizer, every=EVERY, observer=recorder) as outer:
        while outer.revision < 6:
            if outer.revision == 3 and dist.get_rank() == 1:
                for name, tensor in outer.state_dict()["tensors"].items():
                    if name.startswith("momentum/"):
                        tensor.zero_()
            me.inner_step()
    return hashes(recorder.steps), sum(done.synced.rx_bytes for done in recorder.steps)


def optimizer_has_stepped(trainer: str) -> tuple[int, int]:
    """Rank 1's optimizer has stepped before, the others' have no state; return the hashes."""
    me = Worker(dist.get_rank(), make_model())
    has_stepped = dist.get_rank() == 1

    def make(flats: list[torch.Tensor]) -> torch.optim.Optimizer:
        optimizer = adam(flats)
        if has_stepped:
            for flat in flats:
                flat.grad = torch.ones_like(flat)
            optimizer.step()
        return optimizer

    outer: Any = DiLoCo(me.model, me.optimizer, every=EVERY, outer_optimizer=make)
    if trainer == "ddp":
        outer.close()
        me.optimizer = torch.optim.AdamW(me.model.parameters(), lr=0.01)
        if has_stepped:
            me.inner_step()
        outer = DDP(me.model, me.optimizer)
    first = outer.start().hash
    with outer:
        while outer.revision < 3:
            me.inner_step()
    return first, outer.last.synced.hash


def other_optimizer() -> None:
    """Rank 1 has an outer optimizer with other state: the error names it on all ranks."""
    me = Worker(dist.get_rank(), make_model())
    make = None if dist.get_rank() == 1 else adam
    outer = DiLoCo(me.model, me.optimizer, every=EVERY, outer_optimizer=make)
    with expected(pccl.SharedStateError, '"momentum/0.inner.bias" is absent at'):
        outer.start()


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))
