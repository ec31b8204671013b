"""Core: decides a trainer's next action. It knows no tensor, no group and no clock.

The trainer asks `next` for an action, carries it out, and reports its end: `did`, `reduce_failed`
or `call_failed`. If an action raised without a report, `next` returns the same action again.
So a call of the trainer that raised continues where it stopped.

An *outer step* averages one fragment of the model and moves it. With overlap 0 an outer step is
finished within one boundary, and each POST measures it again. Otherwise it is in flight while inner
steps are taken:

    blocking     POST  AWAIT  APPLY  LOAD  UPDATE  SYNC
    overlapped   [AWAIT  APPLY  LOAD]  TURN  UPDATE  SYNC  POST     ... AWAIT  APPLY  LOAD

TURN measures the next fragment to send. If the outer step in flight concerns the same fragment,
TURN also applies and loads that outer step: the new pseudo-gradient must be measured before the
outer step changes the parameters ("send before receive at the same step").

After a meeting that has admitted a newcomer, the SYNC of a boundary continues in the background:
the newcomer fetches the state while the others continue. The shared tensors are lent meanwhile, so
the others SETTLE before they write these tensors or meet again:

    blocking     ... UPDATE  SYNC     POST  SETTLE  AWAIT  APPLY ...
    overlapped   TURN  UPDATE  SYNC  POST     SETTLE  AWAIT  APPLY  LOAD

No outer step is in flight during UPDATE and SYNC. Therefore the shared state is complete at each
SYNC, and a newcomer joins with one SYNC. The shared state contains the members' next step
(`Progress.then`): in an overlapped run, and after a loss, they POST at once, and so does the
newcomer, with weight 0. If the others continued while it fetched the state, it is `late`: it takes
fewer inner steps, so that they do not wait for it at the next boundary.

A failed outer step is posted again after UPDATE and SYNC (a *repair*).
"""

from __future__ import annotations

from dataclasses import replace

from pccl_backend.trainers.stages import Action, Boundary, Delta, Goal, Progress, Then

__all__ = ["ATTEMPTS_MAX", "Core"]

# Maximum number of posts of one outer step. Each repetition follows a change of the members, so
# more would be no progress.
ATTEMPTS_MAX = 32


class Core:
    """The decisions of one trainer.

    Args:
        overlap: inner steps between POST and AWAIT; 0: a blocking trainer; None: until the
            all-reduce has finished, at most until the next boundary.
        every: inner steps of a cycle; each fragment is sent once in a cycle. None: boundaries come
            from outside.
        fragments: number of fragments.
        lends: whether the shared tensors may be lent to a SYNC while inner steps are taken.

    Attributes:
        progress: the shared progress; `then` and `position` are as of the last SYNC.
        delta: the content of the pseudo-gradient's buffer.
        steps: inner steps since the last boundary.
        attempts: number of times that the outer step was posted.
        blank: whether this peer was admitted in the middle of this outer step.
        met: whether a meeting has ended, and no call has returned its result yet.
        started: whether this peer holds the same state as the others.
        lent: whether a SYNC continues in the background.
        late: whether the others took inner steps while this peer fetched the state; until the next
            boundary.
    """

    def __init__(
        self, *, overlap: int | None, every: int | None, fragments: int, lends: bool = True
    ) -> None:
        self._overlap = overlap
        self._every = every
        self._fragments = fragments
        self._lends = lends
        self._goal: Goal | None = None
        self._boundary = Boundary.NONE
        self._meeting: Action | None = None  # the call of a meeting that comes next
        self._repair = False  # whether the meeting follows a failure
        # `_repaired`: the last meeting followed a failure, and no POST came since.
        # `_flight_repaired`: the same of the last meeting before the last POST.
        self._repaired = self._flight_repaired = False
        self._tries = 0  # failed calls of a meeting
        self._whole = False  # whether the meeting began with UPDATE
        self._joined = False  # whether that UPDATE has admitted a newcomer
        self.progress = Progress()
        # Revision and progress of the last SYNC, and of the SYNC before it.
        self._agreed = self._agreed_before = (0, self.progress)
        self.delta = Delta.FREE
        self.steps = self.attempts = 0
        self.blank = self.met = self.started = self.lent = self.late = False

    @property
    def blocking(self) -> bool:
        return self._overlap == 0

    @property
    def fragment(self) -> int:
        """The fragment of the outer step in flight, or of the next outer step."""
        return self.progress.outer_steps % self._fragments

    @property
    def fused(self) -> bool:
        """Whether TURN applies the outer step that has landed."""
        return self.delta is Delta.MEAN and self._fragments == 1

    @property
    def closing(self) -> bool:
        """Whether a blocking boundary lacks only its meeting, or the return of its result."""
        return self._boundary in (Boundary.LOADED, Boundary.DONE)

    @property
    def between(self) -> bool:
        """Whether inner steps are next: no boundary is unfinished."""
        return self._boundary is Boundary.NONE

    # --- Decisions -------------------------------------------------------------------------------

    def want(self, goal: Goal) -> None:
        """Begin a call of the trainer, or continue one that raised."""
        if goal is Goal.STEP and self._boundary is Boundary.NONE:
            self._boundary = Boundary.BEGUN
            self.met = self.late = False
            if self.blocking:
                self.attempts = 0
        if goal is Goal.START and not self.started and self._meeting is None:
            self._meeting = Action.SYNC  # a newcomer is admitted in the others' update_topology
        if goal is Goal.MEET and not self._whole:
            self.met = False
        self._goal = goal

    def next(self) -> Action | None:
        """Return the next action; None if the call has reached its goal."""
        action = self._of_the_flight() or self._meeting or self._of_the_boundary()
        if action is None and self._goal is Goal.MEET and not self.met:
            action = Action.UPDATE
        return Action.SETTLE if self.lent and action not in (None, Action.POST) else action

    def _of_the_flight(self) -> Action | None:
        """Return the action that ends the outer step in flight, if this call ends it."""
        match self.delta:
            case Delta.FLYING if self._lands:
                return Action.AWAIT
            case Delta.MEAN:
                turns = self._boundary is Boundary.BEGUN and not self.blocking and self.fused
                return Action.TURN if turns else Action.APPLY
            case Delta.APPLIED:
                return Action.LOAD
            case _:
                return None

    def _of_the_boundary(self) -> Action | None:
        """Return the action that advances the boundary, or posts a failed outer step again."""
        if self._boundary is Boundary.BEGUN and self._steps_on:
            turns = not self.blocking and self.delta is Delta.FREE
            return Action.TURN if turns else Action.POST
        return Action.POST if self.delta is Delta.OWN else None

    @property
    def _lands(self) -> bool:
        """Whether the call ends the outer step in flight."""
        if self._goal is Goal.START:
            return self._boundary is Boundary.BEGUN
        return self._boundary is not Boundary.DONE

    @property
    def may_go_on(self) -> bool:
        """Whether the next SYNC may continue while this peer takes inner steps.

        All members that have started have the same value.
        """
        meets = self._boundary in (Boundary.LOADED, Boundary.TURNED)
        return self._lends and self._joined and self.started and meets

    @property
    def _steps_on(self) -> bool:
        """Whether the call passes the boundary. A blocking `meet` leaves it to `step`."""
        return self._goal is not Goal.MEET or not self.blocking

    # --- Reports ---------------------------------------------------------------------------------

    def inner_step(self, *, due: bool = False, landed: bool = False) -> Goal | None:
        """Count an inner step, and return the goal of the call that it needs.

        Args:
            due: whether the boundary is due by the clock, for a trainer with a timedelta, or one
                that is late.
            landed: whether the all-reduce has finished, for a trainer without a fixed overlap.
        """
        self.steps += 1
        if not self.between:
            return Goal.STEP
        if due or (self._every is not None and self.steps >= self.interval):
            return Goal.STEP
        if self.delta in (Delta.OWN, Delta.MEAN, Delta.APPLIED):  # a call has raised
            return Goal.RECEIVE
        if self.delta is Delta.FLYING:
            arrives = landed if self._overlap is None else self.steps >= self._overlap
            return Goal.RECEIVE if arrives else None
        return None

    @property
    def interval(self) -> int:
        """Inner steps from the last boundary to the next one."""
        assert self._every is not None
        flies = self.delta in (Delta.FLYING, Delta.OWN, Delta.MEAN)
        place = (self.progress.outer_steps + (flies and not self.blocking)) % self._fragments
        return (place + 1) * self._every // self._fragments - place * self._every // self._fragments

    def did(self, action: Action) -> None:
        """The action is done. APPLY, a fused TURN, UPDATE and SYNC have their own methods."""
        match action:
            case Action.POST:
                self.delta = Delta.FLYING
                self.blank = False
                self._flight_repaired, self._repaired = self._repaired, False
                if self._boundary is Boundary.TURNED:
                    self._boundary = Boundary.DONE
                    self.steps = self.progress.position
            case Action.AWAIT:
                self.delta = Delta.MEAN
            case Action.TURN:
                self.delta = Delta.OWN
                self.attempts = 0
                self._boundary = Boundary.TURNED
                self._meeting = Action.UPDATE
            case Action.LOAD:
                self.delta = Delta.FREE
                if self._boundary is Boundary.BEGUN and self.blocking:
                    self._boundary = Boundary.LOADED
                    self._meeting = Action.UPDATE
            case Action.SETTLE:
                self.lent = False
            case _:
                raise AssertionError(action)

    def updated(self, *, joined: bool) -> None:
        """UPDATE is done; `joined`: it has admitted a newcomer."""
        self._meeting = Action.SYNC
        self._whole, self._joined = True, joined

    def applied(self, *, inner_steps: int) -> None:
        """APPLY is done; `inner_steps`: the peers' inner steps for it, on average."""
        self._count(inner_steps)
        self.delta = Delta.APPLIED

    def turned(self, *, inner_steps: int | None) -> None:
        """TURN is done; `inner_steps`: as for `applied`, or None if TURN has only measured."""
        if inner_steps is not None:
            self._count(inner_steps)
        self.did(Action.TURN)

    def posting(self) -> None:
        """POST begins. It counts as an attempt even if it fails."""
        self.attempts += 1

    def _count(self, inner_steps: int) -> None:
        outer_steps, steps = self.progress.outer_steps + 1, self.progress.inner_steps + inner_steps
        self.progress = replace(self.progress, outer_steps=outer_steps, inner_steps=steps)

    def offer(self) -> tuple[int, Progress]:
        """Return revision and progress to share in the next SYNC.

        The revision is the number of the last SYNC, or one more if the progress has changed since.
        """
        revision, agreed = self._agreed
        progress = self._offered_progress()
        return revision + (progress != agreed), progress

    def _offered_progress(self) -> Progress:
        then, position = Then.STEPS, 0
        if not self.started:
            return (
                self.progress
            )  # unchanged if no outer step was applied since this peer was a member
        if self.delta is Delta.OWN:
            overdue = self._boundary is Boundary.BEGUN
            then = Then.POST_NOW if self.may_go_on else Then.POST
            then = Then.FINISH if overdue else then
            if self._boundary is Boundary.NONE:
                position = self._overlap or 0
        elif self._boundary is Boundary.BEGUN:
            then = Then.FINISH
        elif self.may_go_on:
            then = Then.STEPS_NOW
        return Progress(self.progress.outer_steps, then, position, self.progress.inner_steps)

    def resume(self, revision: int, progress: Progress) -> None:
        """Begin with an agreed state of a run. The members take inner steps next."""
        self._agreed = self._agreed_before = (revision, progress)
        self.progress = replace(progress, then=Then.STEPS, position=0)

    def synced(self, revision: int, agreed: Progress, *, goes_on: bool = False) -> None:
        """SYNC is done: all members share the same state, or fetch it.

        Args:
            revision: of the shared state.
            agreed: the progress in it.
            goes_on: whether the SYNC continues in the background, because others fetch the state.
        """
        assert not goes_on or self.may_go_on
        self._agreed_before, self._agreed = self._agreed, (revision, agreed)
        self.progress = agreed
        self.lent, self._joined = goes_on, False
        self._meeting = None
        self._tries = 0
        self._repaired, self._repair = self._repair, False
        self.met = True
        if self._boundary is Boundary.LOADED:
            self._boundary = Boundary.DONE
            self.steps = 0
        if not self.started:
            self._come_in(agreed)

    def _come_in(self, agreed: Progress) -> None:
        """Put a newcomer into the same place of the outer step as the others."""
        self.started = True
        self.steps = 0
        self.late = agreed.then in (Then.STEPS_NOW, Then.POST_NOW)
        if agreed.then in (Then.STEPS, Then.STEPS_NOW):
            return
        self.blank = True
        self.attempts = 0
        if not self.blocking:
            self.delta = Delta.OWN
        ends = agreed.then is Then.FINISH
        self._boundary = Boundary.BEGUN if ends else Boundary.TURNED

    def reduce_failed(self, *, members_changed: bool, was_over: bool) -> bool:
        """POST or AWAIT failed for all members. Return whether the caller must raise the error.

        Args:
            members_changed: whether the error means only a change of the members; then the peers
                meet again and repeat.
            was_over: whether the all-reduce had ended before this peer called it.
        """
        self.delta = Delta.FREE if self.blocking else Delta.OWN
        # `past`: the others met with this peer, passed this all-reduce after that, and now wait in
        # the next all-reduce. So this peer does not meet again, but posts: in a meeting it would
        # wait for the others, while they wait for it.
        repaired = self._flight_repaired or self._repaired
        past = not members_changed and repaired and was_over
        if not past:
            self._meeting, self._repair = Action.UPDATE, True
        return (not members_changed and not past) or self.attempts % ATTEMPTS_MAX == 0

    def call_failed(self, *, members_changed: bool) -> bool:
        """UPDATE, SYNC or SETTLE failed for all members. Return whether the caller must raise."""
        self._meeting, self._repair = Action.UPDATE, True
        if self.lent:
            self._agreed = self._agreed_before  # the group has not recorded that revision
        self.lent = self._joined = False
        self._tries += 1
        return not members_changed or self._tries % ATTEMPTS_MAX == 0

    def end_call(self) -> None:
        """The call returns its result."""
        self.met = self._whole = False
        if self._boundary is Boundary.DONE:
            self._boundary = Boundary.NONE

    def leave(self) -> None:
        """This peer is out of the run: drop the unfinished outer step, and keep the counters."""
        self._goal = self._meeting = None
        self._boundary = Boundary.NONE
        self._repair = self._repaired = self._whole = self.met = self.started = False
        self.lent = self.late = self._joined = False
        self._tries = 0
        self.delta = Delta.FREE
