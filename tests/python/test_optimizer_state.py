"""OptimizerState: the state of any optimizer moves to a newcomer, and nothing else changes."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from ddp_table import OPTIMIZERS, Counting
from scripted_group import same_bits
from torch import Tensor, nn, optim
from torch.optim.optimizer import register_optimizer_step_pre_hook

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


class Lists(Base):
    def of(self, parameter: Tensor) -> float:
        self.state[parameter].setdefault("past", []).append(1.0)
        return 1.0


class Reshaping(Base):
    def of(self, parameter: Tensor) -> float:
        state = self.state[parameter]
        state["past"] = torch.zeros(1 + len(state.get("past", ())))
        if len(state["past"]) > 2:
            state["more"] = torch.zeros(1)
        return 1.0


class Plans(Base):
    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters)
        self.plan = {"left": [1.0]}

    def beside(self) -> float:
        self.plan["left"].append(1.0)
        return 1.0


class Fails(Base):
    def beside(self) -> float:
        raise RuntimeError("no")


REFUSED = {
    Lists: r"optimizer 0 \(x\) keeps 'past' in 'p0' as list; only tensors and numbers",
    Plans: r"optimizer 0 \(x\) keeps 'plan' in '\(optimizer\)' as dict; only tensors and numbers",
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


def test_a_number_that_has_no_place_in_64_bits() -> None:
    me = Peer("Counter")
    me.optimizer.taken = 2**63  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"keeps 9223372036854775808 as 'taken'"):
        me.shared()


MEMORY = """
import resource, torch
from pccl_backend.trainers.optimizer_state import OptimizerState
tensors = [torch.nn.Parameter(torch.ones(1 << 21 if n else 1 << 20)) for n in range(24)]
optimizer = torch.optim.AdamW(tensors)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
OptimizerState(optimizer, {id(t): str(n) for n, t in enumerate(tensors)}, title="it", prefix="it")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_copies_of_one_parameter_at_a_time() -> None:
    """The model has 192 MiB, and one parameter 8; a step needs some times that."""
    got = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, check=True, timeout=60
    )
    assert int(got.stdout) < 96 << 10
