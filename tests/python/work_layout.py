"""Run by test_layout.py: a model that changes on one peer, and complex models, between peers."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import world
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from world import expected

import pccl_backend as pccl
from pccl_backend.trainers import DDP, DiLoCo, Observer, OuterStep

CHANGES = {  # the names in the error of the peer
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
    """Peers bring different models and data; the shared parameters are complex. Return the
    hashes."""
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
            # The gradients are 3, 6 and 9; the gradient of the frozen one is 0 in place of 6.
            assert torch.allclose(model[1].weight, other - 6.0 * (number + 1))
            assert torch.allclose(model[0].weight, frozen - 4.0 * (number + 1))
    return tuple(tuple(p.flatten().tolist()) for p in model.parameters())


def host_has_complex_shards(url: str) -> None:
    """Two processes have a part each of complex parameters; one is a single number."""
    job = world.current
    dist.init_process_group("gloo", init_method=job.init_method, rank=job.rank, world_size=job.size)
    torch.manual_seed(3)
    model: Any = torch.nn.Linear(4, 3, dtype=torch.complex64)
    model.shift = torch.nn.Parameter(torch.tensor([1 - 1j], dtype=torch.complex128))
    whole = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    model = fully_shard(model, mesh=init_device_mesh("cpu", (job.size,)))
    host = dist.group.WORLD
    with DiLoCo(model, outer_lr=1.0, outer_momentum=0.0, url=url, host_group=host) as outer:
        for number in range(1, 4):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.to_local().add_(1 + 2j)
            assert outer.step().contributors == 1
            for name, before in whole.items():
                now = model.get_parameter(name).full_tensor()
                assert now.dtype == before.dtype
                torch.testing.assert_close(now, before + number * (1 + 2j))
        if job.rank == 0:
            saved = outer.state_dict()["tensors"]["global/weight"]
            assert torch.allclose(
                torch.view_as_complex(saved).to(torch.complex64), whole["weight"] + (3 + 6j)
            )
        if job.rank == 1:
            model.register_buffer("more", torch.zeros(1))
        with expected(ValueError, "buffer 'more' is torch.float32", "was not there at start()"):
            outer.step()


def quantizes_complex() -> tuple[int, ...]:
    """Pseudo-gradients of complex parameters travel with 8 bits for each real."""
    rank, recorder = dist.get_rank(), Recorder()
    torch.manual_seed(1)
    model: Any = torch.nn.Linear(200, 300, dtype=torch.complex64)
    start = model.weight.detach().clone()
    outer = DiLoCo(
        model,
        outer_lr=1.0,
        outer_momentum=0.0,
        quantize=pccl.quantization.MinMax(bits=8),
        error_feedback=True,
        observer=recorder,
    )
    outer.start()
    torch.manual_seed(10 + rank)
    learned = torch.randn_like(start)
    with torch.no_grad():
        model.weight.add_(learned)
    done = outer.step()
    both = [torch.empty_like(learned) for _ in range(2)]
    dist.all_gather(both, learned)
    off = torch.view_as_real((model.weight - start).detach() - (both[0] + both[1]) / 2).abs().max()
    assert 0 < off < 0.1, f"off by {off}"
    assert done.sent_bytes < 1.5 * learned.numel() * 2, "it was not quantized"
    residual = outer.state_dict(own=True)["own"]["residual/weight"]
    assert residual.shape == (300, 200, 2)
    assert residual.abs().max() > 0
    return done.synced.hash, done.synced.revision
