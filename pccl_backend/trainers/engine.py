"""Engine: carries out the actions of a trainer's core, and makes its calls to the group.

Normal order of a blocking outer step: POST measures the pseudo-gradient and begins the all-reduce,
AWAIT waits for it, APPLY moves the global parameters, and LOAD copies them into the model. The
meeting follows: UPDATE calls update_topology, and SYNC calls sync_shared_state. If an action fails,
the parameters are as before it. If the call raised, the next call continues with the same action,
or with UPDATE after a failed all-reduce or joint call.

A trainer with other settings than most peers is refused: each call raises before the mean is
applied.

Failure modes: a failed all-reduce leaves the pseudo-gradient as it was; it is posted again after a
meeting. A joint call fails on all members alike; all begin their meeting again. An exception of a
signal handler or an observer ends the call, while the all-reduce continues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.quantization import Format
from pccl_backend.state_sync import StateSync, SyncInfo
from pccl_backend.topology import Topology
from pccl_backend.trainers._signals import HeldSignals
from pccl_backend.trainers.bases import Bases
from pccl_backend.trainers.core import Core
from pccl_backend.trainers.exchange import (
    Exchange,
    Gathering,
    Message,
    OnLoss,
    Outcome,
    Share,
    ended_before_call,
)
from pccl_backend.trainers.observer import Observer
from pccl_backend.trainers.stages import Action, Delta, Goal, Progress

__all__ = ["MEMBERS_CHANGED", "PROGRESS", "Copies", "Engine", "Strategy"]

log = logging.getLogger("pccl")

T = TypeVar("T")
Strategy = Literal["enforce_popular", "receive_only"]

# Errors that mean only a change of the members: the trainer meets again and repeats.
MEMBERS_CHANGED = (pccl.PeerLostError, pccl.MembershipChangedError)

PROGRESS = "progress"  # the core's part of the shared state, by name


class Copies(Protocol):
    """A trainer's copies of the model; `Replica` documents the methods."""

    outcome: Outcome
    inner_steps: int
    strict: bool
    doubtful: int

    @property
    def message(self) -> Message: ...
    def shared(self) -> dict[str, torch.Tensor]: ...
    def settings(self) -> str: ...
    def number(self) -> int: ...
    def difference(self, outcome: Outcome) -> str: ...
    def follows(self, outcome: Outcome) -> bool: ...
    def own(self) -> dict[str, torch.Tensor]: ...
    def begin(self) -> None: ...
    def measure(self) -> Share: ...
    def turn(self) -> Share: ...
    def landed(self, outcome: Outcome) -> None: ...
    def apply(self) -> None: ...
    def load(self) -> None: ...
    def interrupted(self) -> None: ...
    def failed(self) -> None: ...
    def hold(self) -> None: ...
    def adopt(self) -> Share | None: ...
    def take(self) -> None: ...
    def restart(self) -> None: ...


class Engine:
    """The core of one trainer, its calls to the group, and their results.

    Args:
        trainer: passed to the observer.
        core: decides on the next action.
        make: makes the trainer's copies of the present model.
        bases: the tensors that the peers do not share; None: they share all.
        more: further tensors of the shared state, by name.
        waits: is called before each wait for other peers.

    Attributes:
        strategy: of the next sync_shared_state.
        topology: result of the last update_topology; None if the only meeting began with SYNC.
        info: result of the last sync_shared_state; None before the first one.
        joined, left: names of the peers that joined and left since the trainer last cleared them.
        reduce_s: see OuterStep.
        saving_s: duration of this trainer's own work in seconds: see TimeSpent.saving.
        attempts: number of times that the last outer step was posted.
        corrections: see OuterStep.
        late_s: duration of the first sync in seconds; see Core.late.
        received: whether the first sync brought this peer the others' state.
    """

    def __init__(
        self,
        trainer: Any,
        core: Core,
        make: Callable[[Core], Copies],
        *,
        signals: HeldSignals,
        observer: Observer,
        tag: str,
        group: dist.ProcessGroup | None,
        bases: Bases | None,
        more: Mapping[str, torch.Tensor],
        on_loss: OnLoss,
        quantize: Format | None,
        waits: Callable[[], None],
    ) -> None:
        self._trainer = trainer
        self._make = make
        self._signals = signals
        self._observer = observer
        self._tag = tag
        self.group = group
        self._bases = bases
        self._more = more
        self._on_loss = on_loss
        self._quantize = quantize
        self._waits = waits
        self.core = core
        self.read_model()
        self._announced = False
        self._share = Share(0.0, False, 0)
        self._posted_at = 0.0
        self.strategy: Strategy = "enforce_popular"
        self.topology: Topology | None = None
        self.info: SyncInfo | None = None
        self.joined: tuple[str, ...] = ()
        self.left: tuple[str, ...] = ()
        self.saving_s = self.reduce_s = self.late_s = 0.0
        self.attempts = self.corrections = 0
        self.received = False

    def read_model(self) -> None:
        """Begin with the present model: the peers have not agreed on a state yet."""
        for name in ("copies", "_exchange", "state"):
            vars(self).pop(name, None)  # two copies might not fit
        self.copies = self._make(self.core)
        if self._bases is not None:
            self._bases.read()
        self._progress = torch.zeros(4, dtype=torch.int64, device="cpu")
        self._exchange = Exchange(
            self.copies.message,
            signals=self._signals,
            tag=self._tag,
            on_loss=self._on_loss,
            strict=self.copies.strict,
            quantize=self._quantize,
        )
        self.state = pccl.SharedState(self._shared(), revision=0)
        self._lent: StateSync | None = None  # a SYNC that continues in the background

    def _shared(self) -> dict[str, torch.Tensor]:
        return {**self.copies.shared(), PROGRESS: self._progress, **self._more}

    def look_up(self) -> None:
        """Share the present tensors of model and optimizers: the program may have replaced some."""
        tensors = self._shared()
        if _places(tensors) != _places(self.state):
            self.state = pccl.SharedState(tensors, revision=self.state.revision)

    def resume(self, revision: int) -> None:
        """Treat the shared state's tensors, which were just loaded, as an agreed state."""
        self.core.resume(revision, Progress.of(self._progress.tolist()))
        self.state.revision = revision

    @property
    def has_landed(self) -> bool:
        """Whether the all-reduce in flight has finished."""
        work = self._exchange.work
        return self.core.delta is Delta.FLYING and work is not None and work.is_completed()

    def run(self, goal: Goal, *, until: Action | None = None) -> None:
        """Carry out actions until the goal, or up to `until`. If it raised, call it again."""
        self._announced = False
        self.copies.begin()
        self.core.want(goal)
        try:
            while (action := self.core.next()) not in (None, until):
                assert action is not None
                if action is Action.APPLY or (action is Action.TURN and self.core.fused):
                    self._require_settings()
                self._carry_out(action)
        except BaseException:
            self.copies.interrupted()
            raise

    def leave(self) -> None:
        """End the outer step in flight, and begin again as a newcomer with the present model."""
        self.core.end_call()
        try:
            while self.core.delta in (Delta.FLYING, Delta.MEAN, Delta.APPLIED):
                self.core.want(Goal.RECEIVE)
                action = self.core.next()
                assert action is not None, "the outer step is in flight"
                self._carry_out(action)
            self.settle()
        except pccl.PcclError:
            pass  # the local copy still contains the learning
        self._lent = None
        self._exchange.forget()
        self.core.leave()
        if self.info is not None:  # otherwise it has not begun, and may hold a loaded state
            self.copies.restart()
        self.joined = self.left = ()

    def settle(self) -> None:
        """Wait until all members have the last shared state: a newcomer may still fetch it."""
        if self.core.lent:
            self._settle()

    # --- The actions ------------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        match action:
            case Action.TURN:
                fused = self.core.fused
                self._share = self._save(self.copies.turn)
                self.core.turned(inner_steps=self.copies.outcome.inner_steps if fused else None)
            case Action.POST:
                self._post()
            case Action.AWAIT:
                self._await()
            case Action.APPLY:
                self._save(self.copies.apply)
                self.core.applied(inner_steps=self.copies.outcome.inner_steps)
            case Action.LOAD:
                self._save(self.copies.load)
                self.core.did(Action.LOAD)
            case Action.UPDATE:
                self._update()
            case Action.SYNC:
                self._sync()
            case Action.SETTLE:
                self._settle()

    def _post(self) -> None:
        if self.core.blocking:
            self._share = self._save(self.copies.measure)
        if not self._announced:
            self._tell(self._observer.before_reduce)
            self._announced = True
        self.core.posting()
        try:
            self._exchange.post(
                self.core.fragment,
                self._share,
                settings=self.copies.number(),
                base=0 if self._bases is None else self._bases.number,
                group=self.group,
            )
        except pccl.PcclError as error:
            self._reduction_failed(error, was_over=False)
            return
        self._posted_at = time.monotonic()
        self.core.did(Action.POST)
        self._tell(self._observer.reduce_posted, self.core.attempts)

    def _await(self) -> None:
        work = self._exchange.work
        assert work is not None, "it was posted"
        try:
            self._wait(self._exchange.wait)
        except pccl.PcclError as error:
            self._reduction_failed(error, was_over=ended_before_call(work))
            return
        self.reduce_s = time.monotonic() - self._posted_at
        before, outcome = self.copies.outcome, self._exchange.read(self.core.fragment)
        if outcome.unlike and self.copies.strict:
            self._repeat_without(outcome)
            return
        comparison = self._compare(outcome)
        self.copies.landed(outcome)
        self.attempts = self.core.attempts
        self.core.did(Action.AWAIT)
        fresh = [name for name in outcome.unlike if name not in before.unlike]
        if fresh and not outcome.refused:
            log.warning(
                "%s: other settings than those of this peer (%s). They must be equal on all peers",
                ", ".join(fresh),
                self.copies.settings(),
            )
        self._tell(self._observer.reduce_committed, self.core.attempts)
        if comparison is not None:
            self._warn_of_bases(comparison)

    def _compare(self, outcome: Outcome) -> Gathering | None:
        """Begin to send the hashes of the unshared tensors, if the others do so, too."""
        bases = self._bases
        if bases is None or not bases.is_due(outcome.bases):
            return None
        counts = bases.number != 0
        try:
            return self._exchange.gather(bases.table(), counts=counts, group=self.group)
        except pccl.PcclError:
            return None  # a peer was lost: the others compare in their next outer step

    def _warn_of_bases(self, comparison: Gathering) -> None:
        assert self._bases is not None, "there is something to compare"
        try:
            self._wait(comparison.wait)
        except pccl.PcclError:
            return  # a peer was lost, as in _compare()
        if text := self._bases.difference(comparison.others()):
            log.warning("%s", text)

    def _repeat_without(self, outcome: Outcome) -> None:
        """Drop an outer step with unlike messages. All peers meet and send again, or raise."""
        text = self.copies.difference(outcome)
        goes_on = self.copies.follows(outcome)
        self.copies.failed()
        if self.core.reduce_failed(members_changed=goes_on, was_over=False):
            raise ValueError(text)
        log.info("%s", text)

    def _require_settings(self) -> None:
        """Raise ValueError if this peer's settings differ from the settings of most peers."""
        if self.copies.outcome.refused:
            raise ValueError(self.copies.difference(self.copies.outcome))

    def _reduction_failed(self, error: pccl.PcclError, *, was_over: bool) -> None:
        """Prepare to repeat the all-reduce: no peer has applied it, and no learning is lost."""
        self._exchange.forget()
        self.copies.failed()
        changed = isinstance(error, MEMBERS_CHANGED)
        attempts = self.core.attempts
        raises = self.core.reduce_failed(members_changed=changed, was_over=was_over)
        if changed or not raises:
            self._tell(self._observer.reduce_failed, attempts, error)
        if raises:
            raise error

    def _update(self) -> None:
        self._tell(self._observer.before_meet)
        self._hold()
        topology = self._call(partial(pccl.update_topology, group=self.group))
        if topology is None:
            return
        self.topology = topology
        if topology.joined and self._bases is not None:
            self._bases.read_again()
        self.core.updated(joined=bool(topology.joined))
        self.joined += topology.joined
        self.left += topology.left
        if topology.left:
            log.warning(
                "%s left the run: training goes on, and the group has %d peers now",
                ", ".join(topology.left),
                topology.world_size,
            )
        self._tell(self._observer.topology_updated, self.topology)

    def _sync(self) -> None:
        self._hold()
        self.look_up()
        doubtful = self.copies.doubtful
        if doubtful and len(self.copies.outcome.sound & self._names()) >= doubtful:
            self.strategy = "receive_only"
        self.state.revision, offer = self.core.offer()
        self._progress.copy_(torch.tensor(offer.values(), device="cpu"))
        is_new = not self.core.started
        before = time.monotonic()
        info = self._share_state()
        if info is None:
            return
        if is_new:
            self.late_s = time.monotonic() - before
            self.received = info.rx_bytes > 0
        progress = Progress.of(self._progress.tolist())
        self.core.synced(self.state.revision, progress, goes_on=self._lent is not None)
        if is_new or info.rx_bytes > self._progress.nbytes:
            self._share = self.copies.adopt() or self._share
        self.info, self.strategy, self.copies.doubtful = info, "enforce_popular", 0
        self.corrections += info.drifted
        self._tell(self._observer.state_synced, info)

    def _names(self) -> set[str]:
        return {member.peer for member in pccl.run_info(self.group).members}

    def _share_state(self) -> SyncInfo | None:
        """Return the result of the sync once this peer has the state; others may still fetch it."""
        sync: Any = partial(
            pccl.sync_shared_state, self.state, strategy=self.strategy, group=self.group
        )
        if not self.core.may_go_on:
            return self._call(sync)
        begin: Callable[[], StateSync] = partial(sync, async_op=True)
        begun = self._call(begin)
        if begun is None or begun.receives:
            return None if begun is None else self._call(begun.wait)
        self._lent = begun
        return SyncInfo(revision=begun.revision, hash=begun.hash, tx_bytes=0, rx_bytes=0)

    def _settle(self) -> None:
        sync = self._lent
        assert sync is not None, "the core says that something is lent"
        try:
            self._wait(sync.wait)
        except pccl.PcclError as error:
            self._lent = None
            changed = isinstance(error, MEMBERS_CHANGED)
            if self.core.call_failed(members_changed=changed):
                raise
        else:
            self._lent = None
            self.core.did(Action.SETTLE)

    def _hold(self) -> None:
        if self.info is not None:  # before the first sync, the model counts, not its learning
            self.copies.hold()

    def _call(self, joint: Callable[[], T]) -> T | None:
        """Make a joint call; None if members changed: then the core begins the meeting again."""
        try:
            return self._wait(joint)
        except MEMBERS_CHANGED:
            if self.core.call_failed(members_changed=True):
                raise
            return None
        except BaseException:
            if self._signals.begun:  # otherwise this peer was interrupted before the call
                self.core.call_failed(members_changed=False)
            raise

    def _wait(self, call: Callable[[], T]) -> T:
        self._waits()
        return self._signals.wait(call)

    def _save(self, work: Callable[[], T]) -> T:
        before = time.monotonic()
        try:
            return work()
        finally:
            self.saving_s += time.monotonic() - before

    def _tell(self, event: Callable[..., None], *what: object) -> None:
        self._signals.wait(partial(event, self._trainer, *what))


def _places(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[object, ...]]:
    """Return address, strides and dtype of each tensor."""
    return {name: (t.data_ptr(), t.stride(), t.dtype) for name, t in tensors.items()}
