"""OptimizerState: the state of any optimizer moves to a newcomer, and nothing else changes."""

from __future__ import annotations

import copy
import enum
import functools
import random
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import pytest
import torch
from ddp_table import OPTIMIZERS, Counting
from scripted_group import same_bits
from torch import Tensor, nn, optim
from torch.optim.optimizer import register_optimizer_step_pre_hook

from pccl_backend.trainers.object_graph import fingerprint
from pccl_backend.trainers.optimizer_state import OptimizerState

pytestmark = pytest.mark.usefixtures("one_thread")

Optimizer = optim.Optimizer


class Base(Optimizer):
    """Plain descent, with something else beside it."""

    def __init__(self, parameters: Iterable[Tensor], lr: float = 0.1, **settings: Any) -> None:
        super().__init__(parameters, {"lr": lr, **settings})

    def beside(self) -> float:
        """Return a factor for the gradients."""
        return 1.0

    def of(self, parameter: Tensor) -> float:
        """Return a factor for one gradient."""
        return 1.0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        by = self.beside()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-group["lr"] * by * self.of(parameter))


class Counter(Base):
    """Counts its steps in an attribute."""

    taken = 0

    def beside(self) -> float:
        self.taken += 1
        return 1 / self.taken


class Growing(Base):
    """Has a key in its group from the first step on, and changes its learning rate."""

    def beside(self) -> float:
        group = self.param_groups[0]
        group["seen"] = group.get("seen", 0) + 1
        group["lr"] *= 0.9
        return 1 / group["seen"]


class InText(Base):
    """Keeps a dict and a number in its state under names that are no parameters."""

    def beside(self) -> float:
        states: Any = self.state
        states["all"] = states.get("all", {"count": 0})
        states["all"]["count"] += 1
        states["sum"] = states.get("sum", 0.0) + 0.5
        return 1 / states["all"]["count"] + states["sum"]  # type: ignore[no-any-return]


class GroupTensor(Base):
    """Changes a tensor in its group."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, scale=torch.ones(2))

    def beside(self) -> float:
        scale = self.param_groups[0]["scale"]
        scale.mul_(0.5)
        return float(scale[0])


class Late(Base):
    """Keeps a slow copy of a parameter from its third step on, beside a tensor and None."""

    def of(self, parameter: Tensor) -> float:
        state = self.state[parameter]
        state["count"] = state.get("count", 0) + 1
        state.setdefault("nothing", None)
        if state["count"] == 3:
            state["slow"] = parameter.detach().clone()
        return float(state["slow"].sum()) if "slow" in state else 1.0


class Large(Base):
    """Keeps rows of large matrices only, like some optimizers that factor."""

    def of(self, parameter: Tensor) -> float:
        state, sizes = self.state[parameter], parameter.shape
        key, shape = ("rows", sizes[:1]) if sizes.numel() > 100 else ("all", sizes)
        state.setdefault(key, torch.zeros(shape)).add_(1)
        return float(1 / state[key].max())


class First(Base):
    """Keeps its count with the first parameter."""

    def beside(self) -> float:
        state = self.state[self.param_groups[0]["params"][0]]
        state.setdefault("count", torch.zeros(())).add_(1)
        return float(1 / state["count"])


class Several(Base):
    """Has an optimizer for each parameter, in a list in a dict, which know it."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters)
        tensors = self.param_groups[0]["params"]
        self.inner = {"all": [optim.NAdam([tensor], lr=0.1) for tensor in tensors]}
        for optimizer in self.inner["all"]:
            optimizer.outer = self  # type: ignore[attr-defined]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        for optimizer in self.inner["all"]:
            optimizer.step()


class Owner(Base):
    """Moves the parameters of an object, which has the optimizer's own ones."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters)
        self.model = nn.ParameterList(self.param_groups[0]["params"])
        self.model.optimizer = self

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        for parameter in self.model:
            count = self.state[parameter].setdefault("count", torch.zeros(()))
            if parameter.grad is not None:
                parameter.sub_(parameter.grad / count.add_(1))


class Bound(Base):
    """Counts in a function that it keeps."""

    taken = 0

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters)

        def count() -> float:
            self.taken += 1
            return 1 / self.taken

        self.count, self.again = count, functools.partial(self.count_again, 1)

    def count_again(self, by: int) -> None:
        self.taken += by

    def beside(self) -> float:
        self.again()
        return self.count()


class Made(Base):
    """Makes tensors in its group and its attributes; one was a number before."""

    def beside(self) -> float:
        group = self.param_groups[0]
        group["sum"] = group.get("sum", torch.zeros(2)) + 1
        self.k = self.k + 1 if hasattr(self, "k") else torch.ones(())
        return float(1 / group["sum"][0] / self.k)

    def of(self, parameter: Tensor) -> float:
        state = self.state[parameter]
        state["count"] = state.get("count", 0) + 1
        if state["count"] == 3:
            state["count"] = torch.full((), 3.0)
        return float(1 / state["count"])


class Sized(Base):
    """Counts the steps of large matrices only."""

    taken = 0

    def of(self, parameter: Tensor) -> float:
        if len(parameter) > 10:
            self.taken += 1
            self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1
        return 1 / (self.taken + self.state[parameter].get("count", 1))


class Marked(Base):
    """Counts for parameters that have a mark."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters)
        self.param_groups[0]["params"][1].is_slow = True

    def of(self, parameter: Tensor) -> float:
        if getattr(parameter, "is_slow", False):
            self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1
        return 1.0 / self.state[parameter].get("count", 1)


class Constant(Base):
    """Has one tensor for the states of all parameters, and does not write to it."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters)
        self.table = torch.ones(4)

    def of(self, parameter: Tensor) -> float:
        return float(self.state[parameter].setdefault("table", self.table)[0])


class Distance(Base):
    """Estimates how far it has to go, from gradients of one direction; begins at a rate of 0."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, lr=0.0, far=1.0, sum=0.0)

    def of(self, parameter: Tensor) -> float:
        group, state = self.param_groups[0], self.state[parameter]
        assert parameter.grad is not None
        last = state.setdefault("last", parameter.grad.clone())
        if group["lr"] > 0 and bool((last == parameter.grad).all()):
            group["far"] = min(group["far"] * 1.01, 2.0)
        group["sum"] += group["lr"]
        last.copy_(parameter.grad)
        return float(group["far"])


class Lookahead(Optimizer):
    """Wraps another optimizer, and shares its groups; each second step goes halfway back."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.base = optim.AdamW(parameters, lr=0.01)
        self.k = 0
        super().__init__(self.base.param_groups, self.base.defaults)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].setdefault("slow", parameter.clone())
        self.base.step()
        self.k += 1
        for group in self.param_groups if self.k % 2 == 0 else []:
            for parameter in group["params"]:
                slow = self.state[parameter]["slow"]
                slow.add_(parameter - slow, alpha=0.5)
                parameter.copy_(slow)


Make = Callable[[list[Tensor]], Optimizer]
ODD = [Counter, Growing, InText, GroupTensor, Late, Large, First, Lookahead, Counting]
ODD += [Several, Owner, Bound, Made, Sized, Marked, Constant, Distance]
MAKES: dict[str, Make] = {
    name: lambda tensors, row=row: row.kind(tensors, **row.options)  # type: ignore[misc]
    for name, row in OPTIMIZERS.items()
    if name != "LBFGS"
} | {kind.__name__: kind for kind in ODD}


class Peer:
    """A model's parameters, their optimizer and its state."""

    def __init__(self, name: str, *, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.sparse = OPTIMIZERS[name].sparse if name in OPTIMIZERS else False
        shapes = [(4, 3), (20, 6), (5, 2)]
        self.parameters = [nn.Parameter(torch.randn(s, generator=generator)) for s in shapes]
        self.optimizer = MAKES[name](list(self.parameters))
        self.names = {id(p): f"p{number}" for number, p in enumerate(self.parameters)}
        self.state = OptimizerState(
            self.optimizer,
            self.names,
            title=f"optimizer 0 ({name})",
            prefix="it",
            sparse=self.parameters if self.sparse else [],
        )

    def shared(self) -> dict[str, Tensor]:
        shared = self.state.shared(self.names)
        return {**{f"model/{n}": p.detach() for n, p in enumerate(self.parameters)}, **shared}

    def step(self, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        for parameter in self.parameters:
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = gradient.to_sparse(1) if self.sparse else gradient
            self.state.release(parameter, self.names)
        self.optimizer.step()

    def receive(self, other: Peer) -> None:
        mine, theirs = self.shared(), other.shared()
        assert mine.keys() == theirs.keys()
        for name, tensor in mine.items():
            assert (tensor.shape, tensor.dtype) == (theirs[name].shape, theirs[name].dtype)
            tensor.copy_(theirs[name])
        self.state.adopt(self.names)

    def image(self) -> Any:
        """Return all that a step may have changed, as bytes and numbers."""
        kept = {key: value for key, value in vars(self.optimizer).items() if key in ("taken", "k")}
        return [
            [_plain(p) for p in self.parameters],
            _plain([self.optimizer.state[p] for p in self.parameters]),
            _plain({k: v for k, v in self.optimizer.state.items() if isinstance(k, str)}),
            _plain([{**group, "params": 0} for group in self.optimizer.param_groups]),
            kept,
        ]


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.dtype, value.detach().tolist()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("taken", [0, 1, 4])
@pytest.mark.parametrize("name", MAKES)
def test_a_newcomer_goes_on_as_the_others_do(name: str, taken: int) -> None:
    veteran, newcomer, alone = Peer(name), Peer(name, seed=1), Peer(name)
    for number in range(taken):
        alone.step(number)
        veteran.shared()
        veteran.step(number)
    newcomer.receive(veteran)
    for number in range(taken, taken + 3):
        for peer in (veteran, newcomer, alone):
            peer.step(number)
            peer.shared()
    assert veteran.image() == alone.image(), "its state is not what the optimizer makes itself"
    assert newcomer.image() == alone.image()


@pytest.mark.parametrize("name", ["AdamW", "SparseAdam", "Late", "Lookahead"])
def test_a_state_that_the_others_have_not_is_given_up(name: str) -> None:
    ahead, fresh, alone = Peer(name), Peer(name), Peer(name)
    for number in range(4):
        ahead.step(number)
    ahead.receive(fresh)
    for number in range(3):
        for peer in (ahead, fresh, alone):
            peer.step(number)
            peer.shared()
    assert ahead.image() == alone.image()


@pytest.mark.parametrize("name", MAKES)
def test_it_only_looks(name: str) -> None:
    me = Peer(name)
    called: list[Any] = []
    handles = [
        me.optimizer.register_step_pre_hook(lambda *_: called.append(1)),
        me.optimizer.register_step_post_hook(lambda *_: called.append(2)),
        register_optimizer_step_pre_hook(lambda o, *_: called.append(o)),
    ]
    schedule = optim.lr_scheduler.LambdaLR(me.optimizer, lambda _: 1.0)
    before, image = torch.get_rng_state(), copy.deepcopy(me.image())
    try:
        OptimizerState(
            me.optimizer, me.names, title="it", prefix="it", sparse=me.parameters[: 3 * me.sparse]
        )
    finally:
        for handle in handles:
            handle.remove()
    assert me.image() == image
    assert all(parameter.grad is None for parameter in me.parameters)
    assert same_bits(torch.get_rng_state(), before)
    assert me.optimizer not in called
    assert not {1, 2} & {value for value in called if isinstance(value, int)}
    assert schedule.last_epoch == 0


def test_spares_go_when_a_parameter_has_a_gradient() -> None:
    me = Peer("AdamW")
    spare = me.shared()["it/p1/exp_avg"]
    me.parameters[1].grad = torch.ones_like(me.parameters[1])
    me.state.release(me.parameters[1], me.names)
    assert spare.numel() == 0
    me.optimizer.step()
    assert me.shared()["it/p1/exp_avg"] is me.optimizer.state[me.parameters[1]]["exp_avg"]
    assert not me.shared()["it/p0/exp_avg"].any()
    assert not me.optimizer.state[me.parameters[0]]


def test_a_second_look_has_the_same_tensors() -> None:
    me = Peer("AdamW")
    for _ in range(2):
        one, other = me.shared(), me.shared()
        assert all(one[name] is tensor for name, tensor in other.items() if "model" not in name)
        me.step(0)


class Reshaping(Base):
    def of(self, parameter: Tensor) -> float:
        state = self.state[parameter]
        state["past"] = torch.zeros(1 + len(state.get("past", ())))
        if len(state["past"]) > 2:
            state["more"] = torch.zeros(1)
        return 1.0


class Fails(Base):
    def beside(self) -> float:
        raise RuntimeError("no")


class Does(Base):
    """Does something in each step, with data that it keeps in an attribute."""

    def __init__(self, parameters: Iterable[Tensor], does: Callable[..., Any], kept: Any) -> None:
        super().__init__(parameters)
        self.does, self.kept = does, kept

    def beside(self) -> float:
        self.does(self, self.state[self.param_groups[0]["params"][0]])
        return 1.0


class Thing:
    count = 0


class Mode(enum.IntEnum):
    SLOW = 1
    FAST = 2


def _set(me: Does, value: Any) -> None:
    me.kept = value


def _share(state: dict[str, Any]) -> None:
    state.setdefault("one", torch.zeros(2)).add_(1)
    state["two"] = state["one"][:1]


PLAN: dict[str, list[float]] = {"left": [1.0]}
DOES: dict[str, tuple[Callable[[Does, Any], Any], Any, str]] = {
    "a list": (lambda _, s: s.setdefault("past", []).append(1.0), 0, "'past' in 'p0' as list"),
    "a dict": (lambda me, _: me.kept["left"].append(1.0), PLAN, "'kept' in .* as dict"),
    "a set": (lambda me, _: me.kept.add(len(me.kept)), {0}, "'kept' in .* as set"),
    "a queue": (lambda me, _: me.kept.append(1), deque([0]), "'kept' in .* as deque"),
    "an object": (lambda me, _: setattr(me.kept, "count", 1), Thing(), "'kept' .* as Thing"),
    "an array": (lambda me, _: me.kept.__iadd__(1), numpy.zeros(2), "'kept' in .* as ndarray"),
    "a short float": (lambda me, _: _set(me, me.kept * 2), numpy.float32(1), "as float32"),
    "a mode": (lambda me, _: _set(me, Mode(3 - me.kept)), Mode.SLOW, "'kept' in .* as Mode"),
    "random numbers": (lambda me, _: me.kept.random(), random.Random(1), "'kept' .* as Random"),
    "of torch": (
        lambda me, _: torch.rand((), generator=me.kept),
        torch.Generator().manual_seed(1),
        "'kept' in .* as Generator",
    ),
    "a generator": (lambda me, _: next(me.kept), (n for n in [1] * 99), "cannot be copied"),
    "deep lists": (lambda *_: None, functools.reduce(lambda x, _: [x], range(9999), 0), "Recurs"),
    "a number as key": (lambda _, s: s.update({0: torch.zeros(1)}), 0, r"under \[0\]"),
    "a state of a pair": (lambda me, _: me.state[(1, 2)].update(a=1), 0, r"state of \(1, 2\)"),
    "a state of a tensor": (
        lambda me, _: me.state[me.kept].update(a=1),
        torch.ones(1),
        "a tensor that is no parameter",
    ),
    "a tensor as a state": (
        lambda me, _: me.state.update({me.param_groups[0]["params"][0]: torch.ones(1)}),
        0,
        "a parameter as Tensor",
    ),
    "views": (lambda _, s: _share(s), 0, "'two' of 'p0' in the memory of 'one' of 'p0'"),
    "the parameter": (
        lambda me, s: s.update(own=me.param_groups[0]["params"][0].data),
        0,
        "'own' of 'p0' in the memory of parameter 'p0'",
    ),
    "the gradient": (
        lambda me, s: s.update(own=me.param_groups[0]["params"][0].grad),
        0,
        "'own' of 'p0' in the memory of the gradient of 'p0'",
    ),
    "an attribute of a parameter": (
        lambda me, _: setattr(me.param_groups[0]["params"][0], "count", 1),
        0,
        "'count' in 'p0' as an attribute",
    ),
    "a size of its own": (
        lambda me, _: _set(me, torch.zeros(me.param_groups[0]["params"][0].numel())),
        0,
        r"'kept' of '\(optimizer\)' as .* of shape \(3,\), then as .* of shape \(4,\)",
    ),
}


@pytest.mark.parametrize("what", DOES)
def test_what_cannot_be_shared(what: str) -> None:
    parameter, (does, kept, error) = nn.Parameter(torch.ones(4)), DOES[what]
    optimizer = Does([parameter], does, kept)
    before = fingerprint(kept, {}, {}) if "deep" not in what else None
    with pytest.raises(ValueError, match=r"optimizer 0 \(x\).*" + error):
        OptimizerState(optimizer, {id(parameter): "p0"}, title="optimizer 0 (x)", prefix="it")
    assert optimizer.kept is kept, "it is as it was"
    assert before is None or fingerprint(kept, {}, {}) == before


REFUSED = {
    Reshaping: r"keeps 'past' of 'p0' as torch.float32 of shape \(1,\), then as .* \(2,\)",
    Fails: r"optimizer 0 \(x\) cannot step over copies of its parameters.*: RuntimeError: no",
}


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_a_refusal(kind: type[Base]) -> None:
    parameter = nn.Parameter(torch.ones(4))
    with pytest.raises(ValueError, match=REFUSED[kind]):
        OptimizerState(
            kind([parameter]), {id(parameter): "p0"}, title="optimizer 0 (x)", prefix="it"
        )


@pytest.mark.parametrize("late", [1, torch.ones(1)], ids=["number", "tensor"])
def test_what_comes_after_the_steps_of_the_copies(late: object) -> None:
    me = Peer("AdamW")
    me.step(0)
    me.shared()
    me.optimizer.state[me.parameters[1]]["late"] = late
    with pytest.raises(ValueError, match=r"keeps 'late' of 'p1' as .* kept no.* their first steps"):
        me.shared()


def test_a_tensor_of_another_form() -> None:
    me = Peer("AdamW")
    me.step(0)
    me.optimizer.state[me.parameters[1]]["exp_avg"] = torch.ones(2, 2)
    with pytest.raises(ValueError, match=r"keeps 'exp_avg' of 'p1' as .* kept torch.float32 of"):
        me.shared()


def test_a_parameter_that_it_has_not_had_at_the_start() -> None:
    me = Peer("AdamW")
    new = nn.Parameter(torch.ones(2))
    me.optimizer.add_param_group({"params": [new]})
    me.names[id(new)] = "new"
    new.grad = torch.ones(2)
    me.optimizer.step()
    with pytest.raises(ValueError, match=r"keeps .* of 'new' as its state"):
        me.shared()


def test_a_state_of_a_frozen_parameter_stays_apart() -> None:
    me = Peer("AdamW")
    me.step(0)
    del me.state
    me.parameters[1].requires_grad_(False)
    names = {key: name for key, name in me.names.items() if name != "p1"}
    state = OptimizerState(me.optimizer, names, title="it", prefix="it")
    assert not any("p1" in name for name in state.shared(me.names))


@pytest.mark.parametrize("name", ["Distance", "Growing", "AdamW"])
def test_peers_that_have_trained_share_what_fresh_ones_share(name: str) -> None:
    me, other = Peer(name), Peer(name)
    group = me.optimizer.param_groups[0]
    group.update({key: 2.0 for key in ("far", "lr") if key in group})
    again = OptimizerState(me.optimizer, me.names, title="it", prefix="it").shared(me.names)
    fresh = other.state.shared(other.names)
    assert {n: t.shape for n, t in again.items()} == {n: t.shape for n, t in fresh.items()}


class Derived(optim.AdamW):
    """Calls the step of its base class, which calls hooks of all optimizers."""

    def step(self, closure: Any = None) -> Any:
        random.random()
        numpy.random.rand()
        return super().step(closure)


def test_hooks_of_all_optimizers_and_random_numbers_are_for_the_program() -> None:
    optim.AdamW([torch.ones(1)])  # wraps the step of this class
    parameter, called = nn.Parameter(torch.ones(2)), []
    optimizer = Derived([parameter])
    before = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
    handle = register_optimizer_step_pre_hook(lambda one, *_: called.append(one))
    try:
        OptimizerState(optimizer, {id(parameter): "p"}, title="it", prefix="it")
        after = random.getstate(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
        assert after == before
        assert not called
        optimizer.step()
        assert called == [optimizer, optimizer]
    finally:
        handle.remove()


def test_a_number_that_has_no_place_in_64_bits() -> None:
    me = Peer("Counter")
    me.optimizer.taken = 2**63  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"keeps 9223372036854775808 as 'taken'"):
        me.shared()


MEMORY = """
import resource, sys, torch
from pccl_backend.trainers.object_graph import fingerprint
from pccl_backend.trainers.optimizer_state import OptimizerState
if sys.argv[1] == "flat":
    tensors = [torch.nn.Parameter(torch.ones(48 << 20))]
else:
    tensors = [torch.nn.Parameter(torch.ones(1 << 21 if n else 1 << 20)) for n in range(24)]
optimizer = torch.optim.AdamW(tensors)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
OptimizerState(optimizer, {id(t): str(n) for n, t in enumerate(tensors)}, title="it", prefix="it")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("kind", ["flat", "many"])
def test_copies_of_one_parameter_at_a_time(kind: str) -> None:
    """The model has 192 MiB, and one of its many parameters 8; a step needs some times that."""
    got = subprocess.run(
        [sys.executable, "-c", MEMORY, kind], capture_output=True, check=True, timeout=60
    )
    assert int(got.stdout) < 96 << 10


@pytest.mark.parametrize("kind", [optim.AdamW, optim.SGD, optim.ASGD])
def test_a_long_flat_tensor_is_learned_from_its_parts(kind: type[Optimizer]) -> None:
    parameter = nn.Parameter(torch.ones((2 << 20) + 3))
    optimizer = kind([parameter], lr=0.1)  # type: ignore[call-arg]
    state = OptimizerState(optimizer, {id(parameter): "p"}, title="it", prefix="it")
    fresh = {name: tensor.shape for name, tensor in state.shared({id(parameter): "p"}).items()}
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    after = state.shared({id(parameter): "p"})
    assert {name: tensor.shape for name, tensor in after.items()} == fresh
