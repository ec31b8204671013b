"""DiLoCo: train alone for a while, then agree (https://arxiv.org/abs/2311.08105).

Every peer holds two copies of the model: the *global* parameters, bit-identical on all peers, and
its own *local* ones. The peer takes H ordinary steps on the local copy with its own optimizer. Then
comes an *outer step*: the pseudo-gradient ``global - local`` is averaged over all peers, one step
of SGD with Nesterov momentum moves the global parameters by it, and all peers continue from the new
global parameters. The network is used once in H steps: training over the internet becomes
affordable.

**Order of calls.** All members must make the joint calls in the same order, and a newcomer must
join that order without help. One rule is enough: *sync_shared_state follows every update_topology*.
A newcomer is admitted inside the members' update_topology. Therefore the members' next call is also
the newcomer's first call:

    member     all_reduce   outer step   update_topology ┐
    newcomer   init_process_group ..... returns here ... ┴ sync_shared_state   H steps   all_reduce

**When a peer is lost**, the running all-reduce fails on all survivors alike and leaves the
pseudo-gradient as it was. The survivors call update_topology and sync_shared_state, as above, and
run the same all-reduce again without the lost peer. No inner step is repeated. If a newcomer is
admitted at that moment, it takes its H steps first, and the members' all-reduce waits for it once.

**In any dtype**, a peer that took no inner step has a pseudo-gradient of exactly zero. The global
parameters are float32 or wider. The local copy begins with their rounded values, and the
pseudo-gradient is measured from those values.

**After an exception**, call the same method again. This holds for every exception, for example a
timeout, Ctrl-C or an observer's exception. The trainer remembers its progress (`Stage`) and
continues from there: each outer step is applied once, and each inner step counts once. The caller
may take inner steps in between. They count in this outer step if its all-reduce has not begun or
has failed; otherwise they count in the next one. `revision` tells whether an outer step has been
applied. After a failed joint call, all members begin their meeting again with update_topology, so
that their calls match again. A peer that is out of the run (KickedError, MasterLostError) joins
again with init_process_group and calls `start`. Its learning since its last outer step counts in
its next one.

**Shared state** is what an outer step changes: the global parameters and the outer momentum. The
inner optimizer and the model's buffers (for example, a batch norm's running statistics) belong to
each peer alone. The trainer's copies are in host memory and take three times the parameters in
float32. They are used once in H steps, so a GPU's memory stays free for the model. If a call was
interrupted while its all-reduce ran, there is one more copy of the parameters until the call is
repeated.
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
    """The progress of a trainer. A stage is entered when its whole description is true.

    A call that raised leaves the trainer in one of these stages; a repeated call continues there.
    """

    NEW = auto()  # no sync has agreed on globals: the model's current parameters count
    LOCAL = auto()  # the learning is in the local copy; it may be measured repeatedly
    POSTED = auto()  # the all-reduce runs on the borrowed pseudo-gradient; `_work` has its outcome
    REDUCED = auto()  # the pseudo-gradient is the average, on all peers; the globals are the old
    APPLIED = auto()  # the globals, the momentum and the revision are the new
    LOADED = auto()  # the local copy began from the new globals; only the meeting remains


@dataclass
class _Round:
    """An outer step that is not finished."""

    begun: bool = False
    announced: bool = False
    met_before: bool = False  # whether a meeting came right before the last all-reduce
    attempts: int = 0
    contributors: int = 0
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def ended_before_call(work: object) -> bool:
    """Return whether an operation was settled for all members before this member called it."""
    return isinstance(work, dist.Work) and _C.ended_before_call(work)


class DiLoCo:
    """The outer half of DiLoCo for one model in one peer group. Use it from one thread.

    Args:
        model: the model. All its trainable parameters take part, on any device. `start` reads them,
            so parameters that are loaded into the model before `start` are used.
        outer_lr: learning rate of the outer SGD. Equal on all peers.
        outer_momentum: its Nesterov momentum, 0 for none. Equal on all peers.
        tag: the tag of its all-reduces. Equal on all peers.
        group: the process group; the default one unless given.
        observer: receives the trainer's events.

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
        trainable(model)  # raises now rather than in start()
        self._model = model
        self._outer_lr = outer_lr
        self._outer_momentum = outer_momentum
        self._tag = tag
        self._group = group
        self._observer = observer or Observer()

        self._stage = Stage.NEW
        self._signals = HeldSignals()
        self._buffers: Buffers  # exists after the first start(), as _state does
        self._state: pccl.SharedState | None = None
        self._round = _Round()
        self._work: dist.Work | None = None
        self._was_over = False  # whether the failed all-reduce was settled before the call here
        # A copy of the local parameters at the interruption of a call whose all-reduce had begun.
        self._measured: list[torch.Tensor] | None = None

        self._member: tuple[object, ...] = ()  # this peer's name at the last start()
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
        """Number of outer steps that the global parameters have had, over all peers' lives."""
        return 0 if self._state is None else self._state.revision

    @property
    def pseudo_gradient(self) -> torch.Tensor:
        """The buffer that the all-reduce averages in place and borrows while it runs.

        Raises:
            InvalidStateError: start() was not called yet.
        """
        if self._state is None:
            raise pccl.InvalidStateError(f"there is no pseudo-gradient yet: {START_FIRST}")
        return self._buffers.pseudo_gradient

    def start(self, *, strategy: Strategy = "enforce_popular") -> pccl.SyncInfo:
        """Take the run's global parameters; call it once, right after init_process_group.

        The founders of a run may bring different parameters; all get the same. A peer that comes
        later gets the parameters that the others have trained.

        If the call raised, call it again. Until it has succeeded, the model's current parameters
        count. After joining the run again, call it again too. It keeps this peer's learning since
        its last outer step; that learning counts in the next one.

        Args:
            strategy: "receive_only" says that this peer's own parameters do not count. Give it if
                the run is known to be under way.

        Raises:
            PcclError: any error of sync_shared_state and update_topology, except for lost peers.
        """
        with self._signals:
            self._note_membership()
            if self._meeting.met is not None:  # an earlier call raised after all of this was done
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
        """Average the peers' learning, move the global parameters, and continue from them.

        The step ends with `meet`, which admits newcomers. All peers must call `step` equally often.

        If the call raised, call it again: it continues the same outer step. Inner steps in between
        are allowed; the docstring of this module says where they count. An exception at the very
        end of the call, for example Ctrl-C, may come after the outer step is done. Check
        `revision` to find out.

        Raises:
            InvalidStateError: start() comes first, also after joining the run again.
            PcclError: any error of all_reduce, update_topology and sync_shared_state, except for
                lost peers: those cost time, not the step.
        """
        with self._signals:
            self._require_start()
            if self._stage is Stage.LOCAL:
                self._meeting.met = None  # left by a start() or meet() that raised at its end
            if self._stage is Stage.LOADED:
                self._buffers.measure()  # includes inner steps taken since
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
        """Admit newcomers, remove lost peers, and make sure that all hold the same bits. Joint.

        `step` does it. Call it yourself to wait for other peers before the first step::

            while outer.revision == 0 and dist.get_world_size() < 3:
                time.sleep(0.1)
                outer.meet()

        If the call raised, call it again. After a `step` that raised, `meet` first ends that step's
        all-reduce if it has begun.

        Raises:
            InvalidStateError: start() comes first, also after joining the run again.
            PcclError: any error of update_topology and sync_shared_state, except for lost peers.
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

    # --- The outer step: each of these methods is one transition ---------------------------------

    def _advance(self) -> None:
        """Advance by one stage, or return to LOCAL if the all-reduce has failed."""
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
            # The caller may take inner steps before the next call. The running all-reduce does not
            # include them. To find them later, keep the parameters from which they begin.
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
        """Return to LOCAL. No peer applied anything: the learning is still in the local copy."""
        self._stage = Stage.LOCAL
        self._work = self._measured = None
        members_changed = isinstance(error, MEMBERS_CHANGED)
        # If the others have met with this peer and are past this all-reduce, the next all-reduce is
        # the one they wait in. In one more meeting, both sides would only wait for each other.
        are_past_it = not members_changed and self._round.met_before and self._was_over
        self._meeting.broken = not are_past_it
        if not members_changed and not are_past_it:
            raise error
        self._tell(self._observer.reduce_failed, self._round.attempts, error)
        if self._round.attempts % ATTEMPTS_MAX == 0:
            raise error

    def _apply(self) -> None:
        # Signals are delayed, and nothing is allocated after the first change: either all of it
        # happens, or none of it.
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
        """End an all-reduce that has begun, whether it succeeds or fails."""
        while self._stage in (Stage.POSTED, Stage.REDUCED, Stage.APPLIED):
            self._advance()

    # --- Around the outer step -------------------------------------------------------------------

    def _hold_meeting(self) -> None:
        """REQUIRES: the pseudo-gradient is the local copy's learning beyond the globals."""
        assert self._state is not None
        self._meeting.hold(self._state, "enforce_popular")

    def _topology_updated(self, topology: pccl.Topology) -> None:
        self._round.joined += topology.joined
        self._round.left += topology.left

    def _state_agreed(self, info: pccl.SyncInfo) -> None:
        """Load the globals, if they are not the ones from which the local copy began."""
        if self._stage is Stage.NEW or info.rx_bytes > 0:
            self._buffers.load()
        if self._stage is Stage.NEW:
            self._stage = Stage.LOCAL

    def _end_meeting(self) -> tuple[pccl.Topology | None, pccl.SyncInfo]:
        """Return the meeting's result, once. A round whose globals are loaded ends with it."""
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
        """Return a name of this peer that is unique among all memberships of all runs."""
        info = pccl.run_info(self._group)
        return tuple(info.get(key) for key in ("master", "run", "peer"))

    def _note_membership(self) -> None:
        """Forget the meetings of an earlier membership, but end its all-reduce."""
        member = self._name()
        if member == self._member:
            self._settle()
            return
        with contextlib.suppress(pccl.PcclError):  # if it failed, the learning remains local
            self._settle()
        self._member = member
        self._meeting.forget()
        if self._stage is Stage.LOADED:
            self._stage = Stage.LOCAL
        self._round = _Round()

    def _tell(self, event: Callable[..., None], *what: object) -> None:
        self._signals.wait(partial(event, self, *what))
