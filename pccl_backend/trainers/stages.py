"""The words of a trainer's core: what it decides, where it stands, and what it shares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Action", "Boundary", "Delta", "Goal", "Progress", "Then"]


class Action(Enum):
    """What the trainer carries out."""

    TURN = auto()  # measure the next pseudo-gradient, and apply and load the round that has landed
    POST = auto()  # begin the all-reduce; a blocking trainer measures first
    AWAIT = auto()  # wait for the all-reduce
    APPLY = auto()  # move the global parameters
    LOAD = auto()  # bring the new global parameters into the local copy
    UPDATE = auto()  # update_topology
    SYNC = auto()  # sync_shared_state
    SETTLE = auto()  # wait for a SYNC that goes on in the background


class Goal(Enum):
    """What a call of the trainer is for. `next` returns None when it is reached."""

    START = auto()  # become a member that holds what the others hold
    STEP = auto()  # go over a boundary
    RECEIVE = auto()  # finish the round in flight
    MEET = auto()  # finish the round in flight, then meet


class Delta(Enum):
    """What the pseudo-gradient's buffer holds."""

    FREE = auto()  # nothing: what was learned is in the local copy
    OWN = auto()  # this peer's, to be sent (never in a blocking trainer)
    FLYING = auto()  # lent to the all-reduce
    MEAN = auto()  # all peers' together, not yet applied
    APPLIED = auto()  # nothing, and the local copy still is the old one


class Boundary(Enum):
    """How far a boundary has come."""

    NONE = auto()  # inner steps are next
    BEGUN = auto()
    TURNED = auto()  # overlapped: the next pseudo-gradient is measured; meet, then post
    LOADED = auto()  # blocking: the round is finished; meet
    DONE = auto()  # no call has returned its result yet


class Then(Enum):
    """What the members do after a SYNC; the values are part of the shared state."""

    STEPS = 0  # inner steps
    POST = 1  # the all-reduce, then inner steps
    FINISH = 2  # the all-reduce and the rest of the boundary, then inner steps
    STEPS_NOW = 3  # inner steps, which they begin while a newcomer fetches
    POST_NOW = 4  # the all-reduce, then inner steps, likewise


@dataclass(frozen=True)
class Progress:
    """The core's part of the shared state.

    Attributes:
        rounds: number of outer steps.
        then: what the members do next, for a newcomer.
        position: inner steps that the members have taken since the last boundary.
        inner_steps: inner steps that a peer has taken since the run began, on average.
    """

    rounds: int = 0
    then: Then = Then.STEPS
    position: int = 0
    inner_steps: int = 0

    def values(self) -> list[int]:
        """Return the four numbers that are shared."""
        return [self.rounds, self.then.value, self.position, self.inner_steps]

    @staticmethod
    def of(values: list[int]) -> Progress:
        """Return what `values` gave."""
        rounds, then, position, inner_steps = values
        return Progress(rounds, Then(then), position, inner_steps)
