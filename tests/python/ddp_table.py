"""Optimizers and loops of real programs, as a table, and one process as the reference.

A loop is written once. Under DDP it takes the loss of one peer; alone, the mean over several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn, optim

from pccl_backend.trainers import DDP

STEPS = 5
Optimizer = optim.Optimizer
Loss = Callable[[Any, int, int], Tensor]  # of a model, the number of a batch, the number of a peer


class Net(nn.Module):
    """Two matrices; as a GAN, the first one is the generator."""

    def __init__(self, *, sparse: bool = False) -> None:
        super().__init__()
        self.first = nn.Embedding(6, 4, sparse=True) if sparse else nn.Linear(3, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.sparse = sparse

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(self.first(x).tanh())
        return result


def batch(model: Net, number: int, peer: int, width: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(100 * number + peer)
    if model.sparse and width == 3:
        return torch.randint(0, 6, (3,), generator=generator)
    return torch.randn(5, width, generator=generator).to(model.second.weight.dtype)


def loss(model: Net, number: int, peer: int) -> Tensor:
    return (model(batch(model, number, peer)) - peer).square().mean()


def loss_of_discriminator(model: Net, number: int, peer: int) -> Tensor:
    real = model.second(batch(model, number, peer, width=4) + peer)
    fake = model.second(model.first(batch(model, number, peer)).detach())
    return (real - 1).square().mean() + fake.square().mean()


def loss_of_generator(model: Net, number: int, peer: int) -> Tensor:
    return (model.second(model.first(batch(model, number, peer))) - 1).square().mean()


class Counting(Optimizer):
    """Its step depends on a number in its group, as in schedule-free optimizers."""

    def __init__(self, parameters: Iterable[Tensor], lr: float = 0.1) -> None:
        super().__init__(parameters, {"lr": lr, "count": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        for group in self.param_groups:
            group["count"] += 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-group["lr"] / group["count"])
        return value


@dataclass(frozen=True)
class Row:
    """An optimizer.

    Attributes:
        kind: its class.
        options: its arguments.
        fused: whether it unscales in its step, with fused=True on the CPU.
        sparse: whether it takes sparse gradients only.
        refused: the error's text, if a trainer refuses it.
    """

    kind: Callable[..., Optimizer]
    options: Mapping[str, Any] = field(default_factory=dict)
    fused: bool = False
    sparse: bool = False
    refused: str = ""


OPTIMIZERS = {
    "Adadelta": Row(optim.Adadelta),
    "Adafactor": Row(optim.Adafactor),
    "Adagrad": Row(optim.Adagrad, {"lr": 0.05, "lr_decay": 0.1}, fused=True),
    "Adam": Row(optim.Adam, {"lr": 0.01}, fused=True),
    "Adam amsgrad": Row(optim.Adam, {"lr": 0.01, "amsgrad": True}, fused=True),
    "AdamW": Row(optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}, fused=True),
    "AdamW foreach": Row(optim.AdamW, {"lr": 0.01, "foreach": True}),
    "Adamax": Row(optim.Adamax),
    "ASGD": Row(optim.ASGD),
    "LBFGS": Row(optim.LBFGS, {"lr": 0.1, "max_iter": 3}, refused="closure"),
    "Muon": Row(optim.Muon, {"lr": 0.01}),
    "NAdam": Row(optim.NAdam, {"lr": 0.01}),
    "RAdam": Row(optim.RAdam, {"lr": 0.01}),
    "RMSprop": Row(optim.RMSprop, {"lr": 0.01}),
    "RMSprop centered": Row(optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.9}),
    "Rprop": Row(optim.Rprop),
    "SGD": Row(optim.SGD, {"lr": 0.1, "weight_decay": 0.1}, fused=True),
    "SGD nesterov": Row(optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}, fused=True),
    "SGD maximize": Row(optim.SGD, {"lr": 0.01, "momentum": 0.9, "maximize": True}, fused=True),
    "SGD dampening": Row(
        optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.5},
        fused=True,
    ),
    "SparseAdam": Row(
        optim.SparseAdam,
        {"lr": 0.01},
        sparse=True,
    ),
    "counter in its group": Row(Counting),
}


class Program:
    """A model with its optimizers and, under DDP, its scaler.

    Attributes:
        loss_of: the loss of a batch of a peer.
        average: makes the round earlier, under DDP.
        peers: those whose mean loss it takes.
    """

    def __init__(
        self,
        model: Any,
        optimizers: Sequence[Optimizer],
        *,
        loss_of: Loss = loss,
        scale: float | None = None,
    ) -> None:
        self.model = model
        self.optimizers = list(optimizers)
        self.loss_of = loss_of
        enabled = scale is not None
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=enabled)
        self.average: Callable[..., object] = lambda: None
        self.peers: list[int] = []

    def backward(self, number: int, loss_of: Loss | None = None, parts: int = 1) -> Tensor:
        """Add the gradients of the mean loss. Buffers become their mean, integers the greatest."""
        buffers = dict(self.model.named_buffers())
        before = {name: buffer.clone() for name, buffer in buffers.items()}
        after, total = [], torch.zeros(())
        for peer in self.peers:
            _set(buffers, before)
            value = (loss_of or self.loss_of)(self.model, number, peer) / len(self.peers) / parts
            self.scaler.scale(value).backward()
            total = total + value.detach()
            after.append({name: buffer.clone() for name, buffer in buffers.items()})
        _set(buffers, {name: _together([each[name] for each in after]) for name in buffers})
        return total

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        self.model.zero_grad(set_to_none=set_to_none)


def _set(buffers: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, buffer in buffers.items():
        buffer.copy_(values[name])


def _together(values: list[Tensor]) -> Tensor:
    stacked = torch.stack(values)
    exact = not (stacked.is_floating_point() or stacked.is_complex())
    return stacked.amax(0) if exact else stacked.mean(0)


# --- The loops: one iteration each ----------------------------------------------------------------


def plain(me: Program, number: int) -> None:
    me.backward(number)
    for optimizer in me.optimizers:
        optimizer.step()
    me.zero_grad()


def closure(me: Program, number: int) -> None:
    def evaluate() -> Any:
        me.zero_grad()
        return me.backward(number)

    me.optimizers[0].step(evaluate)


def accumulation(me: Program, number: int) -> None:
    for part in range(3):
        me.backward(10 * number + part, parts=3)
    me.optimizers[0].step()
    me.zero_grad(set_to_none=False)


def scaler(me: Program, number: int) -> None:
    me.backward(number)
    me.scaler.step(me.optimizers[0])
    me.scaler.update()
    me.zero_grad()


def gan(me: Program, number: int, between: Callable[[], None] = lambda: None) -> None:
    discriminator, generator = me.optimizers
    me.zero_grad()
    me.backward(number, loss_of_discriminator)
    discriminator.step()
    between()
    me.zero_grad()
    me.backward(number, loss_of_generator)
    generator.step()


def clip(me: Program, number: int) -> None:
    me.backward(number)
    me.average()
    nn.utils.clip_grad_norm_(me.model.parameters(), 0.1)
    me.optimizers[0].step()
    me.zero_grad()


Loop = Callable[[Program, int], None]
LOOPS: dict[str, Loop] = {
    "plain": plain,
    "closure": closure,
    "accumulation": accumulation,
    "GradScaler": scaler,
    "fused": scaler,
    "two": plain,
    "GAN": gan,
    "clip": clip,
}
ROUNDS = {"GAN": 2}  # of an iteration, if there are several

ONLY_CLOSURES = "LBFGS.step.* missing 1 required positional argument: 'closure'"
NO_FUSED = "unexpected keyword argument 'fused'"
TORCH_HAS_NOT = {
    **{("LBFGS", loop): ONLY_CLOSURES for loop in LOOPS if loop not in ("closure", "fused")},
    **{(name, "fused"): NO_FUSED for name, row in OPTIMIZERS.items() if not row.fused},
    ("AdamW foreach", "fused"): "`fused` and `foreach` cannot be `True` together",
}


def program(
    name: str, loop: str, *, dtype: torch.dtype = torch.float32, scale: float | None = None
) -> Program:
    """Make the program of a cell; `scale`: of its scaler, if the loop has one."""
    row = OPTIMIZERS[name]
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = Net(sparse=row.sparse).to(dtype)
    options = dict(row.options)
    if loop == "fused":
        options["fused"] = True
    first, second = model.first.weight, model.second.weight
    if loop == "two":
        optimizers = [row.kind([first], **options), optim.SGD([second], lr=0.1)]
    elif loop == "GAN":
        other = optim.SGD([second], lr=0.1) if row.sparse else row.kind([second], **options)
        optimizers = [other, row.kind([first], **options)]
    else:
        second.requires_grad_(not row.sparse)
        optimizers = [row.kind([first] if row.sparse else [first, second], **options)]
    return Program(model, optimizers, scale=scale if loop in ("GradScaler", "fused") else None)


def alone(me: Program, iterate: Loop, peers: Callable[[int], list[int]]) -> Tensor:
    """Train one process on the mean loss of the peers that each iteration has."""
    for number in range(STEPS):
        me.peers = peers(number)
        iterate(me, number)
    return values_of(me.model)


def under_ddp(me: Program, iterate: Loop, peer: int, rounds: int = 1, **options: Any) -> Tensor:
    """Train until the run has had STEPS iterations; a newcomer begins with the others' next one."""
    me.peers = [peer]
    with DDP(me.model, me.optimizers, **options) as trainer:
        me.average = trainer.average
        while trainer.revision < STEPS * rounds:
            iterate(me, -(-trainer.revision // rounds))
    return values_of(me.model)


def values_of(model: nn.Module) -> Tensor:
    """Return parameters and float buffers as one tensor of reals."""
    tensors = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
    reals = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]
    return torch.cat([tensor.flatten().to(tensors[0].dtype.to_real()) for tensor in reals])
