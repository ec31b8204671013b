"""A trainer's reports: a record of each outer step, and the events during it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pccl_backend as pccl
from pccl_backend.state_sync import SyncInfo
from pccl_backend.topology import Topology

__all__ = ["Observer", "OuterStep"]


@dataclass(frozen=True, kw_only=True)
class OuterStep:
    """The record of one outer step. Equal on all peers, except for bytes, seconds and corrections.

    Attributes:
        revision: number of outer steps of the global parameters, this one included.
        contributors: number of peers that count in the average: those with a weight above 0.
        attempts: number of times the all-reduce ran; above 1 if members were lost, or if it failed
            and `step` was called again.
        world_size: number of members after the step.
        joined: names of the peers admitted during the step.
        left: names of the peers lost during the step.
        synced: outcome of the step's sync_shared_state. If a newcomer still fetches the state after
            this step, the bytes that this peer sends to it are in `sent_bytes` of the next steps.
        excluded: names of the peers whose pseudo-gradients were not finite. They count with weight
            0, and those peers continue from the global parameters.
        inner_steps: inner steps of the run so far: the mean over the contributors of each outer
            step, added up.
        waited_s: seconds that this peer has waited for the all-reduce and in joint calls since its
            last outer step.
        reduce_s: seconds from the beginning of the all-reduce until this peer has seen its end:
            with an overlap, some time after it.
        sent_bytes: bytes that this peer has sent since its last outer step.
        corrections: number of syncs of this trainer so far that have corrected this peer, because
            it has computed other bits than the others (`SyncInfo.drifted`). 0 on a peer whose
            machine and code compute like those of the others.

    The first outer step of a trainer that overlaps only sends: the parameters have not moved, and
    there are 0 contributors and 0 attempts.
    """

    revision: int
    contributors: int
    attempts: int
    world_size: int
    joined: tuple[str, ...]
    left: tuple[str, ...]
    synced: SyncInfo
    excluded: tuple[str, ...] = ()
    inner_steps: int = 0
    waited_s: float = 0.0
    reduce_s: float = 0.0
    sent_bytes: int = 0
    corrections: int = 0


class Observer:
    """Receives a trainer's events, in the thread that called the trainer. Override what you need.

    `trainer` is the DiLoCo or DDP that has this observer; a method may name the one it expects.

    An exception from an event ends the trainer's call, like any other exception, and the call may
    be repeated. Each event is delivered once, even if its method raised.
    """

    def before_reduce(self, trainer: Any) -> None:
        """The pseudo-gradient is measured; its all-reduce comes next."""

    def reduce_posted(self, trainer: Any, attempt: int) -> None:
        """The all-reduce runs; the trainer waits for it next."""

    def reduce_failed(self, trainer: Any, attempt: int, error: pccl.PcclError) -> None:
        """Members changed and the all-reduce failed; pseudo_gradient is as it was before."""

    def reduce_committed(self, trainer: Any, attempt: int) -> None:
        """All peers have the average; the outer step comes next."""

    def before_meet(self, trainer: Any) -> None:
        """update_topology comes next."""

    def topology_updated(self, trainer: Any, topology: Topology) -> None:
        """update_topology returned; sync_shared_state comes next.

        `joined` and `left` list the changes since the trainer's previous check; both are empty if
        nothing changed.
        """

    def state_synced(self, trainer: Any, info: SyncInfo) -> None:
        """All peers hold the same global parameters.

        If `info.drifted`, this peer has computed other bits than the others in its last outer step,
        and the tensors `info.corrected` have been overwritten.
        """

    def came_back(self, trainer: Any, why: pccl.KickedError) -> None:
        """This peer was removed from the run of the trainer's `url`, and has joined it again.

        The peer has a new name, and the others' state.
        """

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        """An outer step inside an optimizer's step is done. A direct `step` returns it instead."""
