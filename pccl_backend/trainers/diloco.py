"""DiLoCo: train alone for a while, then agree (https://arxiv.org/abs/2311.08105).

Every peer holds two copies of the model: the *global* parameters, bit-identical on all peers, and
its own *local* ones. It takes H ordinary steps on the local copy with an optimizer of its own.
Then comes an *outer step*: the pseudo-gradient ``global - local`` is averaged over all peers, one
step of SGD with Nesterov momentum moves the global parameters by it, and everybody starts again
from there. The network is used once in H steps: training over the internet becomes affordable.

**Who calls what, when.** Joint calls must be made by all members in the same order, and a newcomer
must fall into that order on its own. One rule is enough: *after every update_topology comes
sync_shared_state*. A newcomer is admitted inside the members' update_topology, so the next thing
they do is the first thing it does:

    member     all_reduce   outer step   update_topology ┐
    newcomer   init_process_group ..... returns here ... ┴ sync_shared_state   H steps   all_reduce

**When a peer is lost** the running all-reduce fails on all survivors alike and leaves the
pseudo-gradient as it was. They call update_topology and sync_shared_state, as above, and run the
same all-reduce again without the lost peer: no inner step is repeated. A newcomer that is admitted
at that moment takes its H steps first and the members' all-reduce waits for it, once.

**In any dtype** a peer that took no inner step has a pseudo-gradient of exactly zero. The global
parameters are float32 or wider, the local copy begins from their rounding, and the pseudo-gradient
is measured from there.

**After an exception** call the same method again, whatever was raised and wherever it came from, as
a timeout, Ctrl-C or an observer's exception. The trainer knows how far it is (`Stage`) and goes on
from there: each outer step is applied once, and each inner step counts once. Inner steps may be
taken in between. They count in this outer step as long as its all-reduce has not begun or has
failed, and in the next one after that. `revision` says whether an outer step has been applied.
After a joint call that failed, all members begin their meeting anew with update_topology, so that
they find together again. A peer that is out of the run (KickedError, MasterLostError) joins again
with init_process_group and calls `start`; what it has learned counts in its next outer step.

**Shared** is what an outer step changes: the global parameters and the outer momentum. The inner
optimizer and the model's buffers (a batch norm's running statistics, say) are each peer's own. The
trainer's copies live in host memory, three times the parameters in float32: they are used once in
H steps, and a GPU's memory stays the model's. After a call that was interrupted while its
all-reduce ran there is one more copy of the parameters, until the call is repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend import _C
from pccl_backend.trainers._buffers import Buffers, trainable
from pccl_backend.trainers._meeting import ATTEMPTS_MAX, MEMBERS_CHANGED, Meeting, Strategy
from pccl_backend.trainers._signals import HeldSignals
from pccl_backend.trainers.observer import Observer, OuterStep

__all__ = ["ATTEMPTS_MAX", "DiLoCo", "Observer", "OuterStep", "Strategy"]

START_FIRST = "call start() first, right after init_process_group"


class Stage(Enum):
    """How far a trainer is: each stage is entered when all that is said of it is true.

    A call that raised leaves the trainer in one of these, and a repeated one goes on from there.
    """

    NEW = auto()  # no sync has agreed on globals: those of the model count, as it is then
    LOCAL = auto()  # what was learned is in the local copy; it may be measured again and again
    POSTED = auto()  # the all-reduce runs: the pseudo-gradient is lent to it, `_work` knows its end
    REDUCED = auto()  # the pseudo-gradient is the average, on all peers; the globals are the old
    APPLIED = auto()  # the globals, the momentum and the revision are the new
    LOADED = auto()  # the local copy began from the new globals; the meeting is left


@dataclass
class _Round:
    """An outer step that is not done yet."""

    begun: bool = False
    announced: bool = False
    met_before: bool = False  # right before the last all-reduce
    attempts: int = 0
    contributors: int = 0
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def ended_before_call(work: object) -> bool:
    """Return whether an operation was settled for all members when this one called it."""
    return isinstance(work, dist.Work) and _C.ended_before_call(work)


class DiLoCo:
    """The outer half of DiLoCo for one model in one peer group. Use it from one thread.

    Args:
        model: all its trainable parameters take part, on whatever device. `start` reads them: what
            is loaded into the model before that is used.
        outer_lr: learning rate of the outer SGD. Equal on all peers.
        outer_momentum: its Nesterov momentum, 0 for none. Equal on all peers.
        tag: the tag of its all-reduces. Equal on all peers.
        group: the process group; the default one unless given.
        observer: is told what happens.

    Raises:
        ValueError: no trainable parameter, or a setting out of range.

    Example:
        >>> inner = torch.optim.AdamW(model.parameters(), lr=3e-4)
        >>> outer = DiLoCo(model)  # all of this first: the others wait for a newcomer's start()
        >>> dist.init_process_group("pccl", init_method="pccl://host:48148/my-run")
        >>> outer.start()
        >>> while outer.revision < 1000:
        ...     for _ in range(100):
        ...         loss(model, next(batches)).backward()
        ...         inner.step()
        ...         inner.zero_grad()
        ...     outer.step()
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        tag: str = "diloco",
        group: dist.ProcessGroup | None = None,
        observer: Observer | None = None,
    ) -> None:
        if not outer_lr > 0:
            raise ValueError(f"outer_lr is {outer_lr}; it must be above 0")
        if not 0 <= outer_momentum < 1:
            raise ValueError(f"outer_momentum is {outer_momentum}; it must be in [0, 1)")
        trainable(model)  # now rather than in start()
        self._model = model
        self._outer_lr = outer_lr
        self._outer_momentum = outer_momentum
        self._tag = tag
        self._group = group
        self._observer = observer or Observer()

        self._stage = Stage.NEW
        self._signals = HeldSignals()
        self._buffers: Buffers  # since the first start(), as _state
        self._state: pccl.SharedState | None = None
        self._round = _Round()
        self._work: dist.Work | None = None
        self._was_over = False  # the last all-reduce, for the others, when it was called here
        # The local parameters as they were measured, if a call was interrupted after that.
        self._measured: list[torch.Tensor] | None = None

        self._member: tuple[object, ...] = ()  # our name in the run, as of the last start()
        self._meeting = Meeting(
            self,
            observer=self._observer,
            signals=self._signals,
            group=group,
            updated=self._topology_updated,
            agreed=self._state_agreed,
        )

    @property
    def revision(self) -> int:
        """How many outer steps the global parameters have behind them, over all peers' lives."""
        return 0 if self._state is None else self._state.revision

    @property
    def pseudo_gradient(self) -> torch.Tensor:
        """The buffer that the all-reduce averages in place: lent to it while it runs.

        Raises:
            InvalidStateError: start() was not called yet.
        """
        if self._state is None:
            raise pccl.InvalidStateError(f"there is no pseudo-gradient yet: {START_FIRST}")
        return self._buffers.pseudo_gradient

    def start(self, *, strategy: Strategy = "enforce_popular") -> pccl.SyncInfo:
        """Take the run's global parameters; call it once, right after init_process_group.

        The founders of a run may come with different parameters and leave with the same. A peer
        that comes later gets what the others have trained.

        If it raised, call it again: until it has succeeded, the model counts as it is at that time.
        After joining the run anew, call it again too. It keeps what this peer has learned since its
        last outer step, which then counts in the next one.

        Args:
            strategy: "receive_only" says that this peer's own parameters count for nothing. Give it
                when the run is known to be under way.

        Raises:
            PcclError: what sync_shared_state and update_topology raise, except for lost peers.
        """
        with self._signals:
            self._note_membership()
            if self._meeting.met is not None:  # the call raised when all of this was done
                return self._end_meeting()[1]
            if self._stage is Stage.NEW:
                self._buffers = Buffers(self._model)
                self._state = pccl.SharedState(self._buffers.shared(), revision=0)
            else:
                self._buffers.measure()
            assert self._state is not None
            self._meeting.join_in(self._state, strategy)
            return self._end_meeting()[1]

    def step(self) -> OuterStep:
        """Average what the peers have learned, move the global parameters, start from them.

        Ends with `meet`, so newcomers get in here. All peers must call it equally often.

        If it raised, call it again: it goes on with the same outer step. Inner steps in between
        are allowed; the top of this module says where they count. Only what is raised at the very
        end of the call, as Ctrl-C can be, comes after the outer step is done: `revision` tells.

        Raises:
            InvalidStateError: start() comes first, also after joining the run anew.
            PcclError: what all_reduce, update_topology and sync_shared_state raise, except for
                lost peers: those cost time, not the step.
        """
        with self._signals:
            self._require_start()
            if self._stage is Stage.LOCAL:
                self._meeting.met = None  # left by a start() or meet() that raised at its end
            if self._stage is Stage.LOADED:
                self._buffers.measure()  # inner steps since
            if not self._round.begun:
                self._round = _Round(begun=True)
            self._round.announced = False
            while self._stage is not Stage.LOADED:
                self._advance()
            if self._meeting.met is None:
                self._hold_meeting()
            done = self._round
            topology, synced = self._end_meeting()
            assert topology is not None, "a step ends with a whole meeting"
            return OuterStep(
                revision=self.revision,
                contributors=done.contributors,
                attempts=done.attempts,
                world_size=topology.world_size,
                joined=done.joined,
                left=done.left,
                synced=synced,
            )

    def meet(self) -> tuple[pccl.Topology, pccl.SyncInfo]:
        """Joint: admit newcomers, drop the lost, and make sure that all hold the same bits.

        `step` does it. Call it yourself to wait for company before the first step::

            while outer.revision == 0 and dist.get_world_size() < 3:
                time.sleep(0.1)
                outer.meet()

        If it raised, call it again. Called after a `step` that raised, it ends that step first if
        its all-reduce has begun.

        Raises:
            InvalidStateError: start() comes first, also after joining the run anew.
            PcclError: what update_topology and sync_shared_state raise, except for lost peers.
        """
        with self._signals:
            self._require_start()
            self._settle()
            if self._meeting.met is None or self._meeting.met[0] is None:
                self._buffers.measure()
                self._hold_meeting()
            topology, synced = self._end_meeting()
            assert topology is not None, "a meeting begins with update_topology"
            return topology, synced

    # --- The outer step: each of these is one transition -----------------------------------------

    def _advance(self) -> None:
        """Go on by one stage, or back to LOCAL where the all-reduce has failed."""
        try:
            match self._stage:
                case Stage.LOCAL:
                    self._post()
                case Stage.POSTED:
                    self._await_reduction()
                case Stage.REDUCED:
                    self._apply()
                case Stage.APPLIED:
                    self._load()
                case _:
                    raise AssertionError(self._stage)
        except BaseException:
            # Inner steps may come before the next call. They are not in the all-reduce that runs:
            # to find them, one has to know where they began.
            if self._stage in (Stage.POSTED, Stage.REDUCED) and self._measured is None:
                self._measured = self._buffers.copy_local()
            raise

    def _post(self) -> None:
        self._round.met_before = self._meeting.due
        self._was_over = False
        if self._meeting.due:
            self._buffers.measure()
            self._hold_meeting()
            self._meeting.met = None
        self._buffers.measure()
        if not self._round.announced:
            self._tell(self._observer.before_reduce)
            self._round.announced = True
        self._round.attempts += 1
        try:
            self._work = pccl.all_reduce(
                self._buffers.pseudo_gradient,
                op="avg",
                tag=self._tag,
                group=self._group,
                async_op=True,
            )
        except pccl.PcclError as error:
            self._reduction_failed(error)
            return
        self._stage = Stage.POSTED
        self._tell(self._observer.reduce_posted, self._round.attempts)

    def _await_reduction(self) -> None:
        assert self._work is not None, "it was posted"
        try:
            self._signals.wait(self._work.wait)
        except pccl.PcclError as error:
            self._was_over = ended_before_call(self._work)
            self._reduction_failed(error)
            return
        self._round.contributors = dist.get_world_size(self._group)
        self._work = None
        self._stage = Stage.REDUCED
        self._tell(self._observer.reduce_committed, self._round.attempts)

    def _reduction_failed(self, error: pccl.PcclError) -> None:
        """Nothing has happened, on any peer: what was learned is still in the local copy."""
        self._stage = Stage.LOCAL
        self._work = self._measured = None
        members_changed = isinstance(error, MEMBERS_CHANGED)
        # If the others have met with us and are past this all-reduce, the next one is theirs. In
        # one more meeting we would only wait for each other.
        are_past_it = not members_changed and self._round.met_before and self._was_over
        self._meeting.broken = not are_past_it
        if not members_changed and not are_past_it:
            raise error
        self._tell(self._observer.reduce_failed, self._round.attempts, error)
        if self._round.attempts % ATTEMPTS_MAX == 0:
            raise error

    def _apply(self) -> None:
        # Signals are held and nothing here allocates or waits: all of it happens, or nothing.
        self._buffers.apply_outer_step(lr=self._outer_lr, momentum=self._outer_momentum)
        assert self._state is not None
        self._state.revision += 1
        self._stage = Stage.APPLIED

    def _load(self) -> None:
        if self._measured is not None:
            self._buffers.measure_since(self._measured)
            self._measured = None
        self._buffers.load()
        self._stage = Stage.LOADED

    def _settle(self) -> None:
        """End an all-reduce that has begun, well or not."""
        while self._stage in (Stage.POSTED, Stage.REDUCED, Stage.APPLIED):
            self._advance()

    # --- Around it -------------------------------------------------------------------------------

    def _hold_meeting(self) -> None:
        """REQUIRES: the pseudo-gradient is what the local copy has learned beyond the globals."""
        assert self._state is not None
        self._meeting.hold(self._state, "enforce_popular")

    def _topology_updated(self, topology: pccl.Topology) -> None:
        self._round.joined += topology.joined
        self._round.left += topology.left

    def _state_agreed(self, info: pccl.SyncInfo) -> None:
        """Begin from the globals, if they are not those that the local copy began from."""
        if self._stage is Stage.NEW or info.rx_bytes > 0:
            self._buffers.load()
        if self._stage is Stage.NEW:
            self._stage = Stage.LOCAL

    def _end_meeting(self) -> tuple[pccl.Topology | None, pccl.SyncInfo]:
        """Return its result, once. A round that has come so far is over with it."""
        met, self._meeting.met = self._meeting.met, None
        assert met is not None
        if self._stage is Stage.LOADED:
            self._stage = Stage.LOCAL
            self._round = _Round()
        return met

    def _require_start(self) -> None:
        if self._stage is Stage.NEW:
            raise pccl.InvalidStateError(f"there are no global parameters yet: {START_FIRST}")
        if self._name() != self._member:
            raise pccl.InvalidStateError(f"this process has joined the run anew: {START_FIRST}")

    def _name(self) -> tuple[object, ...]:
        """Return a name of this peer that no other membership has, in no other run either."""
        info = pccl.run_info(self._group)
        return tuple(info.get(key) for key in ("master", "run", "peer"))

    def _note_membership(self) -> None:
        """Forget the meetings of an earlier membership, but end an all-reduce of its."""
        member = self._name()
        if member == self._member:
            self._settle()
            return
        with contextlib.suppress(pccl.PcclError):  # it failed: what was learned stays here
            self._settle()
        self._member = member
        self._meeting.forget()
        if self._stage is Stage.LOADED:
            self._stage = Stage.LOCAL
        self._round = _Round()

    def _tell(self, event: Callable[..., None], *what: object) -> None:
        self._signals.wait(partial(event, self, *what))
