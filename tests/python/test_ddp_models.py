"""DDP trains all kinds of models as one process does that takes the mean of the peers' losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ddp_table as table
import pytest
import torch
from ddp_table import STEPS, Loop, Program
from scripted_group import same_bits
from threaded_group import threads
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import pccl_backend as pccl

pytestmark = pytest.mark.usefixtures("one_thread")

AdamW = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1)
Momentum = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1)


def numbers(number: int, peer: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * number + peer)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


class Model(nn.Module):
    """A model that knows its loss."""

    def loss(self, number: int, peer: int) -> Tensor:
        return (self(numbers(number, peer, 5, 4)) - peer).abs().square().mean()


class Tied(Model):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, 4), nn.Linear(4, 4)
        self.out.weight = self.into.weight

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.out(self.into(x).tanh())
        return result


class Normed(Model):
    """The first layer decides the statistics of the norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.norm(self.first(x)))
        return result


class Frozen(Normed):
    def __init__(self) -> None:
        super().__init__()
        self.first.requires_grad_(False)


class Unused(Model):
    """Peer 1 alone uses `some`; nothing uses `later` after the first batch, and `never` ever."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.some, self.later, self.never = (nn.Linear(4, 4) for _ in range(4))

    def loss(self, number: int, peer: int) -> Tensor:
        x = self.used(numbers(number, peer, 5, 4))
        x = self.some(x) if peer == 1 else x
        x = self.later(x) if number == 0 else x
        return (x - peer).square().mean()


class Rows(Model):
    """Each peer's batch touches rows of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(12, 3, sparse=True)

    def loss(self, number: int, peer: int) -> Tensor:
        index = torch.tensor([number, number, 2 * number + peer])
        return (self.rows(index) - peer).square().mean()


class Buffered(Model):
    """A buffer of some dtype counts batches; the buffer of peer 1 counts twice."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.line = nn.Linear(4, 1)
        self.register_buffer("count", torch.zeros(3, dtype=dtype))

    def loss(self, number: int, peer: int) -> Tensor:
        if self.count.dtype is torch.bool:
            self.count[peer] = True
        else:
            self.count.add_(1 + peer)
        return (self.line(numbers(number, peer, 5, 4)) - peer).square().mean()


class Complex(Model):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 2, dtype=torch.complex128)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.line(torch.complex(x, x.flip(0)))
        return result


class Image(Model):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 2, 2))
        self.to(memory_format=torch.channels_last)

    def loss(self, number: int, peer: int) -> Tensor:
        x = numbers(number, peer, 2, 2, 5, 5).to(memory_format=torch.channels_last)
        return (self.layers(x) - peer).square().mean()


class Checkpointed(Normed):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.norm = nn.Tanh()
        self._reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        part = nn.Sequential(self.first, self.norm)
        x = x.requires_grad_()  # otherwise a reentrant part gives no gradients
        result: Tensor = self.last(checkpoint(part, x, use_reentrant=self._reentrant))
        return result


class WeightNormed(Normed):
    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.first)


@dataclass(frozen=True)
class Case:
    """A model, what moves it, and its loop."""

    make: Callable[[], Model]
    optimizer: Callable[..., torch.optim.Optimizer] = AdamW
    iterate: Loop = table.plain

    def program(self) -> Program:
        torch.set_default_dtype(torch.float64)
        try:
            with torch.random.fork_rng():
                torch.manual_seed(7)
                model = self.make()
        finally:
            torch.set_default_dtype(torch.float32)
        loss_of = lambda model, number, peer: model.loss(number, peer)  # noqa: E731
        return Program(model, [self.optimizer(model.parameters())], loss_of=loss_of)


def freezes(me: Program, number: int) -> None:
    if number >= 2:  # a newcomer begins later
        me.model.first.requires_grad_(False)
    table.plain(me, number)


def keeps_gradients(me: Program, number: int) -> None:
    """Freeze a layer whose gradients of the last step are still there."""
    me.zero_grad()
    me.backward(number)
    if number >= 2:
        me.model.first.requires_grad_(False)
        me.model.first.zero_grad()
    me.optimizers[0].step()


CASES = {
    "tied": Case(Tied),
    "frozen": Case(Frozen),
    "frozen in training": Case(Normed, iterate=freezes),
    "frozen after backward": Case(Normed, iterate=keeps_gradients),
    "unused, AdamW": Case(Unused),
    "unused, momentum": Case(Unused, Momentum),
    "sparse, SGD": Case(Rows, partial(torch.optim.SGD, lr=0.1)),
    "batch norm": Case(Normed),
    "complex": Case(Complex),
    "complex, momentum": Case(Complex, Momentum),
    "channels_last": Case(Image),
    "reentrant checkpoint": Case(partial(Checkpointed, True)),
    "checkpoint": Case(partial(Checkpointed, False)),
    "weight_norm": Case(WeightNormed),
}


def trained(
    monkeypatch: pytest.MonkeyPatch, peers: Sequence[Program], iterate: Loop
) -> dict[str, Tensor]:
    """Train them as peers; the third joins late, and all must have the same bits."""
    names = "abc"[: len(peers)]
    group = threads(monkeypatch, names[:2], admit={"c": 2} if len(peers) > 2 else {})
    for number, program in enumerate(peers):
        with torch.no_grad():  # the parameters of the lowest rank count
            next(program.model.parameters()).add_(number)
    results = group.run(
        {
            name: partial(table.under_ddp, program, iterate, number)
            for number, (name, program) in enumerate(zip(names, peers, strict=True))
        }
    )
    assert group.corrected == [], "a sync has hidden that peers trained differently"
    assert all(same_bits(results["a"], other) for other in results.values())
    return results


@pytest.mark.parametrize("joins", [False, True], ids=["two", "newcomer"])
@pytest.mark.parametrize("name", CASES, ids=lambda name: name.replace(" ", "_"))
def test_a_model(monkeypatch: pytest.MonkeyPatch, name: str, joins: bool) -> None:
    case = CASES[name]
    peers = [case.program() for _ in range(2 + joins)]
    got = trained(monkeypatch, peers, case.iterate)["a"]
    want = table.alone(
        case.program(), case.iterate, lambda step: [0, 1, 2] if joins and step > 2 else [0, 1]
    )
    assert float((got - want).abs().max() / want.abs().max()) < 1e-6


def test_a_newcomer_whose_layer_is_frozen_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have frozen it in training. It trains with them, or it alone is refused."""
    case = CASES["frozen in training"]
    group = threads(monkeypatch, "ab", admit={"c": 2})
    peers = [case.program() for _ in range(3)]
    peers[2].model.first.requires_grad_(False)
    outcomes = group.outcomes(
        {
            name: partial(table.under_ddp, me, case.iterate, number)
            for number, (name, me) in enumerate(zip("abc", peers, strict=True))
        }
    )
    refused = isinstance(outcomes["c"], ValueError | pccl.KickedError)
    if refused:
        assert "first.weight" in str(outcomes["c"])
    all_peers = [0, 1] if refused else [0, 1, 2]
    want = table.alone(case.program(), case.iterate, lambda step: all_peers[: 2 + (step > 2)])
    for name in "ab" if refused else "abc":
        assert isinstance(outcomes[name], Tensor), outcomes[name]
        assert float((outcomes[name] - want).abs().max() / want.abs().max()) < 1e-6


@pytest.mark.parametrize("case", [Case(Unused), Case(Unused, Momentum)], ids=["AdamW", "momentum"])
def test_a_parameter_that_nobody_uses_has_no_gradient(
    monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    seen: list[tuple[int, set[str]]] = []

    def iterate(me: Program, number: int) -> None:
        me.zero_grad()
        me.backward(number)
        me.optimizers[0].step()
        with_one = {n for n, p in me.model.named_parameters() if p.grad is not None}
        seen.append((number, {name.partition(".")[0] for name in with_one}))

    peers = [case.program(), case.program()]
    before = table.values_of(peers[0].model.never)
    trained(monkeypatch, peers, iterate)
    assert same_bits(table.values_of(peers[1].model.never), before), "nothing moves it"
    for number, names in seen:
        assert names == {"used", "some"} | ({"later"} if number == 0 else set())


def test_a_sparse_gradient_stays_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[list[int]] = []

    def iterate(me: Program, number: int) -> None:
        me.zero_grad()
        me.backward(number)
        me.optimizers[0].step()
        gradient = me.model.rows.weight.grad
        assert gradient.is_sparse
        touched.append(gradient.coalesce().indices()[0].tolist())

    case = CASES["sparse, SGD"]
    trained(monkeypatch, [case.program(), case.program()], iterate)
    both = [sorted({n, 2 * n, 2 * n + 1}) for n in range(STEPS)]
    assert sorted(touched) == sorted(both * 2), "the rows of both peers"


BUFFERS = {
    torch.float64: 1.5,
    torch.float32: 1.5,
    torch.float16: 1.5,
    torch.bfloat16: 1.5,
    torch.complex64: 1.5,
    torch.int64: 2,
    torch.int32: 2,
    torch.uint8: 2,
}


@pytest.mark.parametrize("dtype", BUFFERS, ids=str)
def test_a_buffer_is_averaged_or_the_greatest(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    case = Case(partial(Buffered, dtype))
    peers = [case.program(), case.program()]
    trained(monkeypatch, peers, table.plain)
    for program in peers:
        assert program.model.count.tolist() == [BUFFERS[dtype] * STEPS] * 3


def test_a_bool_buffer_is_true_where_that_of_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = [Case(partial(Buffered, torch.bool)).program() for _ in range(2)]
    trained(monkeypatch, peers, table.plain)
    assert [program.model.count.tolist() for program in peers] == [[True, True, False]] * 2


@pytest.mark.parametrize("compiled", ["the model", "the step"])
def test_a_compiled_program(monkeypatch: pytest.MonkeyPatch, compiled: str) -> None:
    """A compiled step rounds otherwise than one that is not, so both peers compile it."""
    torch.compiler.reset()
    case = Case(Tied)
    peers = [case.program(), case.program()]
    steps: list[Any] = [program.optimizers[0].step for program in peers]
    if compiled == "the model":
        model = peers[0].model
        model.forward = torch.compile(model.forward, backend="eager")
    else:
        monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 64)  # for both of them
        steps = [torch.compile(step, backend="eager") for step in steps]

    def iterate(me: Program, number: int) -> None:
        me.zero_grad()
        me.backward(number)
        steps[peers.index(me)]()

    got = trained(monkeypatch, peers, iterate)["a"]
    want = table.alone(case.program(), table.plain, lambda step: [0, 1])
    assert float((got - want).abs().max() / want.abs().max()) < 1e-6
