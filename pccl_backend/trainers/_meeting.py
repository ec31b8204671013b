"""The meeting: update_topology and then sync_shared_state, in an order that heals.

All members hold it in the same order. If a joint call raised, it did so on all of them, and all
begin anew with update_topology. If a member was interrupted between the two calls, the others wait
in the second one, and that is where it goes on. A member whose interruption crossed the end of a
call may be one call behind: then a joint call fails for all, and they find together as above.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.trainers._signals import HeldSignals
from pccl_backend.trainers.observer import Observer

if TYPE_CHECKING:
    from pccl_backend.trainers.diloco import DiLoCo

__all__ = ["ATTEMPTS_MAX", "MEMBERS_CHANGED", "Meeting", "Strategy"]

T = TypeVar("T")
Strategy = Literal["enforce_popular", "receive_only"]

# The members changed, nothing else is wrong: meet again and repeat.
MEMBERS_CHANGED = (pccl.PeerLostError, pccl.MembershipChangedError)

# Every repetition follows a change of the members. A run that changes more often than this within
# one outer step makes no progress, and a person should look at it.
ATTEMPTS_MAX = 32


class Meeting:
    """A trainer's meetings, one after the other; each can be gone on with after it raised.

    Args:
        trainer: named to the observer.
        observer: is told.
        signals: entered by whoever calls.
        group: the process group.
        updated: called when the topology is updated, before the observer is told.
        agreed: called when the state is agreed on, before the observer is told.

    Attributes:
        broken: a joint call or an all-reduce failed, and all begin anew.
        met: the result of a meeting that is over, until a call of the trainer has returned it. The
            topology is None if it began with sync_shared_state.
    """

    def __init__(
        self,
        trainer: DiLoCo,
        *,
        observer: Observer,
        signals: HeldSignals,
        group: dist.ProcessGroup | None,
        updated: Callable[[pccl.Topology], None],
        agreed: Callable[[pccl.SyncInfo], None],
    ) -> None:
        self._trainer = trainer
        self._observer = observer
        self._signals = signals
        self._group = group
        self._updated = updated
        self._agreed = agreed
        self._topology: pccl.Topology | None = None  # updated; sync_shared_state comes next
        self.broken = False
        self.met: tuple[pccl.Topology | None, pccl.SyncInfo] | None = None

    @property
    def due(self) -> bool:
        """Whether one has begun, or something failed: then it comes before all else."""
        return self.broken or self._topology is not None

    def forget(self) -> None:
        """Begin as a newcomer of the run."""
        self.broken, self._topology, self.met = False, None, None

    def join_in(self, state: pccl.SharedState, strategy: Strategy) -> None:
        """Do as a newcomer does: it was admitted inside the members' update_topology."""
        try:
            if not self.due:
                return self._sync(state, strategy)
        except MEMBERS_CHANGED:
            pass
        return self.hold(state, strategy)

    def hold(self, state: pccl.SharedState, strategy: Strategy) -> None:
        """Begin a meeting, or go on with the one that has begun; its result is in `met`."""
        attempt = 0
        while True:
            attempt += 1
            if self._topology is None:
                self._update_topology()
            try:
                return self._sync(state, strategy)
            except MEMBERS_CHANGED:
                if attempt == ATTEMPTS_MAX:
                    raise

    def _update_topology(self) -> None:
        self._signals.wait(partial(self._observer.before_meet, self._trainer))
        self._topology = self._call(partial(pccl.update_topology, group=self._group))
        self._updated(self._topology)
        self._signals.wait(partial(self._observer.topology_updated, self._trainer, self._topology))

    def _sync(self, state: pccl.SharedState, strategy: Strategy) -> None:
        info = self._call(
            partial(pccl.sync_shared_state, state, strategy=strategy, group=self._group)
        )
        self._agreed(info)
        self.met, self._topology, self.broken = (self._topology, info), None, False
        self._signals.wait(partial(self._observer.state_synced, self._trainer, info))

    def _call(self, joint: Callable[[], T]) -> T:
        try:
            return self._signals.wait(joint)
        except BaseException:
            if self._signals.begun:  # else this peer alone was interrupted, before it called
                self.broken, self._topology = True, None
            raise
