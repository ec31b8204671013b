"""A trainer's reports: a record of each outer step, and the events during it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pccl_backend as pccl
from pccl_backend.info import Member, TimeSpent
from pccl_backend.state_sync import SyncInfo
from pccl_backend.topology import Topology

__all__ = ["Observer", "OuterStep", "text_of"]


@dataclass(frozen=True, kw_only=True)
class OuterStep:
    """The record of one outer step. Equal on all peers, except for bytes, times and corrections.

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
        time: the time of the thread that trains since its last outer step, by its use.
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
    time: TimeSpent = field(default_factory=TimeSpent)
    reduce_s: float = 0.0
    sent_bytes: int = 0
    corrections: int = 0


def text_of(step: OuterStep, members: Sequence[Member]) -> str:
    """Return a line about an outer step, for the log.

    Example:
        >>> text_of(outer.last, pccl.run_info().members)
        'outer step 12: 3 peers, 45.2 s: 40.1 computing, 2.2 waiting (1.9 for tokyo), 2 transferring
        , 0.5 in joint calls, 0.4 saving; sent 103 MB at 412 Mbit/s; 11 % of the time not training'
    """
    time = step.time
    parts = [f"{time.computing:.3g} computing", f"{time.waiting:.3g} waiting"]
    if time.waiting_for:
        peer, longest = max(time.waiting_for.items(), key=lambda item: item[1])
        name = next((m.name for m in members if m.peer == peer and m.name), peer)
        parts[-1] += f" ({longest:.3g} for {name})"
    parts.append(f"{time.transferring:.3g} transferring")
    parts.append(f"{time.joint:.3g} in joint calls")
    parts.append(f"{time.saving:.3g} saving")
    if time.failing:
        parts.append(f"{time.failing:.3g} in operations that failed")
    sent = f"sent {step.sent_bytes / 1e6:.3g} MB"
    if step.sent_bytes and step.reduce_s:
        sent += f" at {step.sent_bytes * 8e-6 / step.reduce_s:.3g} Mbit/s"
    rest = f"{100 * (1 - time.computing / time.all):.0f} %" if time.all else "0 %"
    peers = "1 peer" if step.world_size == 1 else f"{step.world_size} peers"
    return (
        f"outer step {step.revision}: {peers}, {time.all:.3g} s: {', '.join(parts)}; {sent}; "
        f"{rest} of the time not training"
    )


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
