"""The outer algorithms written out for N peers in one process, each as its source has it.

They are compared with `trainer`: the shipped class, between real peers. Nothing here uses
it. The mean adds in rank order, as the exchange of a small tensor does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

LR, MU = 0.7, 0.9


def make_model(
    dtypes: tuple[torch.dtype, ...] = (torch.float32,), width: int = 8
) -> torch.nn.Module:
    """Make the same model in each process; layer k has the k-th dtype, again and again."""
    torch.manual_seed(7)
    layers: list[torch.nn.Module] = []
    for number in range(3):
        layers.append(Cast(width, dtypes[number % len(dtypes)]))
        layers.append(torch.nn.Tanh())
    return torch.nn.Sequential(*layers[:-1])


class Cast(torch.nn.Module):
    """A linear layer of some dtype in a network of float32."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(width, width).to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.to(self.inner.weight.dtype)).float()


@dataclass
class Worker:
    """One peer's model, optimizer and data."""

    rank: int
    model: torch.nn.Module
    taken: int = 0

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def inner_step(self) -> None:
        generator = torch.Generator().manual_seed(1000 * self.rank + self.taken)
        width = next(self.model.parameters()).shape[1]
        x = torch.randn(16, width, generator=generator)
        loss = (self.model(x) - torch.sin(2 * x)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.taken += 1
        self.optimizer.step()


Part = list[torch.Tensor]  # one tensor per parameter


class Reference:
    """N peers, their global parameters and the outer momentum."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        self.locals = [[p.data for p in worker.model.parameters()] for worker in workers]
        self.theta = [p.float().clone() for p in self.locals[0]]
        self.momentum = [torch.zeros_like(p) for p in self.theta]

    def inner_steps(self, count: int) -> None:
        for worker in self.workers:
            for _ in range(count):
                worker.inner_step()

    def delta(self, rank: int, which: range) -> Part:
        """Return the start of the local copy minus the local copy."""
        local = self.locals[rank]
        return [self.theta[k].to(local[k].dtype).float() - local[k].float() for k in which]

    def mean(self, parts: list[Part]) -> Part:
        total = [first.clone() for first in parts[0]]
        for part in parts[1:]:
            total = [a + b for a, b in zip(total, part, strict=True)]
        return [each / len(parts) for each in total]

    def outer(self, mean: Part, which: range) -> None:
        """m <- mu m + g; theta <- theta - eta (g + mu m)."""
        for k, g in zip(which, mean, strict=True):
            self.momentum[k] = self.momentum[k] * MU + g
            self.theta[k] = self.theta[k] - (g + self.momentum[k] * MU) * LR

    def load(self, which: range) -> None:
        for local in self.locals:
            for k in which:
                local[k].copy_(self.theta[k])


def diloco(workers: list[Worker], *, every: int) -> Iterator[Part]:
    """Yield the global parameters after each outer step of DiLoCo (2311.08105, Algorithm 1)."""
    run, all_ = Reference(workers), range(len(list(workers[0].model.parameters())))
    while True:
        run.inner_steps(every)
        run.outer(run.mean([run.delta(rank, all_) for rank in range(len(workers))]), all_)
        run.load(all_)
        yield run.theta


def delayed(workers: list[Worker], *, every: int) -> Iterator[Part]:
    """Async DiLoCo: at each boundary the pseudo-gradients of the boundary before are applied."""
    run, all_ = Reference(workers), range(len(list(workers[0].model.parameters())))
    flying: Part | None = None
    while True:
        run.inner_steps(every)
        sent = run.mean([run.delta(rank, all_) for rank in range(len(workers))])
        if flying is not None:
            run.outer(flying, all_)
        run.load(all_)
        flying = sent
        yield run.theta


def carried(workers: list[Worker], *, every: int) -> Iterator[Part]:
    """A whole phase of overlap: x <- theta + (x - x when this result was sent)."""
    run, all_ = Reference(workers), range(len(list(workers[0].model.parameters())))
    flying: Part | None = None
    at_send: list[Part] = []
    while True:
        run.inner_steps(every)
        if flying is None:
            own = [run.delta(rank, all_) for rank in range(len(workers))]
        else:
            own = [
                [a.float() - x.float() for a, x in zip(sent, local, strict=True)]
                for sent, local in zip(at_send, run.locals, strict=True)
            ]
            run.outer(flying, all_)
            for local, mine in zip(run.locals, own, strict=True):
                for k in all_:
                    start = run.theta[k].to(local[k].dtype).float()
                    local[k].copy_(start - mine[k])
        flying = run.mean(own)
        at_send = [[x.clone() for x in local] for local in run.locals]
        yield run.theta


def streaming(
    workers: list[Worker], *, every: int, fragments: list[range], overlap: int, alpha: float
) -> Iterator[Part]:
    """Streaming DiLoCo (2501.18512, Algorithm 2); yield before each send."""
    run = Reference(workers)
    interval = every // len(fragments)
    flying: tuple[range, Part] | None = None
    for number in range(1 << 30):
        which = fragments[number % len(fragments)]
        for step in range(interval):
            run.inner_steps(1)
            if flying is not None and step + 1 == overlap:
                run.outer(flying[1], flying[0])
                for local in run.locals:
                    for k in flying[0]:
                        theta = run.theta[k]
                        local[k].copy_((local[k].float() - theta) * alpha + theta)
                flying = None
        yield run.theta
        flying = which, run.mean([run.delta(rank, which) for rank in range(len(workers))])
