"""DDP and loops that treat gradients and steps in ways of their own: each trains as one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ddp_table as table
import pytest
import torch
from ddp_table import Program
from scripted_group import same_bits
from threaded_group import ThreadedGroup, threads

from pccl_backend.trainers import DDP

pytestmark = pytest.mark.usefixtures("one_thread")

Train = Callable[[Program], None]
Make = Callable[[], Program]
SGD = partial(torch.optim.SGD, lr=0.1)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ThreadedGroup:
    return threads(monkeypatch, "ab")


def program(loop: str = "plain", dtype: torch.dtype = torch.float32) -> Program:
    return table.program("AdamW", loop, dtype=dtype)


def require_exact(group: ThreadedGroup, train: Train, make: Make = program) -> None:
    """Two peers train as one process does, and no sync has corrected one of them."""

    def peer(me: Program, number: int) -> torch.Tensor:
        me.peers = [number]
        with DDP(me.model, me.optimizers) as trainer:
            me.average = trainer.average
            train(me)
        return table.values_of(me.model)

    alone = make()
    alone.peers = [0, 1]
    alone.average = lambda *_: None
    train(alone)
    got = group.run({name: partial(peer, make(), i) for i, name in enumerate("ab")})
    assert same_bits(got["a"], got["b"])
    assert group.corrected == [], "a sync has hidden that peers trained differently"
    torch.testing.assert_close(got["a"], table.values_of(alone.model), rtol=1e-6, atol=1e-6)


# --- Gradients ------------------------------------------------------------------------------------


def test_gradients_that_are_changed_by_their_data(group: ThreadedGroup) -> None:
    """After average(), as old programs clip: autograd does not know of it."""

    def train(me: Program) -> None:
        for number in range(3):
            me.backward(number)
            me.average()
            for parameter in me.model.parameters():
                parameter.grad.data.clamp_(-0.01, 0.01)
            me.optimizers[0].step()
            me.zero_grad()

    require_exact(group, train)


def test_gradients_that_their_dtype_rounds(group: ThreadedGroup) -> None:
    """The mean of two small numbers of float16 is no float16."""
    me = [program(dtype=torch.float16) for _ in range(2)]

    def peer(number: int) -> torch.Tensor:
        with DDP(me[number].model, me[number].optimizers) as trainer:
            for parameter in me[number].model.parameters():
                parameter.grad = torch.full_like(parameter, 6e-8 * (number + 1))
            trainer.average()
            me[number].optimizers[0].step()
        return table.values_of(me[number].model)

    got = group.run({"a": partial(peer, 0), "b": partial(peer, 1)})
    assert same_bits(got["a"], got["b"])


def test_gradients_that_are_written_by_hand(group: ThreadedGroup) -> None:
    """Each optimizer's are written in place, after the other one has stepped."""

    def train(me: Program) -> None:
        for parameter in me.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        for number in range(3):
            for optimizer in me.optimizers:
                (weight,) = optimizer.param_groups[0]["params"]
                losses = [table.loss(me.model, number, peer) for peer in me.peers]
                (gradient,) = torch.autograd.grad(sum(losses) / len(losses), [weight])
                weight.grad.copy_(gradient)
                optimizer.step()

    require_exact(group, train, partial(program, "two"))


def test_a_gradient_without_memory_of_its_own(group: ThreadedGroup) -> None:
    def train(me: Program) -> None:
        for number in range(3):
            me.backward(number)
            weight = me.model.second.weight
            weight.grad = weight.grad.mean().expand(4, 4)
            me.optimizers[0].step()
            me.zero_grad()

    require_exact(group, train)


def test_a_parameter_that_is_frozen_before_the_step(group: ThreadedGroup) -> None:
    """It has a gradient, so its optimizer moves it."""

    def train(me: Program) -> None:
        for number in range(4):
            me.backward(number)
            me.model.first.weight.requires_grad_(number != 1)
            me.optimizers[0].step()
            me.zero_grad()
            me.model.first.weight.requires_grad_(True)

    require_exact(group, train)


def test_a_backward_of_others_between_average_and_step(group: ThreadedGroup) -> None:
    def train(me: Program) -> None:
        first, second = me.optimizers
        for number in range(3):
            me.backward(number)
            me.model.second.weight.grad = None
            me.average(first)
            for peer in me.peers:
                value = table.loss(me.model, number, peer) / len(me.peers)
                value.backward(inputs=[me.model.second.weight])
            first.step()
            second.step()
            me.zero_grad()

    require_exact(group, train, partial(program, "two"))


# --- Steps ----------------------------------------------------------------------------------------


class Decaying(torch.optim.SGD):
    """Its step calls its base class's step, and continues."""

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.mul_(0.9)
        return result


@pytest.mark.parametrize("joins", [2, 3])
def test_a_step_that_calls_the_step_of_its_base_class(
    monkeypatch: pytest.MonkeyPatch, joins: int
) -> None:
    """It has one round, and a newcomer receives the result of the whole step."""
    SGD([torch.zeros(1)])  # torch gives the hooks to a class that is used itself
    group = threads(monkeypatch, "a", admit={"b": joins})
    peers = [program() for _ in range(2)]
    for me in peers:
        me.optimizers = [Decaying(me.model.parameters(), lr=0.1)]
    run = partial(table.under_ddp, iterate=table.plain)
    got = group.run({n: partial(run, peers[i], peer=i) for i, n in enumerate("ab")})
    assert same_bits(got["a"], got["b"])
    assert group.corrected == []
    assert group.meetings == table.STEPS


class Failing(torch.optim.SGD):
    """Raises once."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        if self.fails:
            self.fails = False
            raise MemoryError("no memory")
        return super().step(closure)


def test_a_step_that_raises_and_is_repeated(group: ThreadedGroup) -> None:
    """It uses the mean that it has."""

    def make() -> Program:
        me = program()
        me.optimizers = [Failing(me.model.parameters(), lr=0.1)]
        return me

    def train(me: Program) -> None:
        (optimizer,) = me.optimizers
        for number in range(3):
            me.backward(number)
            optimizer.fails = number == 1 and me.peers != [0]
            try:
                optimizer.step()
            except MemoryError:
                optimizer.step()
            me.zero_grad()

    require_exact(group, train, make)
    assert group.meetings == 3


def test_a_closure_that_raises(group: ThreadedGroup) -> None:
    """The next step needs none."""

    def train(me: Program) -> None:
        def evaluate() -> Any:
            raise ArithmeticError("no loss")

        for number in range(3):
            me.backward(number)
            with pytest.raises(ArithmeticError):
                me.optimizers[0].step(evaluate)
            me.optimizers[0].step()
            me.zero_grad()

    require_exact(group, train)
