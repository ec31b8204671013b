"""DiLoCo: train alone for a while, then agree (https://arxiv.org/abs/2311.08105).

Every peer holds two copies of the model: the *global* parameters, bit-identical on all peers, and
its own *local* ones. The peer takes H ordinary steps on the local copy with its own optimizer. Then
an *outer step* follows: the pseudo-gradient ``global - local`` is averaged over all peers, one step
of SGD with Nesterov momentum moves the global parameters by it, and all peers continue from them.

**Overlap.** With `overlap=0` the peers wait while the average travels. With `overlap=5` they take
five more inner steps meanwhile, and then mix the new global parameters with their own
(`mix`). With `fragments=4` the model travels in four parts, one after another: "streaming DiLoCo"
(https://arxiv.org/abs/2501.18512). All of these are settings of one engine.

**Order of calls.** All members must make the joint calls in the same order, and a newcomer must
join that order without help. One rule is enough: *sync_shared_state follows every update_topology*.
A newcomer is admitted inside the members' update_topology. Therefore the members' next call is also
the newcomer's first call:

    member     all_reduce   outer step   update_topology ┐
    newcomer   init_process_group ..... returns here ... ┴ sync_shared_state   H steps   all_reduce

The shared state contains the members' next step. If it is an all-reduce (in a run that overlaps,
and after a loss), the newcomer takes part at once, with weight 0, and delays no other peer.

**Training continues during a join.** While a newcomer fetches the state, the others take inner
steps. They do not write the global parameters until their next average arrives. Only if the
newcomer has not finished by then, they wait for it. The newcomer takes fewer inner steps before its
first outer step, by as many as the others have taken meanwhile. With `shared` tensors all wait,
because the program may write these at any time. Programs that call `step` themselves wait in the
next `step`.

**When a peer is lost**, the average continues among the survivors; finished parts keep the lost
peer's contribution (`on_loss="keep"`). If the average cannot continue, it fails on all survivors
alike and leaves the pseudo-gradient as it was. The survivors call update_topology and
sync_shared_state, as above, and run the same all-reduce again. No inner step is repeated.

**In any dtype**, a peer that took no inner step has a pseudo-gradient of exactly zero. The global
parameters are float32 or wider. The local copy begins with their rounded values, and the
pseudo-gradient is measured from those values. A pseudo-gradient that is not finite counts as zero
with weight 0, and `OuterStep.excluded` names the peer.

**After an exception**, for example a timeout or Ctrl-C, call the same method again. The trainer
continues from there: each outer step is applied once, and each inner step counts once. The caller
may take inner steps in between. They count in this outer step if its all-reduce has not begun or
has failed; otherwise they count in the next one. After a failed joint call, all members begin their
meeting again with update_topology, so that their calls match. A peer that is out of the run
(OutOfRunError) joins again and calls `start`. Its learning since its last outer step counts in its
next one.

**A late peer** costs only itself, in a run with `call_timeout` in its URL (PCCL_CALL_TIMEOUT). The
others wait for it up to this timeout, and then take the outer step without it. With `url`, the
trainer of the late peer notices this in its next call, joins again and takes the others' state by
itself (`Observer.came_back`). Without `url`, the call raises KickedError.

**A host of several processes** that share one model (FSDP2) is one peer: give their group as
`host_group`. The host's memory contains the outer state once, with the names and shapes of the
whole model. Each process measures and loads its own shards, and one of them communicates with the
other hosts (host/). Hosts may have different numbers of processes.

**The model keeps its layout** from `start` on: the names, shapes and dtypes of its parameters and
buffers. A call detects a change before this peer sends anything, and raises ValueError. Undo the
change, and call again. Freezing parameters is legal, and so are other tensors under the same names
(layout.py; docs/recipes.md, section 6).

**Shared state** comprises the global parameters, the outer momentum and the model's buffers (for
example, a batch norm's running statistics). An outer step changes all of it. The inner optimizer
and the frozen parameters belong to each peer alone. A warning names the frozen parameters that
differ between the peers (bases.py). A peer whose outer steps give other bits than those of the
others is corrected at each meeting, and named by a warning: `OuterStep.corrections`.

The trainer's copies are in host memory: at most 16 bytes for each parameter, 20 with `mix="carry"`,
and 8 more with `error_feedback=True`. They are used once in H steps, so a GPU's memory stays free
for the model.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.quantization import Format
from pccl_backend.trainers import foreign
from pccl_backend.trainers.bases import Bases
from pccl_backend.trainers.core import ATTEMPTS_MAX, Core
from pccl_backend.trainers.engine import MEMBERS_CHANGED, Engine, Strategy
from pccl_backend.trainers.exchange import OnLoss
from pccl_backend.trainers.flat import Buffers
from pccl_backend.trainers.host.follower import Follower
from pccl_backend.trainers.host.group import Host, check_host, facts_of
from pccl_backend.trainers.host.leader import Leader
from pccl_backend.trainers.host.orders import Status
from pccl_backend.trainers.inner import InnerSteps
from pccl_backend.trainers.layout import Layout
from pccl_backend.trainers.observer import Observer, OuterStep
from pccl_backend.trainers.outer import OuterOptimizer, Rate
from pccl_backend.trainers.pieces import cut
from pccl_backend.trainers.replica import Replica
from pccl_backend.trainers.settings import Mix, Settings, Weight, owned_optimizers
from pccl_backend.trainers.shards import reshard
from pccl_backend.trainers.stages import Goal
from pccl_backend.trainers.trainer import START_FIRST, Trainer, together, tracked

log = logging.getLogger("pccl")

__all__ = ["ATTEMPTS_MAX", "MEMBERS_CHANGED", "DiLoCo", "Observer", "OuterStep", "Strategy"]

T = TypeVar("T")


def _check_on_loss(on_loss: OnLoss, quantize: Format | None) -> None:
    if on_loss not in ("keep", None):
        raise ValueError(f'on_loss is {on_loss!r}; it can be "keep", or None')
    if quantize is not None and on_loss is None:
        raise ValueError(
            f'on_loss is None, and quantize is {quantize}: quantize= needs on_loss="keep", which '
            "tells whose tensors are in the result"
        )


class DiLoCo(Trainer):
    """The outer half of DiLoCo for one model in one peer group. Use it from one thread.

    Give it the inner optimizer and `every`, and put the training loop into its `with` block: outer
    steps then happen inside `optimizer.step()`. Or give neither, and call `start` and `step`. Then
    also call `finish` before the process leaves: a newcomer may still fetch the state from it.

    Args:
        model: the model. All its trainable parameters take part, on any device. `start` reads them,
            so parameters that are loaded into the model before `start` are used.
        optimizer: the inner optimizer, or several of them; their steps are counted. An inner step
            is complete when all of them have stepped, or when one of them has stepped again. They
            may step inside a backward, for example with one optimizer for each parameter; the outer
            step then runs at the end of the backward. None: call `step`.
        every: a number of inner steps; or a timedelta, for peers of unequal speed; or None: call
            `step`. With several fragments, each is sent once in this time.
        outer_lr: learning rate of the outer SGD, or a function of the number of outer steps so far.
            All settings must be equal on all peers. If a peer's settings differ from the settings
            of most peers, each outer step raises ValueError there, and the others log a warning
            that names the peer.
        outer_momentum: its Nesterov momentum, 0 for none.
        outer_optimizer: a function that takes a list of flat tensors and returns a torch optimizer
            over them, in place of the outer SGD.
        fragments: number of parts of the model, which travel one after another.
        overlap: inner steps during which the average travels; "auto": until it has arrived, at most
            until the next outer step; 0: the peers wait for it.
        mix: the share of the local parameters that remains when the average arrives: a number from
            0 to 1, or "carry": all that was learned meanwhile. Or "delay": the next pseudo-gradient
            is measured before this average arrives ("async DiLoCo"). This diverges at the usual
            outer settings. A trainer with an overlap takes 0.5 if `mix` is not given. A trainer
            without an overlap accepts only "delay".
        weight: the weight of a peer: "equal", "steps" (its inner steps), or a function that returns
            the total amount that this peer has processed, for example tokens.
        buffers: "average" the model's float buffers (and take the greatest of integer ones), or
            each peer keeps its "own".
        shared: further tensors that `sync_shared_state` keeps equal, by name.
        on_loss: "keep": if a peer is lost, the elements that were already averaged keep its
            contribution. The other elements are averaged again without it. None: the group's
            policy applies.
        quantize: `MinMax(...)` or `BFloat16()` of `pccl_backend.quantization`: pseudo-gradients
            travel with fewer bytes. All peers hold the same rounded mean. Parameters and buffers
            must be float32 or smaller. It needs on_loss="keep".
        error_feedback: the rounding error of this peer's pseudo-gradient is added to its next one.
            It takes 4 bytes for each parameter, and 4 for each parameter of the largest fragment.
        url: joins this run when the `with` block begins, leaves it at the end, and joins it again
            if the others have removed this peer meanwhile, for example because it was late
            (`call_timeout=60` in the URL).
        tag: the tag of its all-reduces.
        group: the process group; the default one unless given.
        host_group: the group of the processes of this host, if they train one model together. All
            of them make the trainer, with the same settings, and make the same calls of it. Rank 0
            of the group is the leader: it joins by `url`, or gives its `group`. `weight` and the
            model's buffers are the leader's. The timeout of host_group limits the waits within the
            host.
        observer: receives the trainer's events; in a host, the leader's observer receives all of
            them, and the observers of the other processes only `stepped`.

    Raises:
        ValueError: no trainable parameter, or one that no optimizer moves, or a dtype that cannot
            be averaged; a setting out of range, an optimizer of another model, a model that has a
            trainer already, or a DTensor over other processes than host_group.

    Example:
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        >>> with DiLoCo(model, optimizer, every=100, url="pccl://host:48148/my-run"):
        ...     for batch in data:
        ...         loss(model, batch).backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
    """

    _inside = False  # whether an outer step runs, in an inner step
    _counted = False  # whether an inner step was counted
    _steps: InnerSteps | None = None  # within the `with` block
    _host: Host | None = None  # None: the host has one process
    _foreign: str | None = None  # the last optimizer that moved the model, unknown to the trainer

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
        *,
        every: int | timedelta | None = None,
        outer_lr: Rate = 0.7,
        outer_momentum: float = 0.9,
        outer_optimizer: OuterOptimizer | None = None,
        fragments: int = 1,
        overlap: int | Literal["auto"] = 0,
        mix: Mix | None = None,
        weight: Weight = "equal",
        buffers: Literal["average", "own"] = "average",
        shared: Mapping[str, torch.Tensor] | None = None,
        on_loss: OnLoss = "keep",
        quantize: Format | None = None,
        error_feedback: bool = False,
        url: str | None = None,
        tag: str = "diloco",
        group: dist.ProcessGroup | None = None,
        host_group: dist.ProcessGroup | None = None,
        observer: Observer | None = None,
    ) -> None:
        settings = Settings(
            every=every,
            outer_lr=outer_lr,
            outer_momentum=outer_momentum,
            outer_optimizer=outer_optimizer,
            fragments=fragments,
            overlap=overlap,
            mix=mix,
            weight=weight,
            buffers=buffers,
            counts=optimizer is not None,
            quantize=quantize,
            error_feedback=error_feedback,
        )
        _check_on_loss(on_loss, quantize)
        check_host(model, host_group, group=group, url=url, shared=shared)
        optimizers = owned_optimizers(model, optimizer)
        averages = buffers == "average"
        layout = partial(Layout, model, optimizers, buffers=averages, frozen=False)
        now = layout()  # raises now rather than in start()
        now.require_quantizable(quantize)
        cut(now.parameters, now.floats, fragments)
        super().__init__(
            model,
            optimizers,
            core=lambda: Core(
                overlap=settings.overlap_steps,
                every=settings.steps_every,
                fragments=settings.fragments,
                lends=not shared,  # the program may write its own tensors during inner steps
            ),
            copies=lambda core: Replica(self._make_buffers(layout()), settings, core),
            bases=Bases(model, buffers=not averages),
            shared=shared,
            on_loss=on_loss,
            quantize=quantize,
            url=url,
            tag=tag,
            group=group,
            observer=observer,
        )
        self._settings = settings
        self._boundary_at = time.monotonic()
        if host_group is not None:
            self._host = self._make_host(host_group, layout)

    @property
    def revision(self) -> int:
        """Number of outer steps that the global parameters have had, over all peers' lives."""
        return self._host.status.revision if isinstance(self._host, Follower) else super().revision

    @property
    def inner_steps(self) -> int:
        """Mean inner steps of a peer since the run began, for a newcomer's schedule."""
        if isinstance(self._host, Follower):
            return self._host.status.inner_steps
        if self._made is None:
            return 0
        return self._made.core.progress.inner_steps + self._made.core.steps

    @property
    def pseudo_gradient(self) -> torch.Tensor:
        """The buffer that the all-reduce sums in place and borrows while it runs.

        Raises:
            InvalidStateError: start() was not called yet, or another process of the host leads.
        """
        if self._made is None or self._made.info is None:
            raise pccl.InvalidStateError(f"there is no pseudo-gradient yet: {START_FIRST}")
        return self._replica.message.delta(self._made.core.fragment)

    @together
    def step(self) -> OuterStep:
        """Average the peers' learning, move the global parameters, and continue from them.

        The step ends with a meeting, which admits newcomers. All peers take the same outer steps. A
        peer that came back has missed some, so end the loop by `last.revision`, not by a count of
        your own. With `overlap`, the step sends the new pseudo-gradient, and applies the average of
        the previous one.

        If the call raised, call it again: it continues the same outer step. Inner steps in between
        are allowed; see "After an exception" in the docstring of this module. An exception at the
        very end of the call may come after the outer step is done: check `revision`.

        Raises:
            InvalidStateError: start() comes first, also after joining the run again.
            PcclError: any error of all_reduce, update_topology and sync_shared_state, except for
                lost peers: those cost time, not the step.
            ValueError: the settings differ from the settings of most peers, or the model's layout
                has changed since `start`.
        """
        with self._signals:
            while not self._run(Goal.STEP):
                pass  # this peer came back, and takes the others' next step
            return self._end_step(self._engine())

    def finish(self) -> None:
        """Wait for the average in flight, and apply it. The end of the `with` block does it.

        With `overlap`, all members make this call, for example before they save. Without `overlap`,
        it only waits for a newcomer that still fetches the state.

        Raises:
            PcclError: as `meet`.
        """
        if self._steps is not None:
            self._steps.settle()
        self._finish()

    @together
    def _finish(self) -> None:
        with self._signals:
            engine = self._engine()
            if engine.core.blocking and engine.core.between:
                engine.settle()
                return
            if self._run(Goal.MEET):
                self._end_step(engine)

    @contextlib.contextmanager
    def global_parameters(self) -> Iterator[torch.nn.Module]:
        """A `with` block that gives the model the global parameters, for evaluation. Not joint.

        It keeps a copy of the local parameters, and restores them at its end. In a host, each
        process sets its own shard of the model to the global parameters.

        Example:
            >>> with outer.global_parameters():
            ...     validate(model)
        """
        buffers = self._buffers()
        Buffers.check(buffers)  # here, even if HostBuffers would do it everywhere
        with torch.no_grad():
            kept = {name: tensor.clone() for name, tensor in _tensors(self._model)}
            Buffers.adopt(buffers)
        try:
            yield self._model
        finally:
            reshard(self._model)
            with torch.no_grad():
                for name, tensor in _tensors(self._model):
                    tensor.copy_(kept[name])

    def _watch(self) -> list[Any]:
        self._boundary_at = time.monotonic()
        if not self._optimizers:
            return []
        self._steps = InnerSteps(self._model, self._optimizers, self._inner_step)
        watch = foreign.Watch(self._model, self._optimizers, self._warn_of_foreign)
        return [self._steps, watch]

    def _warn_of_foreign(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        if self._foreign is None:
            log.warning(
                "%s, an optimizer that the trainer does not know, moves parameter %r. Only steps "
                "of the trainer's own optimizers count as inner steps: make the optimizers before "
                "the trainer, and give it all that move the model",
                type(optimizer).__name__,
                name,
            )
        self._foreign = type(optimizer).__name__

    def _require_trained(self) -> None:
        if self._foreign is not None and not self._counted:
            raise ValueError(
                f"no optimizer of the trainer has stepped, but {self._foreign} has, which it does "
                "not know: what it has trained was not averaged. Make the optimizers before the "
                "trainer, and give it all that move the model"
            )

    @property
    def _replica(self) -> Replica:
        copies = self._engine().copies
        assert isinstance(copies, Replica)
        return copies

    def _buffers(self) -> Buffers:
        if not isinstance(self._host, Follower):
            return self._replica.message
        if self._host.buffers is None:
            raise pccl.InvalidStateError(f"there are no global parameters yet: {START_FIRST}")
        return self._host.buffers

    def _inner_step(self) -> None:
        """The optimizers have stepped."""
        if self._inside:
            return
        self._counted = True
        goal = self._count() if self._host is None else self._host.choose(self._count)
        if goal is None:
            return
        self._inside = True
        try:
            with self._signals, tracked(), torch.no_grad():
                done = self._reach(goal)
                if done is not None:
                    self._observer.stepped(self, done)
        finally:
            self._inside = False

    def _count(self) -> Goal | None:
        """Count an inner step, and decide what follows."""
        engine = self._made
        assert engine is not None, "the hook was registered after the start"
        engine.copies.inner_steps += 1
        return engine.core.inner_step(
            due=self._is_due(engine),
            landed=self._settings.overlap == "auto" and engine.has_landed,
        )

    def _is_due(self, engine: Engine) -> bool:
        """Return whether the boundary is due, by the clock.

        While this peer fetched the state, the others may have taken inner steps. It estimates their
        number from its own speed.
        """
        seconds, missed = self._settings.seconds_every, engine.late_s if engine.core.late else 0.0
        since = time.monotonic() - self._boundary_at
        if seconds is not None:
            return since + missed >= seconds
        if missed == 0.0 or self._settings.steps_every is None:
            return False
        steps = engine.core.steps + 1  # in `since` seconds
        return steps * (since + missed) >= engine.core.interval * since

    @together
    def _reach(self, goal: Goal) -> OuterStep | None:
        """Reach the goal after an inner step; return the record of an outer step, if one ended."""
        engine = self._engine()  # raises if this process has joined the run anew
        if not self._run(goal):
            return None  # this peer came back, and continues with inner steps
        if goal is Goal.STEP:
            return self._end_step(engine)
        engine.core.end_call()
        return None

    def _end_step(self, engine: Engine) -> OuterStep:
        self._boundary_at = time.monotonic()
        return super()._end_step(engine)

    # --- A host of several processes: host/ -------------------------------------------------------

    def _make_host(self, group: dist.ProcessGroup, layout: Callable[[], Layout]) -> Host:
        settings = self._settings
        facts = facts_of(layout(), settings)
        if dist.get_rank(group) != 0:
            return Follower(
                group,
                facts,
                signals=self._signals,
                build=lambda make: Buffers(layout(), settings, make=make, leads=False),
            )
        return Leader(
            group,
            facts,
            signals=self._signals,
            status=lambda: Status(self.revision, self.inner_steps, self.last),
            leave=self._leave_at_once,
        )

    def _make_buffers(self, layout: Layout) -> Buffers:
        make = Buffers if self._host is None else self._host.make_buffers
        return make(layout, self._settings)

    def _together(self, name: str, call: Callable[[], T]) -> T:
        if self._host is None:
            return call()
        try:
            return self._host.call(name, call)
        finally:
            if isinstance(self._host, Follower):
                self.last = self._host.status.last

    def _waits(self) -> None:
        if isinstance(self._host, Leader):
            self._host.waits()

    def _leave_at_once(self) -> None:
        """Leave the run, because a process of the host is gone. Another thread calls this."""
        if self._group is not None:
            self._group.abort()

    def _close(self, *, orderly: bool) -> None:
        super()._close(orderly=orderly)
        if self._host is not None:
            self._host.close(orderly=orderly)


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()
