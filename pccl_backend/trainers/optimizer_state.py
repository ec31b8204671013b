"""OptimizerState: what the steps of one optimizer change, as a part of the shared state.

An optimizer makes its state in its first step, and some treat that step apart. So nothing is made
for it. Until then, spare tensors of zeros stand in the shared state for those that it has not made,
with a note for each that there is none. A newcomer that receives tensors puts them into its
optimizer, which then steps as those of the others do.

All numbers travel in one tensor with a row (kind, bits) for each: those of the state, and those of
the groups and of the optimizer itself that its step changes. A learning rate that the program sets
is this peer's own.
"""

from __future__ import annotations

import numbers
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

import torch
from torch.optim import Optimizer

from pccl_backend.trainers.learned_state import Names, Place, containers_of, learn
from pccl_backend.trainers.stand_ins import optimizers_in

__all__ = ["OptimizerState"]

Row = tuple[int, int]


class Kind(IntEnum):
    """What is at a place."""

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
        sparse: parameters that have sparse gradients.

    Raises:
        ValueError: a step of a stand-in fails, or keeps something that cannot be shared.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        names: Names,
        *,
        title: str,
        sparse: Sequence[torch.Tensor] = (),
    ) -> None:
        self._optimizer = optimizer
        self._title = title
        learned = learn(optimizer, names, title=title, sparse={id(tensor) for tensor in sparse})
        self._forms = learned.tensors
        self._numbers = frozenset(learned.numbers)
        self._rows: dict[Place, Row] = dict.fromkeys(
            sorted(self._forms.keys() | self._numbers), (Kind.ABSENT, 0)
        )
        self._shared_rows = torch.zeros(len(self._rows), 2, dtype=torch.int64, device="cpu")
        self._missing: set[Place] = set(self._forms)
        self._spares: dict[Place, torch.Tensor] = {}

    def shared(self, names: Names) -> dict[str, torch.Tensor]:
        """Return the tensors, by name: the same ones again, unless the optimizer has new ones."""
        here = dict(self._tensors(names))
        missing = self._forms.keys() - here.keys()
        if changed := self._numbers | (missing ^ self._missing):
            self._look(changed, names)
        self._missing = missing
        for place in self._spares.keys() - missing:
            del self._spares[place]
        for place in missing:
            here[place] = self._spare(place)
        tensors = {"/".join(place): tensor for place, tensor in here.items()}
        return {**tensors, "numbers": self._shared_rows} if self._rows else tensors

    def adopt(self, names: Names) -> None:
        """Give the optimizer what was written to the tensors of the last `shared`."""
        changed: dict[Place, Row] = {}
        for (place, before), row in zip(
            self._rows.items(), self._shared_rows.tolist(), strict=True
        ):
            if before != (now := (row[0], row[1])):
                changed[place] = now
        if not changed:
            return
        containers = containers_of(self._optimizer, names)
        for place, (kind, bits) in changed.items():
            self._rows[place] = kind, bits
            container = containers[place[0]]
            if kind == Kind.ABSENT:
                container.pop(place[1], None)
            elif kind == Kind.TENSOR:
                container[place[1]] = self._spares.pop(place)
            else:
                container[place[1]] = _decoded(kind, bits)
        self._missing = {p for p in self._forms if self._rows[p][0] != Kind.TENSOR}

    def release(self, parameter: torch.Tensor, names: Names) -> None:
        """Free the spares of a parameter: the optimizer is going to make its state."""
        if not self._spares:
            return
        name = names[id(parameter)]
        labels = {prefix + name for prefix, _ in optimizers_in(self._optimizer)}
        for place in [place for place in self._spares if place[0] in labels]:
            spare = self._spares.pop(place)
            spare.data = spare.new_empty(0)  # the shared state keeps it until its next look

    # --- Its parts --------------------------------------------------------------------------------

    def _tensors(self, names: Names) -> Iterator[tuple[Place, torch.Tensor]]:
        """Yield the tensors that there are."""
        for prefix, optimizer in optimizers_in(self._optimizer):
            for owner, state in optimizer.state.items():
                if not isinstance(owner, torch.Tensor):
                    continue
                label = prefix + names.get(id(owner), "")
                for key, value in state.items():
                    if isinstance(value, torch.Tensor):
                        yield (label, key), value
        if elsewhere := [place for place in self._forms if place[0].endswith(")")]:
            containers = containers_of(self._optimizer, {})
            for place in elsewhere:
                value = containers[place[0]].get(place[1])
                if isinstance(value, torch.Tensor):
                    yield place, value

    def _look(self, places: frozenset[Place] | set[Place], names: Names) -> None:
        """Note what is at these places now."""
        containers = containers_of(self._optimizer, names)
        for place in places:
            container = containers[place[0]]
            if place[1] in container:
                self._rows[place] = self._encoded(place, container[place[1]])
            else:
                self._rows[place] = Kind.ABSENT, 0
        self._shared_rows.copy_(torch.tensor(list(self._rows.values()), device="cpu"))

    def _spare(self, place: Place) -> torch.Tensor:
        if place not in self._spares:
            self._spares[place] = self._forms[place].zeros()
        return self._spares[place]

    def _encoded(self, place: Place, value: Any) -> Row:
        if isinstance(value, torch.Tensor):
            return Kind.TENSOR, 0
        if value is None:
            return Kind.NONE, 0
        if isinstance(value, bool):
            return Kind.BOOL, int(value)
        if isinstance(value, numbers.Integral) and -(2**63) <= int(value) < 2**63:
            return Kind.INT, int(value)
        if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
            return Kind.FLOAT, struct.unpack("<q", struct.pack("<d", float(value)))[0]
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
