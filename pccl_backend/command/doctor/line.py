"""A line of `pccl doctor`: the result of one check. A plain value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["LEVELS", "Level", "Line", "bad", "ok", "warn", "worst"]

Level = Literal["ok", "warn", "bad"]
LEVELS: tuple[Level, ...] = ("ok", "warn", "bad")  # from the best to the worst


@dataclass(frozen=True)
class Line:
    """The result of one check.

    Attributes:
        level: "ok"; "warn": pccl works, but less well than it can, or not for everybody; "bad":
            something does not work.
        text: the result, in one sentence.
        next: a command or a step of a person; "" if nothing has to be done.
    """

    level: Level
    text: str
    next: str = ""


def ok(text: str) -> Line:
    """Return a line without a problem."""
    return Line("ok", text)


def warn(text: str, next_step: str) -> Line:
    """Return a line about a problem that does not stop pccl."""
    return Line("warn", text, next_step)


def bad(text: str, next_step: str) -> Line:
    """Return a line about a problem that stops pccl."""
    return Line("bad", text, next_step)


def worst(levels: Iterable[Level]) -> Level:
    """Return the worst of some levels; "ok" if there are none.

    Example:
        >>> worst(["ok", "bad", "warn"])
        'bad'
    """
    return max(levels, key=LEVELS.index, default="ok")
