"""Engine: carries out what the core of a trainer decides.

Happy path of a blocking outer step: POST measures what was learned and begins the all-reduce, AWAIT
waits for it, APPLY moves the global parameters, LOAD brings them into the model, UPDATE and SYNC
meet the other peers. Each action either happens, or raises and leaves everything as it was; a call
that raised is repeated from there.

Failure modes: an all-reduce that failed left the pseudo-gradient as it was; it is posted again
after a meeting. A joint call that failed did so on all members; all begin their meeting again with
update_topology. An exception of a signal handler or an observer stops the call between two actions,
while the all-reduce goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.trainers._signals import HeldSignals
from pccl_backend.trainers.core import Action, Core, Delta, Goal, Progress, Then
from pccl_backend.trainers.exchange import Exchange, Outcome, Share, ended_before_call
from pccl_backend.trainers.flat import Buffers, Piece
from pccl_backend.trainers.observer import Observer
from pccl_backend.trainers.outer import Nesterov, Rule, TorchRule
from pccl_backend.trainers.settings import Settings

if TYPE_CHECKING:
    from pccl_backend.trainers.diloco import DiLoCo

__all__ = ["MEMBERS_CHANGED", "Engine", "Strategy"]

T = TypeVar("T")
Strategy = Literal["enforce_popular", "receive_only"]

# Errors that mean only a change of the members: meet again and repeat.
MEMBERS_CHANGED = (pccl.PeerLostError, pccl.MembershipChangedError)

PROGRESS = "progress"  # the core's part of the shared state, by name


class Engine:
    """The buffers of one trainer, its calls to the group, and their results.

    Attributes:
        core: decides.
        strategy: of the next sync_shared_state.
        topology: of the meeting that `core.met` speaks of; None if it began with SYNC.
        info: its sync.
        outcome: of the last round that has landed.
        joined, left: peers that came and went since they were last taken.
        waited_s, reduce_s: see OuterStep.
        inner_steps: inner steps that this peer has taken.
        attempts: number of times that the last round was posted.
    """

    def __init__(
        self,
        trainer: DiLoCo,
        model: torch.nn.Module,
        settings: Settings,
        *,
        signals: HeldSignals,
        observer: Observer,
        tag: str,
        group: dist.ProcessGroup | None,
        more: Mapping[str, torch.Tensor],
    ) -> None:
        self._trainer = trainer
        self._model = model
        self._settings = settings
        self._signals = signals
        self._observer = observer
        self._tag = tag
        self.group = group
        self._more = more
        self.core = Core(
            overlap=settings.overlap_steps,
            every=settings.steps_every,
            fragments=settings.fragments,
        )
        self.read_model()
        self._learned = False  # whether the buffer holds what the local copy has learned
        self._kept = False  # carry: whether the local copy was kept when the last round was sent
        self._announced = False
        self._share = Share(0.0, False, 0)
        # Steps and amount when each fragment was last sent, and when it was last measured.
        self._sent = [(0, 0.0)] * settings.fragments
        self._measured_at = (0, 0.0)
        # A copy of the local parameters at the interruption of a call whose all-reduce had begun.
        self._interrupted: list[torch.Tensor] | None = None
        self._posted_at = 0.0
        self.strategy: Strategy = "enforce_popular"
        self.topology: pccl.Topology | None = None
        self.info: pccl.SyncInfo | None = None
        self.outcome = Outcome(0, (), 0)
        self.joined: tuple[str, ...] = ()
        self.left: tuple[str, ...] = ()
        self.waited_s = self.reduce_s = 0.0
        self.inner_steps = 0
        self.attempts = 0

    def read_model(self) -> None:
        """Begin with the model as it is: nothing has been agreed on yet."""
        settings = self._settings
        self.buffers = Buffers(
            self._model,
            fragments=settings.fragments,
            keeps_local=settings.mix == "carry",
            average=settings.buffers == "average",
        )
        self._rule = self._make_rule()
        self._progress = torch.zeros(4, dtype=torch.int64)
        self._exchange = Exchange(
            self.buffers, signals=self._signals, tag=self._tag, group=self.group
        )
        self.state = pccl.SharedState({**self._shared(), **self._more}, revision=0)
        self._agreed = (0, Progress())  # revision and progress of the last SYNC

    def resume(self, revision: int) -> None:
        """Take the shared state's tensors, which were just loaded, for what was agreed on."""
        self.core.progress = _from_tensor(self._progress)
        self._agreed = (revision, self.core.progress)
        self.state.revision = revision

    @property
    def has_landed(self) -> bool:
        """Whether the all-reduce in flight has finished."""
        work = self._exchange.work
        return self.core.delta is Delta.FLYING and work is not None and work.is_completed()

    def run(self, goal: Goal) -> None:
        """Do what the goal needs. If it raised, call it again."""
        self._announced = False
        self._learned = False
        self.core.want(goal)
        try:
            while (action := self.core.next()) is not None:
                self._carry_out(action)
        except BaseException:
            # The caller may take inner steps before the next call. The running all-reduce does not
            # include them. To find them later, keep the parameters from which they begin.
            flies = self.core.delta in (Delta.FLYING, Delta.MEAN)
            if self.core.blocking and flies and self._interrupted is None:
                self._interrupted = self.buffers.copy_local(self.core.fragment)
            raise

    def leave(self) -> None:
        """End the round in flight.

        Raises:
            PcclError: it has failed; what was learned is still in the local copy.
        """
        self.core.end_call()
        while self.core.delta in (Delta.FLYING, Delta.MEAN, Delta.APPLIED):
            self.core.want(Goal.RECEIVE)
            action = self.core.next()
            assert action is not None, "the round is in flight"
            self._carry_out(action)

    def restart(self) -> None:
        """Begin as a newcomer that has this model."""
        self._exchange.forget()
        self.core.leave()
        self._kept = self._learned = False
        self._interrupted = None
        self.joined = self.left = ()

    # --- The actions ------------------------------------------------------------------------------

    def _carry_out(self, action: Action) -> None:
        match action:
            case Action.TURN:
                self._turn()
            case Action.POST:
                self._post()
            case Action.AWAIT:
                self._await()
            case Action.APPLY:
                self._move(self.buffers.fragments[self.core.fragment])
                self.core.applied(inner_steps=self.outcome.inner_steps)
            case Action.LOAD:
                self._load()
            case Action.UPDATE:
                self._update()
            case Action.SYNC:
                self._sync()

    def _turn(self) -> None:
        fragment = self.core.fragment
        alpha = self._settings.alpha
        if self.core.fused:
            self.buffers.swap(
                fragment,
                self._move,
                piecewise=isinstance(self._rule, Nesterov),
                alpha=alpha,
                kept=self._kept,
            )
            self.buffers.write_counters()
            inner_steps = self.outcome.inner_steps
            self._weigh(fragment)
            self.core.turned(inner_steps=inner_steps)
        else:
            self.buffers.measure(fragment)
            if alpha is None:
                self.buffers.keep(fragment)
            elif self._settings.mix == "delay":
                self.buffers.mix(fragment, 0.0)
            self._weigh(fragment)
            self.core.turned(inner_steps=None)
        self._kept = alpha is None

    def _post(self) -> None:
        fragment = self.core.fragment
        if self.core.blocking:
            self.buffers.measure(fragment)
            self._learned = False
            self._weigh(fragment)
        if not self._announced:
            self._tell(self._observer.before_reduce)
            self._announced = True
        self.core.posting()
        try:
            self._exchange.post(fragment, self._share)
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
            self._wait(work.wait)
        except pccl.PcclError as error:
            self._reduction_failed(error, was_over=ended_before_call(work))
            return
        self.reduce_s = time.monotonic() - self._posted_at
        fragment = self.core.fragment
        self.outcome = self._exchange.read(fragment)
        self._sent[fragment] = self._measured_at
        self.attempts = self.core.attempts
        self.core.did(Action.AWAIT)
        self._tell(self._observer.reduce_committed, self.core.attempts)

    def _reduction_failed(self, error: pccl.PcclError, *, was_over: bool) -> None:
        """No peer applied anything: what was learned is still here."""
        self._exchange.forget()
        self._interrupted = None
        changed = isinstance(error, MEMBERS_CHANGED)
        attempts = self.core.attempts
        raises = self.core.reduce_failed(members_changed=changed, was_over=was_over)
        if raises and not changed:
            raise error
        self._tell(self._observer.reduce_failed, attempts, error)
        if raises:
            raise error

    def _load(self) -> None:
        fragment = (self.core.progress.rounds - 1) % self._settings.fragments
        if self.core.blocking:
            if self._interrupted is not None:
                self.buffers.measure_since(fragment, self._interrupted)
                self._interrupted = None
            else:
                self.buffers.delta(fragment).zero_()
            self.buffers.load(fragment)
            self._learned = self._settings.fragments == 1
        elif self._settings.alpha is None:
            self.buffers.carry(fragment)
            self._kept = False
        else:
            self.buffers.mix(fragment, self._settings.alpha)
        if fragment == 0:
            self.buffers.write_counters()
        self.core.did(Action.LOAD)

    def _update(self) -> None:
        self._tell(self._observer.before_meet)
        self._hold_what_was_learned()
        topology = self._call(partial(pccl.update_topology, group=self.group))
        if topology is None:
            return
        self.topology = topology
        self.core.did(Action.UPDATE)
        self.joined += self.topology.joined
        self.left += self.topology.left
        self._tell(self._observer.topology_updated, self.topology)

    def _sync(self) -> None:
        self._hold_what_was_learned()
        revision, agreed = self._agreed
        offer = self.core.offer()
        self._progress.copy_(_to_tensor(offer))
        self.state.revision = revision + (offer != agreed)
        is_new = not self.core.started
        info = self._call(
            partial(pccl.sync_shared_state, self.state, strategy=self.strategy, group=self.group)
        )
        if info is None:
            return
        progress = _from_tensor(self._progress)
        self._agreed = (self.state.revision, progress)
        self.core.synced(progress)
        if is_new or info.rx_bytes > self._progress.nbytes:
            self._adopt()
        self.info, self.strategy = info, "enforce_popular"
        self._tell(self._observer.state_synced, info)

    # --- Parts of them ----------------------------------------------------------------------------

    def _move(self, pieces: Sequence[Piece]) -> None:
        """Move the globals of some pieces of one fragment; their pseudo-gradient is used up."""
        if self.outcome.contributors == 0:
            return
        fragment = self.core.fragment
        rounds = self.core.progress.rounds
        first = self.buffers.spans[fragment][0]
        theirs, delta = self.buffers.global_, self.buffers.delta(fragment)
        moved = [piece for piece in pieces if not piece.is_buffer]
        if moved:
            start, stop = moved[0].start, moved[-1].stop
            step = delta[start - first : stop - first]
            if isinstance(self._rule, Nesterov):
                self._rule.apply(theirs[start:stop], step, start=start, rounds=rounds)
            else:
                self._rule.apply_fragment(fragment, step)
        for piece in pieces:
            if piece.is_buffer:
                part = slice(piece.start - first, piece.stop - first)
                theirs[piece.start : piece.stop].sub_(delta[part])

    def _weigh(self, fragment: int) -> None:
        """Scale the pseudo-gradient by this peer's weight."""
        weight = self._settings.weight
        amount = float(weight()) if callable(weight) else 0.0
        self._measured_at = (self.inner_steps, amount)
        steps_before, amount_before = self._sent[fragment]
        steps = self.inner_steps - steps_before
        by = {"equal": 1.0, "steps": float(steps)}
        share = amount - amount_before if callable(weight) else by[weight]
        delta = self.buffers.delta(fragment)
        low, high = delta.aminmax() if len(delta) else (torch.zeros(()), torch.zeros(()))
        sick = not bool(low.isfinite() & high.isfinite())
        if sick or (self.core.blank and not bool(low) and not bool(high)):
            share = 0.0
        share = torch.tensor(share, dtype=delta.dtype).item()
        if share == 0:
            delta.zero_()
        elif share != 1:
            delta.mul_(share)
        if sick and not self.core.blocking:
            self.buffers.adopt(fragment=fragment)
            if self._settings.alpha is None:
                self.buffers.keep(fragment)
        self._share = Share(share, sick, steps)

    def _hold_what_was_learned(self) -> None:
        """Measure what the local copy has learned, so that a sync can put it onto other globals."""
        holds = self.core.delta is Delta.FREE and self._settings.fragments == 1
        if holds and not self._learned and self.info is not None:
            self.buffers.measure(0)
            self._learned = True

    def _adopt(self) -> None:
        """Continue from the globals that were received."""
        if self._learned:
            self.buffers.load(0)
            self.buffers.write_counters()
        else:
            self.buffers.adopt()
        if self.core.blank:  # what was learned stays in the local copy, and is sent later
            self.buffers.delta(self.core.fragment).zero_()
            self._share = Share(0.0, False, 0)
            self._learned = False
        if self._settings.alpha is None and self.core.delta is Delta.OWN:
            self.buffers.keep(self.core.fragment)
            self._kept = True

    def _make_rule(self) -> Rule:
        settings, flat = self._settings, self.buffers.global_
        if settings.outer_optimizer is None:
            return Nesterov(
                lr=settings.outer_lr,
                momentum=settings.outer_momentum,
                count=len(flat),
                dtype=flat.dtype,
            )
        stops = [
            max(piece.stop for piece in pieces if not piece.is_buffer)
            for pieces in self.buffers.fragments
        ]
        starts = [start for start, _ in self.buffers.spans]
        cuts = [flat[start:stop] for start, stop in zip(starts, stops, strict=True)]
        return TorchRule(settings.outer_optimizer, cuts)

    def _shared(self) -> dict[str, torch.Tensor]:
        state = self.buffers.shared()
        if isinstance(self._rule, Nesterov):
            momentum = self.buffers.by_parameter(self._rule.momentum)
            state |= {f"momentum/{name}": view for name, view in momentum}
        else:
            state |= self._rule.state()
        return {**state, PROGRESS: self._progress}

    def _call(self, joint: Callable[[], T]) -> T | None:
        """Make a joint call; None if members changed, so that the core begins the meeting again."""
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
        before = time.monotonic()
        try:
            return self._signals.wait(call)
        finally:
            self.waited_s += time.monotonic() - before

    def _tell(self, event: Callable[..., None], *what: object) -> None:
        self._signals.wait(partial(event, self._trainer, *what))


def _to_tensor(progress: Progress) -> torch.Tensor:
    then = progress.then.value
    return torch.tensor([progress.rounds, then, progress.position, progress.inner_steps])


def _from_tensor(tensor: torch.Tensor) -> Progress:
    rounds, then, position, inner_steps = tensor.tolist()
    return Progress(rounds, Then(then), position, inner_steps)
