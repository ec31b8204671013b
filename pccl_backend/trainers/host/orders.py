"""Orders: the messages from the leader of a host to the other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pccl_backend.trainers.flat import Buffers
from pccl_backend.trainers.observer import OuterStep
from pccl_backend.trainers.stages import Goal

__all__ = ["Begin", "Bye", "Chose", "Do", "End", "Facts", "Map", "Status", "Waits"]

Facts = Mapping[str, object]  # facts that must be equal in all processes of a host, by name


@dataclass(frozen=True)
class Status:
    """The progress of the trainer, for its properties in processes without a core."""

    revision: int = 0
    inner_steps: int = 0
    last: OuterStep | None = None


@dataclass(frozen=True)
class Begin:
    """A call of the trainer begins."""

    name: str


@dataclass(frozen=True)
class Map:
    """Map the memory whose descriptor follows, and make buffers in it; answer."""


@dataclass(frozen=True)
class Do:
    """Call a method of the buffers; answer."""

    method: Callable[..., None]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def carry_out(self, buffers: Buffers) -> None:
        self.method(buffers, *self.arguments, **self.options)


@dataclass(frozen=True)
class Waits:
    """The leader waits for other hosts now; no answer."""


@dataclass(frozen=True)
class Chose:
    """The goal of the call after the last inner step; None: no call follows."""

    goal: Goal | None
    inner_steps: int


@dataclass(frozen=True)
class End:
    """The call ends; the others raise `error`, if given, or return `result`."""

    result: Any
    error: Exception | None
    status: Status


@dataclass(frozen=True)
class Bye:
    """The leader has closed its trainer."""
