"""Run by test_layout.py: a model that changes on one peer, and complex models, between peers."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from pccl_backend.trainers import DDP, DiLoCo, Observer, OuterStep

CHANGES = {  # what the error of the peer names
    "tie": "parameter '1.weight' is tied to '0.weight' now",
    "swap": "parameter '1.weight' is trainable, and none of the trainer's optimizers",
    "grow": "buffer 'cache' is torch.float32 of shape (9,), and was torch.float32 of shape (4,)",
    "thaw": "parameter '2.weight' is trainable, and was frozen at start()",
}


def change(model: Any, what: str) -> None:
    match what:
        case "tie":
            model[1].weight = model[0].weight
        case "swap":
            model[1] = torch.nn.Linear(6, 6)
        case "grow":
            model.cache = torch.zeros(9)
        case "thaw":
            model[2].requires_grad_(True)


class Recorder(Observer):
    """Keeps the records of all outer steps."""

    def __init__(self) -> None:
        self.steps: list[OuterStep] = []

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        self.steps.append(done)

    def hashes(self) -> list[int]:
        return [done.synced.hash for done in self.steps]


def made(kind: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, **more: Any) -> Any:
    if kind == "ddp":
        return DDP(model, optimizer, **more)
    return DiLoCo(model, optimizer, every=2, **more)


def changes(kind: str, what: str) -> tuple[list[int], list[int]]:
    """Rank 1 changes its model under way. Return the sizes of the group, and the hashes."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(3)))
    model.register_buffer("cache", torch.zeros(4))
    model[2].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder, differs = Recorder(), dist.get_rank() == 1
    generator = torch.Generator().manual_seed(dist.get_rank())
    with made(kind, model, optimizer, observer=recorder) as trainer:
        while trainer.last is None or trainer.last.revision < 8:
            if differs and trainer.revision == 3:
                change(model, what)
            model(torch.randn(8, 6, generator=generator)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert not differs, "the change was not noticed"
    assert [done.revision for done in recorder.steps] == list(range(1, 9))
    return list(dict.fromkeys(done.world_size for done in recorder.steps)), recorder.hashes()


def trains_complex(kind: str) -> tuple[int, ...]:
    """Peers bring different models and data; what they share is complex. Return the hashes."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model: Any = torch.nn.Linear(6, 3, dtype=torch.complex64)
    model.register_buffer("factor", torch.tensor([1 + 1j * rank]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    recorder = Recorder()
    with made(kind, model, optimizer, observer=recorder):
        for _ in range(8):
            loss = model(torch.randn(8, 6, dtype=torch.complex64) * model.factor).abs().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert len(recorder.steps) == (8 if kind == "ddp" else 4)
    assert all(done.contributors == 2 for done in recorder.steps)
    assert bool((model.weight.imag != 0).all()), "an imaginary part was lost"
    weights = [tuple(torch.view_as_real(p).flatten().tolist()) for p in model.parameters()]
    return (*recorder.hashes(), hash(tuple(weights)), hash(model.factor.item()))


def freezes() -> tuple[object, ...]:
    """Rank 1 freezes the first layer: the other layers are averaged as before, on all peers."""
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2, bias=False) for _ in range(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with DDP(model, optimizer) as trainer:
        frozen, other = (layer.weight.detach().clone() for layer in model)
        if dist.get_rank() == 1:
            model[0].requires_grad_(False)
        for number in range(3):
            for layer in model:
                if layer.weight.requires_grad:
                    layer.weight.grad = torch.full_like(layer.weight, 3.0 * (dist.get_rank() + 1))
            optimizer.step()
            optimizer.zero_grad()
            assert trainer.last.contributors == 3
            # The gradients are 3, 6 and 9; that of the frozen one is 0 in place of 6.
            assert torch.allclose(model[1].weight, other - 6.0 * (number + 1))
            assert torch.allclose(model[0].weight, frozen - 4.0 * (number + 1))
    return tuple(tuple(p.flatten().tolist()) for p in model.parameters())
