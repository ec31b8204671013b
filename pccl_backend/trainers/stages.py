"""The vocabulary of a trainer's core: its decisions, its stages, and its shared progress."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Action", "Boundary", "Delta", "Goal", "Progress", "Then"]


class Action(Enum):
    """An action of the trainer."""

    TURN = (
        auto()
    )  # measure the next pseudo-gradient, and apply and load the outer step that has landed
    POST = auto()  # begin the all-reduce; a blocking trainer measures first
    AWAIT = auto()  # wait for the all-reduce
    APPLY = auto()  # move the global parameters
    LOAD = auto()  # bring the new global parameters into the local copy
    UPDATE = auto()  # update_topology
    SYNC = auto()  # sync_shared_state
    SETTLE = auto()  # wait for a SYNC that continues in the background


class Goal(Enum):
    """The goal of a call of the trainer. `Core.next` returns None once it is reached."""

    START = auto()  # become a member with the same state as the others
    STEP = auto()  # pass a boundary
    RECEIVE = auto()  # finish the outer step in flight
    MEET = auto()  # finish the outer step in flight, then meet


class Delta(Enum):
    """The content of the pseudo-gradient's buffer."""

    FREE = auto()  # nothing: the learning is in the local copy
    OWN = auto()  # this peer's pseudo-gradient, to be sent (never in a blocking trainer)
    FLYING = auto()  # lent to the all-reduce
    MEAN = auto()  # the mean of all peers, not yet applied
    APPLIED = auto()  # nothing: the mean was applied, but the local copy is not loaded yet


class Boundary(Enum):
    """The stage of a boundary."""

    NONE = auto()  # inner steps are next
    BEGUN = auto()
    TURNED = auto()  # overlapped: the next pseudo-gradient is measured; meet, then post
    LOADED = auto()  # blocking: the outer step is finished; meet
    DONE = auto()  # finished, but no call has returned its result yet


class Then(Enum):
    """The members' next step after a SYNC; the values are part of the shared state."""

    STEPS = 0  # inner steps
    POST = 1  # the all-reduce, then inner steps
    FINISH = 2  # the all-reduce and the rest of the boundary, then inner steps
    STEPS_NOW = 3  # inner steps, begun while a newcomer fetches the state
    POST_NOW = 4  # the all-reduce, then inner steps, begun while a newcomer fetches the state


@dataclass(frozen=True)
class Progress:
    """The core's part of the shared state.

    Attributes:
        outer_steps: number of outer steps.
        then: the members' next step, for a newcomer.
        position: inner steps that the members have taken since the last boundary.
        inner_steps: inner steps that a peer has taken since the run began, on average.
    """

    outer_steps: int = 0
    then: Then = Then.STEPS
    position: int = 0
    inner_steps: int = 0

    def values(self) -> list[int]:
        """Return the four numbers that are shared."""
        return [self.outer_steps, self.then.value, self.position, self.inner_steps]

    @staticmethod
    def of(values: list[int]) -> Progress:
        """Return the progress from the numbers of `values`."""
        outer_steps, then, position, inner_steps = values
        return Progress(outer_steps, Then(then), position, inner_steps)
