"""The meeting: update_topology followed by sync_shared_state, with recovery from interruptions.

All members make the two calls in the same order. If a joint call raised, it raised on all members,
and all begin again with update_topology. If one member was interrupted between the two calls, the
others wait in the second call, and the member continues there. If an interruption came at the end
of a call, the member may be one call behind. Then a joint call fails on all members, and all begin
again as above.
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

# Errors that mean only a change of the members: meet again and repeat.
MEMBERS_CHANGED = (pccl.PeerLostError, pccl.MembershipChangedError)

# Every repetition follows a change of the members. If the members change more often than this
# within one outer step, the run makes no progress, and a person should look at it.
ATTEMPTS_MAX = 32


class Meeting:
    """The meetings of one trainer, one after another. A meeting that raised can be continued.

    Args:
        trainer: passed to the observer.
        observer: receives the events.
        signals: entered by the caller of each method.
        group: the process group.
        updated: called after update_topology, before the observer's event.
        agreed: called after sync_shared_state, before the observer's event.

    Attributes:
        broken: whether a joint call or an all-reduce failed; then all members begin again.
        met: result of a finished meeting, until a call of the trainer has returned it. The topology
            is None if the meeting began with sync_shared_state.
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
        self._topology: pccl.Topology | None = None  # set when only sync_shared_state is missing
        self.broken = False
        self.met: tuple[pccl.Topology | None, pccl.SyncInfo] | None = None

    @property
    def due(self) -> bool:
        """Whether a meeting has begun, or something failed; then the meeting comes first."""
        return self.broken or self._topology is not None

    def forget(self) -> None:
        """Reset to the state of a newcomer."""
        self.broken, self._topology, self.met = False, None, None

    def join_in(self, state: pccl.SharedState, strategy: Strategy) -> None:
        """Meet as a newcomer, which was admitted inside the members' update_topology."""
        try:
            if not self.due:
                return self._sync(state, strategy)
        except MEMBERS_CHANGED:
            pass
        return self.hold(state, strategy)

    def hold(self, state: pccl.SharedState, strategy: Strategy) -> None:
        """Begin a meeting, or continue the one that has begun; the result is in `met`."""
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
            if self._signals.begun:  # otherwise only this peer was interrupted, before the call
                self.broken, self._topology = True, None
            raise
