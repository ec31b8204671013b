"""Learned state: where the steps of an optimizer keep tensors and numbers.

Stand-ins of a few elements step several times, and show all numbers that change. Then a stand-in of
each kind of parameter, with its real size, steps as often as it takes to make its tensors: some
optimizers keep other tensors for large parameters. One such stand-in exists at a time.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping, MutableMapping, Set
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.optim import Optimizer

from pccl_backend.trainers.stand_ins import StandIn, optimizers_in, random, small

__all__ = ["Form", "Learned", "Names", "Place", "containers_of", "learn"]

STEPS = 11  # of the small stand-ins: some optimizers do something else in each tenth step

Place = tuple[str, str]  # the label of a container, and a key in it
Names = Mapping[int, str]  # of parameters, by id


@dataclass(frozen=True)
class Form:
    """What a tensor is, without its values.

    Attributes:
        shape, stride: of a dense tensor.
        like: a tensor without elements, of its dtype and on its device.
    """

    shape: torch.Size
    stride: tuple[int, ...]
    like: torch.Tensor

    @staticmethod
    def of(tensor: torch.Tensor) -> Form:
        placed = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
        return Form(tensor.shape, torch.empty_like(placed).stride(), tensor.new_empty(0))

    def zeros(self) -> torch.Tensor:
        return self.like.new_empty_strided(self.shape, self.stride).zero_()

    def __str__(self) -> str:
        return f"{self.like.dtype} of shape {tuple(self.shape)}"


@dataclass
class Learned:
    """Places of an optimizer's tensors, and of its numbers."""

    tensors: dict[Place, Form] = field(default_factory=dict)
    numbers: set[Place] = field(default_factory=set)


class State(MutableMapping[str, Any]):
    """The state of one parameter, which an optimizer may not have yet."""

    def __init__(self, states: MutableMapping[Any, Any], owner: Any) -> None:
        self._states = states
        self._owner = owner

    def _now(self) -> Mapping[str, Any]:
        state = self._states.get(self._owner)
        return state if isinstance(state, Mapping) else {}

    def __getitem__(self, key: str) -> Any:
        return self._now()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if self._owner not in self._states:
            self._states[self._owner] = {}
        self._states[self._owner][key] = value

    def __delitem__(self, key: str) -> None:
        state = self._states[self._owner]
        del state[key]
        if not state:
            del self._states[self._owner]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


class Containers(dict[str, MutableMapping[str, Any]]):
    """Containers by label; an optimizer may not have made one yet that its state has by a text."""

    def __missing__(self, label: str) -> MutableMapping[str, Any]:
        prefix, found, owner = label.partition("(state ")
        return State(self[f"{prefix}(state)"], owner[:-1]) if found else {}


def containers_of(optimizer: Optimizer, names: Names) -> Containers:
    """Return the containers of what an optimizer keeps.

    These are the states of its parameters, whatever else its state has, its groups, and its
    attributes; and those of optimizers that it wraps, unless they are the same ones.
    """
    containers = Containers()
    seen: set[int] = set()
    for prefix, each in optimizers_in(optimizer):
        if id(each.state) not in seen:
            seen.add(id(each.state))
            containers.update(_states(each, names, prefix))
        for number, group in enumerate(each.param_groups):
            if id(group) not in seen:
                seen.add(id(group))
                containers[f"{prefix}(group {number})"] = group
        containers[f"{prefix}(optimizer)"] = vars(each)
    return containers


def _states(
    optimizer: Optimizer, names: Names, prefix: str
) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) in names:
                yield prefix + names[id(parameter)], State(optimizer.state, parameter)
    for owner, value in list(optimizer.state.items()):
        if isinstance(owner, str) and isinstance(value, Mapping):
            yield f"{prefix}(state {owner})", State(optimizer.state, owner)
    yield f"{prefix}(state)", cast("MutableMapping[str, Any]", optimizer.state)


def learn(optimizer: Optimizer, names: Names, *, title: str, sparse: Set[int]) -> Learned:
    """Return where the steps of an optimizer keep tensors and numbers.

    Args:
        optimizer: the optimizer; neither it nor its parameters change.
        names: of the parameters that it moves.
        title: the optimizer's name in errors.
        sparse: ids of parameters that have sparse gradients.

    Raises:
        ValueError: a step of a stand-in fails, or keeps something that cannot be shared.
    """
    return _Lesson(optimizer, names, title, sparse).learn()


class _Lesson:
    def __init__(self, optimizer: Optimizer, names: Names, title: str, sparse: Set[int]) -> None:
        self._optimizer = optimizer
        self._names = names
        self._title = title
        self._sparse = sparse
        self._members = [
            (parameter, _settings_of(group))
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        self._small = {id(parameter): small(parameter) for parameter, _ in self._members}
        self._learned = Learned()

    def learn(self) -> Learned:
        keys, steps = self._step_all()
        forms: dict[object, dict[Place, Form]] = {}
        for parameter, settings in self._members:
            name = self._names.get(id(parameter))
            if name is None:
                continue
            kind = (
                settings,
                (parameter.shape, parameter.stride(), parameter.dtype, parameter.device),
                id(parameter) in self._sparse,
                frozenset(keys[name]),
            )
            if kind not in forms:
                forms[kind] = self._step_one(parameter, steps)
            for (label, key), form in forms[kind].items():
                self._learned.tensors[label.replace("\0", name), key] = form
        self._learned.numbers -= self._learned.tensors.keys()
        return self._learned

    def _step_all(self) -> tuple[dict[str, set[str]], int]:
        """Step with small stand-ins of all parameters.

        Returns:
            The keys of each parameter's state, and the number of steps until there were all.
        """
        generator = torch.Generator(device="cpu").manual_seed(2)
        sparse = {id(self._small[parameter]) for parameter in self._sparse & self._small.keys()}

        def gradient(tensor: torch.Tensor) -> torch.Tensor:
            values = random(tensor.shape, tensor, generator)
            return _laid(values, id(tensor) in sparse)

        stand_in = StandIn(self._optimizer, self._small, gradient)
        names = {
            id(self._small[owner]): name
            for owner, name in self._names.items()
            if owner in self._small
        }
        before = _Look(stand_in.optimizer, names)
        steps = 1
        for step in range(1, STEPS + 1):
            self._step(stand_in)
            after = _Look(stand_in.optimizer, names)
            self._take_changes(before, after)
            if after.state.keys() - before.state.keys():
                steps = step
            before = after
        keys: dict[str, set[str]] = {name: set() for name in names.values()}
        for label, key in before.state:
            if label in keys:
                keys[label].add(key)
        return keys, steps

    def _take_changes(self, before: _Look, after: _Look) -> None:
        for place, value in after.state.items():
            if isinstance(value, numbers.Real):
                self._learned.numbers.add(place)
            elif value is not None and not isinstance(value, torch.Tensor):
                raise self._cannot_share(place, value)
        for place, value in after.settings.items():
            if place in before.settings and _same(before.settings[place], value):
                continue
            own = containers_of(self._optimizer, {})[place[0]].get(place[1])
            if isinstance(value, torch.Tensor) and isinstance(own, torch.Tensor):
                self._learned.tensors[place] = Form.of(own)
            elif value is None or isinstance(value, numbers.Real):
                self._learned.numbers.add(place)
            else:
                raise self._cannot_share(place, value)

    def _step_one(self, parameter: torch.Tensor, steps: int) -> dict[Place, Form]:
        """Step with a stand-in of one parameter's size, beside small ones without gradients.

        Returns:
            The forms of its tensors, with a zero byte for its name.
        """
        large = torch.full_like(parameter, 0.5, requires_grad=parameter.requires_grad)
        is_sparse = id(parameter) in self._sparse

        def gradient(tensor: torch.Tensor) -> torch.Tensor | None:
            if tensor is not large:
                return None
            return _laid(torch.full_like(tensor, 0.01, requires_grad=False), is_sparse)

        stand_in = StandIn(self._optimizer, {**self._small, id(parameter): large}, gradient)
        forms: dict[Place, Form] = {}
        for _ in range(steps):
            self._step(stand_in)
            for place, value in _Look(stand_in.optimizer, {id(large): "\0"}).state.items():
                if not isinstance(value, torch.Tensor):
                    continue
                form = Form.of(value)
                if str(forms.setdefault(place, form)) != str(form):
                    raise ValueError(
                        f"{self._title} keeps {place[1]!r} of "
                        f"{self._names[id(parameter)]!r} as {forms[place]}, then as {form}. A "
                        "trainer shares tensors of one form: use another optimizer"
                    )
        return forms

    def _step(self, stand_in: StandIn) -> None:
        try:
            stand_in.step()
        except Exception as error:
            raise ValueError(
                f"{self._title} cannot step over copies of its parameters, from which a trainer "
                f"learns the form of its state: {type(error).__name__}: {error}"
            ) from error

    def _cannot_share(self, place: Place, value: object) -> ValueError:
        return ValueError(
            f"{self._title} keeps {place[1]!r} in {place[0]!r} as {type(value).__name__}; only "
            "tensors and numbers can be shared with the other peers: use another optimizer"
        )


class _Look:
    """What an optimizer keeps at one moment.

    Attributes:
        state: the values in the states, by place.
        settings: those in the groups and attributes, as copies that later steps do not change.
    """

    def __init__(self, optimizer: Optimizer, names: Names) -> None:
        self.state: dict[Place, Any] = {}
        self.settings: dict[Place, Any] = {}
        known = set(names)
        for _, each in optimizers_in(optimizer):
            known |= {id(each.state), id(each.defaults), id(each.param_groups)}
            known |= {id(group) for group in each.param_groups}
            known |= {id(parameter) for group in each.param_groups for parameter in group["params"]}
        for label, container in containers_of(optimizer, names).items():
            is_state = not label.endswith(")") or "(state" in label
            for key, value in container.items():
                if not isinstance(key, str) or id(value) in known or key == "params":
                    continue
                if is_state and not (label.endswith("(state)") and isinstance(value, Mapping)):
                    self.state[label, key] = value
                elif not is_state and not isinstance(value, Optimizer):
                    self.settings[label, key] = _copy(value, known)


def _copy(value: Any, known: Set[int]) -> Any:
    """Return a copy of tensors and containers, without what is `known` by other names."""
    if id(value) in known:
        return None
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _copy(inner, known) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return [_copy(inner, known) for inner in value]
    return value


def _same(one: Any, other: Any) -> bool:
    """Return whether two copies have the same values, to the bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        like = (one.shape, one.dtype) == (other.shape, other.dtype)
        return like and torch.equal(_bytes(one), _bytes(other))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return one is other or bool(one == other)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8)


def _settings_of(group: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((key, repr(value)) for key, value in group.items() if key != "params")


def _laid(gradient: torch.Tensor, is_sparse: bool) -> torch.Tensor:
    """Return a gradient as it is, or its first row as a sparse one."""
    return (
        gradient[:1].to_sparse(1).sparse_resize_(gradient.shape, 1, gradient.dim() - 1)
        if (is_sparse)
        else gradient
    )
