"""When an inner step is complete: optimizers inside a backward, unused parameters, n to 1 loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from scripted_group import ScriptedGroup, flat, same_bits, script, small_model
from threaded_group import threads
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.utils.checkpoint import checkpoint

import pccl_backend as pccl
from pccl_backend.trainers import DiLoCo, Observer

pytestmark = pytest.mark.usefixtures("one_thread")

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
Optimizers = Sequence[torch.optim.Optimizer]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ScriptedGroup:
    return script(monkeypatch)


# --- Optimizers inside a backward -----------------------------------------------------------------


def by_torch(model: torch.nn.Module) -> Optimizers:
    options = {"lr": 0.1, "momentum": 0.9}
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), options)
    return [p._in_backward_optimizers[0] for p in model.parameters()]


def by_hooks(model: torch.nn.Module) -> Optimizers:
    """As in torch's tutorial: one optimizer for each parameter."""
    optimizers = {p: SGD([p]) for p in model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    return list(optimizers.values())


def at_the_last(model: torch.nn.Module) -> Optimizers:
    """One optimizer for all, which steps when the last gradient arrives."""
    optimizer = SGD(model.parameters())

    def step(_: object) -> None:
        optimizer.step()
        optimizer.zero_grad()

    next(model.parameters()).register_post_accumulate_grad_hook(step)
    return [optimizer]


IN_BACKWARD = [by_torch, by_hooks, at_the_last]
SETTINGS: dict[str, dict[str, Any]] = {
    "blocking": {"every": 2},
    "overlapped": {"every": 3, "overlap": 1},
    "streaming": {"every": 2, "fragments": 2, "overlap": "auto"},
}


def learn(model: torch.nn.Module, number: int = 0) -> None:
    generator = torch.Generator().manual_seed(number)
    model(torch.randn(4, 3, generator=generator)).square().sum().backward()


class Unwatched(Observer):
    """Requires that no optimizer has still to step when an outer step begins."""

    def __init__(self, steps: list[int], count: int) -> None:
        self._steps = steps
        self._count = count

    def before_reduce(self, trainer: Any) -> None:
        assert len(self._steps) % self._count == 0, "the backward has not ended"


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("make", IN_BACKWARD)
def test_steps_inside_a_backward_train_as_steps_after_it(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[torch.nn.Module], Optimizers], settings: str
) -> None:
    results = []
    for inside in (False, True):
        group, model, steps = script(monkeypatch), small_model(), list[int]()
        optimizers = make(model) if inside else [SGD(model.parameters())]
        for optimizer in optimizers:
            optimizer.register_step_post_hook(lambda *_, steps=steps: steps.append(1))
        seen = []
        observer = Unwatched(steps, len(optimizers))
        with DiLoCo(model, optimizers, observer=observer, **SETTINGS[settings]) as outer:
            for number in range(9):
                learn(model, number)
                if not inside:
                    optimizers[0].step()
                    optimizers[0].zero_grad()
                seen.append((outer.revision, outer.inner_steps))
        results.append((seen, flat(model), group.reduced))
    (seen, after, sent), (inside_seen, inside, inside_sent) = results
    assert inside_seen == seen
    assert seen[-1][0] > 1
    assert same_bits(inside, after)
    assert all(map(same_bits, inside_sent, sent))


def test_peers_and_a_newcomer(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go on together; those that step inside a backward and those that step after it."""
    group = threads(monkeypatch, "ab", admit={"c": 2})

    def peer(number: int) -> torch.Tensor:
        model = small_model()
        optimizers = [SGD(model.parameters())] if number == 0 else by_hooks(model)
        with DiLoCo(model, optimizers, every=2) as outer:
            while outer.last is None or outer.last.revision < 5:
                learn(model, 10 * outer.revision + number)
                if number == 0:
                    optimizers[0].step()
                    optimizers[0].zero_grad()
        return flat(model)

    got = group.run({name: partial(peer, number) for number, name in enumerate("abc")})
    assert all(same_bits(got["a"], other) for other in got.values())
    assert (group.meetings, group.corrected) == (5, [])


@pytest.mark.parametrize("make", [by_torch, by_hooks])
def test_a_parameter_that_is_never_used(group: ScriptedGroup, make: Any) -> None:
    """A step is complete when the next one begins, and counts when the backward has ended."""
    model = small_model()
    model.unused = torch.nn.Parameter(torch.ones(3))
    model.forward = lambda x: model[1](model[0](x))
    seen = []
    with DiLoCo(model, make(model), every=2) as outer:
        for number in range(6):
            learn(model, number)
            seen.append(outer.revision)
    assert seen == [0, 0, 1, 1, 2, 2]


def test_a_parameter_that_is_used_sometimes(group: ScriptedGroup) -> None:
    """It delays the count by one step, which is not lost."""
    model, uses = small_model(), [True, False, True, True, False, True]
    model.scale = torch.nn.Parameter(torch.ones(()))
    seen = []
    with DiLoCo(model, by_hooks(model), every=1) as outer:
        for use in uses:
            value = model[1](model[0](torch.ones(4, 3)))
            (value * model.scale if use else value).square().sum().backward()
            seen.append(outer.revision)
    assert seen == [1, 1, 3, 4, 4, 6]


def test_a_backward_for_each_optimizer(group: ScriptedGroup) -> None:
    """Two models in one, whose optimizers step inside a backward of their own."""
    model = torch.nn.ModuleList([small_model(), small_model()])
    seen = []
    with DiLoCo(model, [o for part in model for o in at_the_last(part)], every=2) as outer:
        for _ in range(4):
            for part in model:
                learn(part)
            seen.append(outer.revision)
    assert seen == [0, 1, 1, 2]


@pytest.mark.parametrize("whole", [False, True])
def test_a_backward_within_a_backward(group: ScriptedGroup, whole: bool) -> None:
    """A re-entrant checkpoint runs one. The outer step waits for the end of the other one."""
    model, steps = small_model(), list[int]()
    optimizers = by_hooks(model)
    for optimizer in optimizers:
        optimizer.register_step_post_hook(lambda *_: steps.append(1))
    observer = Unwatched(steps, len(optimizers))
    seen = []

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.requires_grad_()
            run = partial(checkpoint, use_reentrant=True)
            if whole:
                result: torch.Tensor = run(self.inner[1], run(self.inner[0], x))
            else:
                result = self.inner[1](run(self.inner[0], x))
            return result

    net = Net()
    with DiLoCo(net, optimizers, every=2, observer=observer) as outer:
        for number in range(5):
            learn(net, number)
            seen.append(outer.revision)
    if whole:  # autograd makes no call; the next forward counts
        assert seen == [0, 0, 1, 1, 2]
    else:
        assert seen == [0, 1, 1, 2, 2]
    assert outer.revision == 2


def test_the_end_of_the_block_counts_what_a_backward_has_held_up(group: ScriptedGroup) -> None:
    model = torch.nn.Linear(3, 2)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = checkpoint(self.line, x.requires_grad_(), use_reentrant=True)
            return result

    net = Net()
    with DiLoCo(net, by_hooks(net), every=1) as outer:
        learn(net)
        assert outer.revision == 0
    assert outer.revision == 1


def test_a_backward_that_raises(group: ScriptedGroup) -> None:
    """Those that have stepped in it have stepped."""
    model = small_model()
    optimizers, fails = by_hooks(model), [True]

    def fail(_: object) -> None:
        if fails:
            fails.pop()
            raise ZeroDivisionError

    with DiLoCo(model, optimizers, every=1) as outer:
        handle = model[0].weight.register_hook(fail)
        with pytest.raises(ZeroDivisionError):
            learn(model)
        assert outer.revision == 0
        handle.remove()
        learn(model)
        assert outer.revision == 2, "one of them has stepped again"


@pytest.mark.parametrize("error", [pccl.OperationTimeoutError("late"), KeyboardInterrupt()])
def test_an_outer_step_that_raises_goes_on_in_the_next(
    group: ScriptedGroup, error: BaseException
) -> None:
    model = small_model()
    with DiLoCo(model, by_hooks(model), every=2) as outer:
        learn(model)
        group.reduce_errors = [error]
        with pytest.raises(type(error)):
            learn(model)
        assert outer.revision == 0
        learn(model)
        assert outer.revision == 1


# --- Steps outside of a backward ------------------------------------------------------------------


def test_several_steps_of_one_optimizer_for_each_of_the_other(group: ScriptedGroup) -> None:
    model = torch.nn.ModuleList([small_model(), small_model()])
    often, seldom = (SGD(part.parameters()) for part in model)
    for optimizers in ([often, seldom], [seldom, often]):
        seen = []
        with DiLoCo(model, optimizers, every=3) as outer:
            for _ in range(2):
                for optimizer in (often, often, often, seldom):
                    optimizer.step()
                    seen.append(outer.revision)
        assert seen == [0, 0, 0, 1, 1, 1, 1, 2]


def test_an_optimizer_that_never_steps(group: ScriptedGroup) -> None:
    model = torch.nn.ModuleList([small_model(), small_model()])
    first, never = (SGD(part.parameters()) for part in model)
    with DiLoCo(model, [first, never], every=2) as outer:
        for _ in range(5):
            first.step()
    assert outer.revision == 2


class Twice(torch.optim.SGD):
    """A step that is two of the base class."""

    def step(self, closure: Any = None) -> Any:
        super().step()
        return super().step(closure)


class Failing(torch.optim.SGD):
    fails = True

    def step(self, closure: Any = None) -> Any:
        if self.fails:
            self.fails = False
            raise MemoryError
        return super().step(closure)


@pytest.mark.parametrize("kind", [Twice, Failing])
def test_a_step_that_calls_the_step_of_its_base_class_counts_once(
    group: ScriptedGroup, kind: type[torch.optim.Optimizer]
) -> None:
    torch.optim.SGD([torch.zeros(1)])  # torch gives the hooks to a class that is used itself
    model = small_model()
    optimizer = kind(model.parameters(), lr=0.1)
    with DiLoCo(model, optimizer, every=2) as outer:
        if kind is Failing:
            with pytest.raises(MemoryError):
                optimizer.step()
        seen = []
        for number in range(4):
            learn(model, number)
            optimizer.step()
            optimizer.zero_grad()
            seen.append((outer.revision, outer.inner_steps))
    assert [revision for revision, _ in seen] == [0, 1, 1, 2]
