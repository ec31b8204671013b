"""Learned state: the places of the tensors and numbers that an optimizer's steps change.

Stand-ins of a few elements step several times, and show all numbers that change. Then a stand-in
for each kind of parameter, with the real size, steps until it has all its tensors: some optimizers
keep different tensors for large parameters. Only one such stand-in exists at a time. A long flat
tensor has a stand-in for a part of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.optim import Optimizer

from pccl_backend.trainers.object_graph import attributes_of, fingerprint, like, optimizers_in
from pccl_backend.trainers.stand_ins import StandIn, aside, random, small

__all__ = ["Form", "Learned", "Names", "Place", "containers_of", "is_number", "learn"]

BESIDE = ("parameter", "the gradient of")  # tensors that are written between steps
PART = 1 << 20  # elements of the stand-in of a long flat tensor
STEPS = 12  # of the small stand-ins: some optimizers act differently in each tenth step
VARIED = 6  # steps with new gradients; later ones repeat the last: some estimate a distance

Place = tuple[str, str]  # the label of a container, and a key in it
Names = Mapping[int, str]  # of parameters, by id
Optimizers = Sequence[tuple[str, Optimizer]]  # of optimizers_in


@dataclass(frozen=True)
class Form:
    """The form of a tensor: all but its values.

    Attributes:
        shape, stride: of a dense tensor.
        like: a tensor without elements, of its dtype and on its device.
    """

    shape: torch.Size
    stride: tuple[int, ...]
    like: torch.Tensor

    @staticmethod
    def of(tensor: torch.Tensor) -> Form:
        stride = tensor.stride()
        if not tensor.is_contiguous():
            placed = torch.empty_strided(tensor.shape, stride, device="meta")
            stride = torch.empty_like(placed).stride()
        return Form(tensor.shape, stride, tensor.new_empty(0))

    def zeros(self) -> torch.Tensor:
        return self.like.new_empty_strided(self.shape, self.stride).zero_()

    def __str__(self) -> str:
        return f"{self.like.dtype} of shape {tuple(self.shape)}"


@dataclass
class Learned:
    """Places of an optimizer's tensors and of its numbers. A place may have both, in turn."""

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
    """Containers by label, with a substitute for text-keyed states that do not exist yet."""

    def __missing__(self, label: str) -> MutableMapping[str, Any]:
        prefix, found, owner = label.partition("(state ")
        return State(self[f"{prefix}(state)"], owner[:-1]) if found else {}


def containers_of(optimizers: Optimizers, names: Names) -> Containers:
    """Return the containers of an optimizer's tensors and numbers, by label.

    These are the states of its parameters, all other entries of its state, its groups, and its
    attributes. Optimizers that it refers to add their containers, unless these are the same ones.

    Args:
        optimizers: the result of `optimizers_in`.
        names: of the parameters whose states are wanted, by id.
    """
    containers = Containers()
    seen: set[int] = set()
    for prefix, each in optimizers:
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
    for group in optimizer.param_groups if names else ():
        for parameter in group["params"]:
            if id(parameter) in names:
                yield prefix + names[id(parameter)], State(optimizer.state, parameter)
    for owner, value in list(optimizer.state.items()):
        if isinstance(owner, str) and isinstance(value, Mapping):
            yield f"{prefix}(state {owner})", State(optimizer.state, owner)
    yield f"{prefix}(state)", cast("MutableMapping[str, Any]", optimizer.state)


def learn(
    optimizer: Optimizer, names: Names, *, title: str, sparse: Set[int], views: bool
) -> Learned:
    """Return the places of the tensors and numbers that an optimizer's steps change.

    Args:
        optimizer: the optimizer; neither it nor its parameters change.
        names: of the parameters that it moves, by id.
        title: the optimizer's name in errors.
        sparse: ids of parameters that have sparse gradients.
        views: whether the parameters are views of other memory, and steps have no closure.

    Raises:
        ValueError: a step of a stand-in fails, or keeps something that cannot be shared.
    """
    lesson = _Lesson(optimizer, names, title, sparse, views=views)
    with aside(lesson.parameters):
        return lesson.learn()


class _Lesson:
    def __init__(
        self, optimizer: Optimizer, names: Names, title: str, sparse: Set[int], *, views: bool
    ) -> None:
        self._views = views
        self._optimizer = optimizer
        self._optimizers = list(optimizers_in(optimizer))
        self._names = names
        self._title = title
        self._sparse = sparse
        self._members = [
            (parameter, settings)
            for group in optimizer.param_groups
            for settings in [_settings_of(group)]
            for parameter in group["params"]
        ]
        self.parameters = [parameter for parameter, _ in self._members]
        self._small = {id(parameter): small(parameter) for parameter, _ in self._members}
        self._learned = Learned()
        self._shown = ""  # the name of the parameter that a zero byte represents

    def learn(self) -> Learned:
        versions = self._versions()
        keys, steps = self._step_all()
        self._step_from_start()
        if self._versions() != versions:
            raise ValueError(
                f"{self._title} moves its parameters by a reference that a trainer cannot copy, "
                "such as a weak one, when copies of it step over copies of its parameters: use "
                "another optimizer"
            )
        learned: dict[object, Learned] = {}
        for parameter, settings in self._members:
            name = self._names.get(id(parameter))
            if name is None:
                continue
            kind = (
                settings,
                (parameter.shape, parameter.stride(), parameter.dtype, parameter.device),
                _settings_of(getattr(parameter, "__dict__", {})),
                id(parameter) in self._sparse,
                frozenset(keys[name]),
            )
            if kind not in learned:
                self._shown = name
                learned[kind] = self._step_in_part(parameter, steps)
            for (label, key), form in learned[kind].tensors.items():
                self._take_form(self._learned, (label.replace("\0", name), key), form)
            for label, key in learned[kind].numbers:
                self._learned.numbers.add((label.replace("\0", name), key))
        return self._learned

    def _versions(self) -> list[int]:
        return [-1 if each.is_inference() else each._version for each in self.parameters]

    def _step_from_start(self) -> None:
        """Learn the numbers that the steps of a trained optimizer no longer change.

        Peers that have trained and peers that have not must share the same numbers.
        """
        numbers = [
            (value, each.defaults.get(key))
            for _, each in self._optimizers
            for group in each.param_groups
            for key, value in group.items()
        ]
        if any(is_number(one) and is_number(two) and one != two for one, two in numbers):
            with contextlib.suppress(ValueError):  # these settings may not allow a step
                self._step_all(from_start=True)

    def _step_all(self, *, from_start: bool = False) -> tuple[dict[str, set[str]], int]:
        """Step with small stand-ins of all parameters.

        Args:
            from_start: whether the groups get the optimizer's initial numbers.

        Returns:
            The keys of each parameter's state, and the number of steps until all tensors existed.
        """
        generator = torch.Generator(device="cpu").manual_seed(2)
        sparse = {id(self._small[parameter]) for parameter in self._sparse & self._small.keys()}

        last: dict[int, torch.Tensor] = {}

        def gradient(tensor: torch.Tensor) -> torch.Tensor:
            if step <= VARIED:
                last[id(tensor)] = random(tensor.shape, tensor, generator)
            return _laid(last[id(tensor)].clone(), id(tensor) in sparse)

        step = 0
        stand_in = self._stand_in(self._small, gradient)
        if from_start:
            for _, each in stand_in.optimizers:
                for group in each.param_groups:
                    _restart(group, each.defaults)
        names = {
            id(self._small[owner]): name
            for owner, name in self._names.items()
            if owner in self._small
        }
        before, found = self._look(stand_in, names), Learned()
        steps = 1
        for step in range(1, STEPS + 1):
            self._step(stand_in)
            after = self._look(stand_in, names)
            self._take(found, before, after)
            if _tensors_in(after) - _tensors_in(before):
                steps = step
            self._require_apart(before, after)
            before = after
        self._learned.numbers |= found.numbers
        settings = {place: form for place, form in found.tensors.items() if _is_setting(place[0])}
        self._learned.tensors |= settings  # the tensors of states have other sizes here
        keys: dict[str, set[str]] = {name: set() for name in names.values()}
        for label, key in before.state:
            if label in keys:
                keys[label].add(key)
        return keys, steps

    def _step_in_part(self, parameter: torch.Tensor, steps: int) -> Learned:
        """Step with a stand-in of one parameter; see `_step_one`.

        The flat parameters of a large model are one tensor. Stand-ins for two parts of different
        sizes show its state, if the state's tensors are as long as the parts.
        """
        if parameter.dim() != 1 or len(parameter) <= 2 * PART:
            return self._step_one(parameter, parameter.detach(), steps)
        sizes = PART, PART // 2
        one, other = (self._step_one(parameter, parameter.detach()[:size], steps) for size in sizes)
        result = Learned(numbers=one.numbers | other.numbers)
        for place in one.tensors.keys() | other.tensors.keys():
            pair = [each.tensors.get(place) for each in (one, other)]
            if (form := _scaled(pair, sizes, len(parameter))) is None:
                return self._step_one(parameter, parameter.detach(), steps)
            result.tensors[place] = form
        return result

    def _step_one(self, parameter: torch.Tensor, values: torch.Tensor, steps: int) -> Learned:
        """Step with a stand-in of one parameter, beside small ones without gradients.

        Args:
            parameter: the parameter that it represents.
            values: a tensor of the stand-in's form.
            steps: number of steps.

        Returns:
            The places of its tensors and numbers, with a zero byte in place of its name.
        """
        large = like(parameter, _ramp(values, 1.0))
        is_sparse = id(parameter) in self._sparse

        def gradient(tensor: torch.Tensor) -> torch.Tensor | None:
            if tensor is not large:
                return None
            return _laid(_ramp(values, 0.01), is_sparse)

        stand_in = self._stand_in({**self._small, id(parameter): large}, gradient)
        names = {id(large): "\0"}
        learned = Learned()
        before = self._look(stand_in, names)
        for _ in range(steps):
            self._step(stand_in)
            after = self._look(stand_in, names)
            self._take(learned, before, after)
            self._require_apart(before, after)
            before = after
        return learned

    # --- The changes of a step --------------------------------------------------------------------

    def _take(self, learned: Learned, before: _Look, after: _Look) -> None:
        for place, mark in after.fixed.items():
            if before.fixed.get(place) != mark:
                raise self._cannot_share(place, "an attribute of a parameter, or a slot")
        for place, value in after.state.items():
            if isinstance(value, torch.Tensor):
                self._take_tensor(learned, place, value)
            elif is_number(value):
                learned.numbers.add(place)
            elif value is not None:
                raise self._cannot_share(place, type(value).__name__)
        for place, (value, mark) in after.settings.items():
            if place in before.settings and before.settings[place][1] == mark:
                continue
            own = containers_of(self._optimizers, {})[place[0]].get(place[1])
            if isinstance(value, torch.Tensor):
                self._take_tensor(learned, place, own if isinstance(own, torch.Tensor) else value)
            elif value is None or is_number(value):
                learned.numbers.add(place)
            else:
                raise self._cannot_share(place, type(value).__name__)

    def _take_tensor(self, learned: Learned, place: Place, value: torch.Tensor) -> None:
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise self._cannot_share(place, type(value).__name__)
        if value.layout is not torch.strided or value.is_quantized or 0 in value.stride():
            raise self._cannot_share(place, "a tensor that is not dense")
        self._take_form(learned, place, Form.of(value))

    def _take_form(self, learned: Learned, place: Place, form: Form) -> None:
        if str(before := learned.tensors.setdefault(place, form)) != str(form):
            raise ValueError(
                f"{self._title} keeps {place[1]!r} of {self._label(place)} as {before}, then as "
                f"{form}. A trainer shares tensors of one form: use another optimizer"
            )

    def _require_apart(self, before: _Look, after: _Look) -> None:
        """Raise ValueError if a step writes to a tensor that shares memory with another one."""
        for place, (memory, mark, other) in after.together.items():
            was, its_mark, _ = before.together.get(place, (None, mark, ""))
            if other.startswith(BESIDE) or (was == memory and its_mark != mark):
                raise ValueError(
                    f"{self._title} keeps {place[1]!r} of {self._label(place)} in the memory of "
                    f"{other}, and a newcomer would have them apart: use another optimizer"
                )

    # --- Its parts --------------------------------------------------------------------------------

    def _label(self, place: Place) -> str:
        return repr(place[0].replace("\0", self._shown))

    def _stand_in(
        self,
        tensors: Mapping[int, torch.Tensor],
        gradients: Callable[[torch.Tensor], torch.Tensor | None],
    ) -> StandIn:
        try:
            return StandIn(self._optimizer, tensors, gradients, closure=not self._views)
        except (TypeError, ValueError, RecursionError, RuntimeError) as error:
            raise ValueError(
                f"{self._title} cannot be copied, and from copies a trainer learns the form of its "
                f"state: {type(error).__name__}: {error}"
            ) from error

    def _step(self, stand_in: StandIn) -> None:
        places = stand_in.places()
        try:
            stand_in.step()
        except Exception as error:
            raise ValueError(
                f"{self._title} cannot step over copies of its parameters, from which a trainer "
                f"learns the form of its state: {type(error).__name__}: {error}"
            ) from error
        if self._views and stand_in.places() != places:
            raise ValueError(
                f"{self._title} gives its parameters other memory in a step, and they are views "
                "of the global parameters: use an optimizer that moves them in place"
            )

    def _look(self, stand_in: StandIn, names: Names) -> _Look:
        for _, each in stand_in.optimizers:
            members = {id(p) for group in each.param_groups for p in group["params"]}
            for owner, state in each.state.items():
                if isinstance(owner, torch.Tensor) and id(owner) not in members:
                    what = "a tensor that is no parameter of it"
                elif not isinstance(owner, (str, torch.Tensor)):
                    what = f"{owner!r}, which is neither a parameter nor a text"
                elif isinstance(owner, torch.Tensor) and not isinstance(state, Mapping):
                    what = f"a parameter as {type(state).__name__}, not as a dict"
                elif isinstance(state, Mapping) and not all(isinstance(key, str) for key in state):
                    what = f"a parameter or a text under {[*state]}, which are not all texts"
                else:
                    continue
                raise ValueError(
                    f"{self._title} keeps the state of {what}; it cannot be shared with the other "
                    "peers by name: use another optimizer"
                )
        return _Look(stand_in, names)

    def _cannot_share(self, place: Place, kind: str) -> ValueError:
        return ValueError(
            f"{self._title} keeps {place[1]!r} in {self._label(place)} as {kind}; only "
            "tensors and numbers can be shared with the other peers: use another optimizer"
        )


class _Look:
    """A snapshot of an optimizer's values.

    Attributes:
        state: the values in the states, by place.
        settings: the values in the groups and attributes, by place, each with a fingerprint.
        fixed: fingerprints of values that cannot be shared if they change, by place.
        memory: the names of other tensors, by their memory.
        together: tensors in the states that share memory with another tensor, by place: the memory,
            a fingerprint, and the name of the other one.
    """

    def __init__(self, stand_in: StandIn, names: Names) -> None:
        self.state: dict[Place, Any] = {}
        self.settings: dict[Place, tuple[Any, object]] = {}
        self.fixed: dict[Place, object] = {}
        self.memory: dict[object, str] = {}
        self._known = stand_in.parts
        optimizers = stand_in.optimizers
        for prefix, each in optimizers:
            for key in attributes_of(each).keys() - vars(each).keys():
                self.fixed[f"{prefix}(optimizer)", key] = self._mark(key, getattr(each, key))
            self._look_at_parameters(each, names)
        for label, container in containers_of(optimizers, names).items():
            for key, value in container.items():
                if not isinstance(key, str) or id(value) in self._known or key == "params":
                    continue
                if _is_setting(label):
                    self.settings[label, key] = value, self._mark(f"{key!r} in {label!r}", value)
                elif not (label.endswith("(state)") and isinstance(value, Mapping)):
                    self.state[label, key] = value
        self.together: dict[Place, tuple[object, object, str]] = {}
        for place, value in self.state.items():
            if not isinstance(value, torch.Tensor) or (memory := _memory(value)) is None:
                continue
            other = self.memory.setdefault(memory, f"{place[1]!r} of {place[0]!r}")
            if other != f"{place[1]!r} of {place[0]!r}":
                self.together[place] = memory, fingerprint(value, {}, {}), other

    def _look_at_parameters(self, optimizer: Optimizer, names: Names) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if (name := names.get(id(parameter))) is None:
                    continue
                for tensor, what in ((parameter, BESIDE[0]), (parameter.grad, BESIDE[1])):
                    if tensor is not None and (memory := _memory(tensor)) is not None:
                        self.memory[memory] = f"{what} {name!r}"
                for key, value in getattr(parameter, "__dict__", {}).items():
                    self.fixed[name, key] = self._mark(f"{key!r} of {name!r}", value)

    def _mark(self, name: str, value: object) -> object:
        seen: dict[int, tuple[int, object]] = {}
        mark = fingerprint(value, self._known, seen)
        for _, part in seen.values():
            if isinstance(part, torch.Tensor) and (memory := _memory(part)) is not None:
                self.memory[memory] = name
        return mark


def _restart(group: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Set the numbers of a group to the optimizer's initial ones."""
    for key, value in defaults.items():
        if type(value) in (int, float) and is_number(group.get(key)) and (value or key != "lr"):
            group[key] = value


def is_number(value: object) -> bool:
    """Return whether a value can be shared as a number. Subclasses would lose their class."""
    return type(value) in (bool, int, float)


def _is_setting(label: str) -> bool:
    return label.endswith("(optimizer)") or "(group " in label


def _tensors_in(look: _Look) -> set[Place]:
    return {place for place, value in look.state.items() if isinstance(value, torch.Tensor)}


def _memory(tensor: torch.Tensor) -> object:
    """Return a key that is equal for tensors over the same memory; None if there is no memory."""
    if tensor.layout is not torch.strided or tensor.numel() == 0 or tensor.is_meta:
        return None
    try:
        return tensor.device, tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a subclass that consists of other tensors
        return None


def _settings_of(group: Mapping[str, Any]) -> tuple[tuple[str, object], ...]:
    """Return the settings that may decide the form of a state; of a float only whether it is 0."""
    return tuple(
        (key, value != 0 if isinstance(value, float) else repr(value))
        for key, value in group.items()
        if key not in ("params", "param_names")
    )


def _scaled(pair: Sequence[Form | None], sizes: tuple[int, int], size: int) -> Form | None:
    """Return the form for a size, if it follows from the forms for two other sizes."""
    one, other = pair
    if one is None or other is None or len(one.shape) != len(other.shape):
        return None
    shape = []
    for both in zip(one.shape, other.shape, strict=True):
        if both != sizes and both[0] != both[1]:
            return None
        shape.append(size if both == sizes else both[0])
    stride = torch.empty(shape, device="meta").stride()
    return Form(torch.Size(shape), stride, one.like)


def _ramp(tensor: torch.Tensor, most: float) -> torch.Tensor:
    """Return a tensor of the same form with evenly spaced values, which are fast to make."""
    values = torch.linspace(-most, most, tensor.numel(), dtype=torch.float32, device="cpu")
    return torch.empty_like(tensor, requires_grad=False).copy_(values.view(tensor.shape))


def _laid(gradient: torch.Tensor, is_sparse: bool) -> torch.Tensor:
    """Return a gradient as it is, or its first row as a sparse one."""
    if not is_sparse:
        return gradient
    return gradient[:1].to_sparse(1).sparse_resize_(gradient.shape, 1, gradient.dim() - 1)
