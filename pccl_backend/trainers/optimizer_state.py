"""OptimizerState: the tensors and numbers that one optimizer's steps change, as shared state.

An optimizer makes its state in its first step, and some treat that step differently. So the trainer
makes no state for it. Until its first step, spare tensors of zeros represent its missing tensors in
the shared state, each with a note that it is missing. A newcomer that receives tensors puts them
into its optimizer, which then steps like the others' optimizers.

All numbers travel in one tensor with a row (kind, bits) for each: the numbers of the state, and the
numbers of the groups and of the optimizer itself that its step changes. A learning rate that the
program sets is this peer's own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import torch
from torch.optim import Optimizer

from pccl_backend.trainers.learned_state import Form, Names, Place, containers_of, is_number, learn
from pccl_backend.trainers.object_graph import optimizers_in

__all__ = ["OptimizerState"]

Row = tuple[int, int]


class Kind(IntEnum):
    """The kind of value at a place."""

    ABSENT = 0
    NONE = 1
    BOOL = 2
    INT = 3
    FLOAT = 4
    TENSOR = 5


class OptimizerState:
    """The state of one optimizer; see the head of this file.

    Args:
        optimizer: the optimizer.
        names: of the parameters that it moves, by id.
        title: the optimizer's name in errors.
        prefix: the prefix of the names in the shared state.
        sparse: parameters that have sparse gradients.
        views: whether the parameters are views of other memory, and steps have no closure.

    Raises:
        ValueError: a step of a stand-in fails, or keeps something that cannot be shared.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        names: Names,
        *,
        title: str,
        prefix: str,
        sparse: Sequence[torch.Tensor] = (),
        views: bool = False,
    ) -> None:
        self._title = title
        self._prefix = prefix
        try:
            self._optimizers = list(optimizers_in(optimizer))
        except ValueError as error:
            raise ValueError(f"{title} cannot be looked through: {error}") from error
        rows = {id(tensor) for tensor in sparse}
        learned = learn(optimizer, names, title=title, sparse=rows, views=views)
        # Names by label and key. Parameters without any state have an entry, too.
        self._keys: dict[str, dict[str, str]] = {
            prefix + names[id(parameter)]: {}
            for prefix, each in self._optimizers
            for group in each.param_groups
            for parameter in group["params"]
            if id(parameter) in names
        }
        for label, key in sorted({*learned.tensors, *learned.numbers}):
            self._keys.setdefault(label, {})[key] = self._name((label, key))
        self._forms = {self._name(place): form for place, form in learned.tensors.items()}
        self._numbers = {self._name(place) for place in learned.numbers}
        # Places of tensors outside of the states of parameters.
        self._elsewhere = [place for place in learned.tensors if place[0].endswith(")")]
        places = {self._name(place): place for place in {*learned.tensors, *learned.numbers}}
        self._places = dict(sorted(places.items()))
        self._rows: dict[str, Row] = dict.fromkeys(self._places, (Kind.ABSENT, 0))
        self._shared_rows = torch.zeros(len(self._rows), 2, dtype=torch.int64, device="cpu")
        self._missing: set[str] = set(self._forms)
        self._spares: dict[str, torch.Tensor] = {}
        self._seen: dict[str, torch.Tensor] = {}  # tensors with a checked form

    def shared(self, names: Names) -> dict[str, torch.Tensor]:
        """Return the tensors, by name: the same ones again, unless the optimizer has new ones."""
        tensors = self._tensors(names)
        missing = self._forms.keys() - tensors.keys()
        if changed := self._numbers | (missing ^ self._missing):
            self._look(changed, names)
        self._missing = missing
        for name in self._spares.keys() - missing:
            del self._spares[name]
        for name in missing:
            tensors[name] = self._spare(name)
            self._seen.pop(name, None)
        if self._rows:
            tensors[f"{self._prefix}/numbers"] = self._shared_rows
        return tensors

    def adopt(self, names: Names) -> None:
        """Put the values that the sync has written to the last `shared` into the optimizer."""
        changed: dict[str, Row] = {}
        for (name, before), row in zip(self._rows.items(), self._shared_rows.tolist(), strict=True):
            if before != (now := (row[0], row[1])):
                changed[name] = now
        if not changed:
            return
        self._rows |= changed
        containers = containers_of(self._optimizers, names)
        for name, (kind, bits) in changed.items():
            label, key = self._places[name]
            if kind == Kind.ABSENT:
                containers[label].pop(key, None)
            elif kind == Kind.TENSOR:
                containers[label][key] = self._spares.pop(name)
            else:
                containers[label][key] = _decoded(kind, bits)
        self._missing = {name for name in self._forms if self._rows[name][0] != Kind.TENSOR}

    @property
    def has_spares(self) -> bool:
        return bool(self._spares)

    def release(self, parameter: torch.Tensor, names: Names) -> None:
        """Free the spares of a parameter: the optimizer makes its state next."""
        for prefix, _ in self._optimizers:
            for name in self._keys.get(prefix + names[id(parameter)], {}).values():
                if (spare := self._spares.pop(name, None)) is not None:
                    spare.data = spare.new_empty(0)  # the shared state keeps it until its next look

    # --- Its parts --------------------------------------------------------------------------------

    def _name(self, place: Place) -> str:
        return f"{self._prefix}/{place[0]}/{place[1]}"

    def _tensors(self, names: Names) -> dict[str, torch.Tensor]:
        """Return the existing tensors, by name."""
        tensors: dict[str, torch.Tensor] = {}
        seen: set[int] = set()  # an optimizer may share the state of one that it wraps
        for prefix, optimizer in self._optimizers:
            if id(optimizer.state) in seen:
                continue
            seen.add(id(optimizer.state))
            for owner, state in optimizer.state.items():
                if not isinstance(owner, torch.Tensor):
                    continue
                label = prefix + names.get(id(owner), "\0")
                if (keys := self._keys.get(label)) is None:
                    if id(owner) in names and owner.requires_grad and state:
                        raise self._unknown((label, next(iter(state))), "its state", "nothing")
                    continue  # it is frozen, or no parameter any more
                for key, value in state.items():
                    name = keys.get(key, "")
                    if isinstance(value, torch.Tensor):
                        self._require_form(name, (label, key), value)
                        tensors[name] = value
                    elif not name and value is not None:
                        raise self._unknown((label, key), type(value).__name__, "nothing")
        containers = containers_of(self._optimizers, {}) if self._elsewhere else {}
        for label, key in self._elsewhere:
            value = containers[label].get(key)
            if isinstance(value, torch.Tensor):
                name = self._name((label, key))
                self._require_form(name, (label, key), value)
                tensors[name] = value
        return tensors

    def _require_form(self, name: str, place: Place, value: torch.Tensor) -> None:
        """Raise ValueError if a tensor's form differs from the learned one."""
        if self._seen.get(name) is value:
            return
        form = self._forms.get(name)
        if form is None or value.shape != form.shape or value.dtype != form.like.dtype:
            raise self._unknown(place, Form.of(value), form or "no tensor")
        self._seen[name] = value

    def _unknown(self, place: Place, now: object, learned: object) -> ValueError:
        return ValueError(
            f"{self._title} keeps {place[1]!r} of {place[0]!r} as {now}, and its copies have kept "
            f"{learned} there in their first steps, so a newcomer would not receive it: use "
            "another optimizer"
        )

    def _look(self, changed: set[str], names: Names) -> None:
        """Note the optimizer's present values at the places of these names."""
        containers = containers_of(self._optimizers, names)
        for name in changed:
            label, key = self._places[name]
            container = containers[label]
            if key in container:
                self._rows[name] = self._encoded((label, key), container[key])
            else:
                self._rows[name] = Kind.ABSENT, 0
        self._shared_rows.copy_(torch.tensor(list(self._rows.values()), device="cpu"))

    def _spare(self, name: str) -> torch.Tensor:
        if name not in self._spares:
            self._spares[name] = self._forms[name].zeros()
        return self._spares[name]

    def _encoded(self, place: Place, value: Any) -> Row:
        if isinstance(value, torch.Tensor):
            return Kind.TENSOR, 0
        if value is None:
            return Kind.NONE, 0
        if is_number(value):
            if isinstance(value, float):
                return Kind.FLOAT, struct.unpack("<q", struct.pack("<d", value))[0]
            if -(2**63) <= value < 2**63:
                return Kind.BOOL if isinstance(value, bool) else Kind.INT, int(value)
        raise ValueError(
            f"{self._title} keeps {value!r} as {place[1]!r} in {place[0]!r}; only tensors, "
            "integers of 64 bits and floats can be shared with the other peers"
        )


def _decoded(kind: int, bits: int) -> float | int | bool | None:
    match kind:
        case Kind.BOOL:
            return bool(bits)
        case Kind.INT:
            return bits
        case Kind.FLOAT:
            number: float = struct.unpack("<d", struct.pack("<q", bits))[0]
            return number
    return None
