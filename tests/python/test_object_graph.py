"""Object graph: copies that step without touching the originals, and fingerprints that differ."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any, ClassVar

import pytest
import torch
from torch import nn, optim

from pccl_backend.trainers import object_graph
from pccl_backend.trainers.object_graph import copied, fingerprint, optimizers_in

Pair = namedtuple("Pair", "one other")


class Thing:
    """Has an attribute and a reference to itself."""

    def __init__(self) -> None:
        self.values, self.me = [1.0], self


class Slotted:
    """Has no __dict__."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = [1.0]


class Closing:
    """Closes something at its end."""

    closed: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.name = "it"

    def __del__(self) -> None:
        self.closed.append(self.name)


def counter() -> Any:
    values = [1.0]

    def count() -> list[float]:
        values[0] += 1
        return values

    return count


VALUES: dict[str, Any] = {
    "list": lambda: [1.0],
    "dict": lambda: {"a": [1.0]},
    "ordered dict": lambda: OrderedDict(a=[1.0]),
    "default dict": lambda: defaultdict(list, a=[1.0]),
    "queue": lambda: deque([[1.0]], maxlen=3),
    "pair": lambda: Pair([1.0], 2),
    "object": Thing,
    "object with slots": Slotted,
    "module": lambda: nn.Linear(2, 1),
    "tensor": lambda: torch.ones(2),
    "function": counter,
    "partial": lambda: functools.partial(counter(), 1),
    "method": lambda: Thing().__init__,
    "generator of numbers": lambda: torch.Generator().manual_seed(1),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_copy_is_alike_and_apart(name: str) -> None:
    value = VALUES[name]()
    before = fingerprint(value, {}, {})
    copy = copied(value, {})
    assert copy is not value
    assert type(copy) is type(value)
    assert fingerprint(value, {}, {}) == before
    if name not in ("function", "partial", "method"):  # which have new cells
        assert fingerprint(copy, {}, {}) == before


def test_a_change_of_a_copy_is_not_one_of_the_original() -> None:
    count, thing = counter(), Thing()
    before = fingerprint([count, thing], {}, {})
    count_copy, thing_copy = copied([count, thing], {})
    marks = [fingerprint([count_copy, thing_copy], {}, {})]
    assert count_copy() == [2.0]
    marks.append(fingerprint([count_copy, thing_copy], {}, {}))
    thing_copy.values.append(2.0)
    assert thing_copy.me is thing_copy
    marks.append(fingerprint([count_copy, thing_copy], {}, {}))
    assert marks[0] != marks[1] != marks[2]
    assert fingerprint([count, thing], {}, {}) == before


def test_numbers_that_are_not_numbers_are_alike_and_zeros_are_not() -> None:
    assert fingerprint(float("nan"), {}, {}) == fingerprint(float("nan"), {}, {})
    assert fingerprint(0.0, {}, {}) != fingerprint(-0.0, {}, {})
    assert fingerprint(1, {}, {}) != fingerprint(1.0, {}, {})


def test_what_stays_itself() -> None:
    lock, mark = threading.Lock(), object()
    closing = Closing()
    copy = copied([lock, mark, closing, int, torch], {})
    assert copy == [lock, mark, closing, int, torch]
    fingerprint(closing, {}, {})
    assert not Closing.closed


def test_a_cycle() -> None:
    value: list[Any] = [1]
    value += [value, {"me": value}]
    copy = copied(value, {})
    assert copy[1] is copy
    assert copy[2]["me"] is copy
    assert fingerprint(copy, {}, {}) == fingerprint(value, {}, {})


def test_optimizers_in_an_optimizer() -> None:
    tensors = [torch.ones(1) for _ in range(3)]
    outer = optim.SGD(tensors, lr=0.1)
    inner, other = optim.SGD(tensors[:1], lr=0.1), optim.SGD(tensors[1:], lr=0.1)
    outer.inner, outer.others = inner, {"x": [other, outer]}  # type: ignore[attr-defined]
    inner.outer = outer  # type: ignore[attr-defined]
    found = dict(optimizers_in(outer))
    assert found == {"": outer, "(in inner) ": inner, "(in others.x.0) ": other}


def test_a_copy_of_an_optimizer_has_no_state_and_no_hooks() -> None:
    tensor = torch.ones(2)
    optimizer = optim.Adam([tensor], lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: None)
    optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)  # wraps the step
    tensor.grad = torch.ones(2)
    optimizer.step()
    stands, before = torch.zeros(2), tensor.clone()
    copy = copied(optimizer, {id(tensor): stands})
    assert copy.param_groups[0]["params"][0] is stands
    assert not copy.state
    assert not copy._optimizer_step_pre_hooks
    assert "step" not in vars(copy)
    stands.grad = torch.ones(2)
    copy.step()
    assert torch.equal(tensor, before)


def test_too_many_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_graph, "OBJECTS_MAX", 100)
    with pytest.raises(ValueError, match="refers to more than 100 objects"):
        copied([[] for _ in range(200)], {})
    optimizer = optim.SGD([torch.ones(1)], lr=0.1)
    optimizer.data = [[] for _ in range(200)]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="refers to more than 100 objects"):
        list(optimizers_in(optimizer))
