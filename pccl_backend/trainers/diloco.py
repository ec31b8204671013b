"""DiLoCo: train alone for a while, then agree (https://arxiv.org/abs/2311.08105).

Every peer holds two copies of the model: the *global* parameters, bit-identical on all peers, and
its own *local* ones. The peer takes H ordinary steps on the local copy with its own optimizer. Then
comes an *outer step*: the pseudo-gradient ``global - local`` is averaged over all peers, one step
of SGD with Nesterov momentum moves the global parameters by it, and all peers continue from the new
global parameters. The network is used once in H steps: training over the internet becomes
affordable.

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

The shared state says what the members do next. If it is an all-reduce, as in a run that overlaps
and after a loss, the newcomer takes part at once, with weight 0, and holds nobody up.

**When a peer is lost**, parts of the average that were finished keep its contribution. If it had
not called the all-reduce, that fails on all survivors alike and leaves the pseudo-gradient as it
was. The survivors call update_topology and sync_shared_state, as above, and run the same all-reduce
again without the lost peer. No inner step is repeated.

**In any dtype**, a peer that took no inner step has a pseudo-gradient of exactly zero. The global
parameters are float32 or wider. The local copy begins with their rounded values, and the
pseudo-gradient is measured from those values. A pseudo-gradient that is not finite counts as zero
with weight 0, and `OuterStep.excluded` names the peer.

**After an exception**, call the same method again. This holds for every exception, for example a
timeout, Ctrl-C or an observer's exception. The trainer remembers its progress and continues from
there: each outer step is applied once, and each inner step counts once. The caller may take inner
steps in between. They count in this outer step if its all-reduce has not begun or has failed;
otherwise they count in the next one. `revision` tells whether an outer step has been applied. After
a failed joint call, all members begin their meeting again with update_topology, so that their calls
match again. A peer that is out of the run (KickedError, MasterLostError) joins again with
init_process_group and calls `start`. Its learning since its last outer step counts in its next one.

**Shared state** is what an outer step changes: the global parameters, the outer momentum and the
model's buffers (for example, a batch norm's running statistics). The inner optimizer belongs to
each peer alone. The trainer's copies are in host memory: at most 16 bytes for each parameter, 20
with `mix="carry"`. They are used once in H steps, so a GPU's memory stays free for the model.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.trainers import checkpoint
from pccl_backend.trainers._signals import HeldSignals
from pccl_backend.trainers.core import ATTEMPTS_MAX, Goal
from pccl_backend.trainers.engine import MEMBERS_CHANGED, Engine, Strategy
from pccl_backend.trainers.flat import trainable
from pccl_backend.trainers.observer import Observer, OuterStep
from pccl_backend.trainers.outer import OuterOptimizer, Rate
from pccl_backend.trainers.settings import Mix, Settings, Weight, claim, owned_optimizers

__all__ = ["ATTEMPTS_MAX", "MEMBERS_CHANGED", "DiLoCo", "Observer", "OuterStep", "Strategy"]

START_FIRST = "call start() first, right after init_process_group"


class DiLoCo:
    """The outer half of DiLoCo for one model in one peer group. Use it from one thread.

    Give it the inner optimizer and `every`, and put the training loop into its `with` block: outer
    steps then happen inside `optimizer.step()`. Or give neither, and call `start` and `step`.

    Args:
        model: the model. All its trainable parameters take part, on any device. `start` reads them,
            so parameters that are loaded into the model before `start` are used.
        optimizer: the inner optimizer, or several of them, whose steps are counted. A step counts
            when the last of them has stepped. None: call `step`.
        every: a number of inner steps; or a timedelta, for peers of unequal speed; or None: call
            `step`. With several fragments, each is sent once in this time.
        outer_lr: learning rate of the outer SGD, or a function of the number of outer steps so far.
            Equal on all peers, as are all settings.
        outer_momentum: its Nesterov momentum, 0 for none.
        outer_optimizer: a function that takes a list of flat tensors and returns a torch optimizer
            over them, in place of the outer SGD.
        fragments: number of parts in which the model travels, one after another.
        overlap: inner steps during which the average travels; "auto": until it has arrived, at most
            until the next outer step; 0: the peers wait for it.
        mix: what remains of the local parameters when the average arrives: a part from 0 to 1, or
            "carry": all that was learned meanwhile. Or "delay": the next average is measured before
            this one arrives ("async DiLoCo"). This diverges at the usual outer settings.
        weight: what a peer counts: "equal", "steps" (its inner steps), or a function that returns
            how much this peer has processed in all, for example tokens.
        buffers: "average" the model's float buffers (and take the greatest of integer ones), or
            each peer keeps its "own".
        shared: further tensors that `sync_shared_state` keeps equal, by name.
        url: joins this run when the `with` block begins, and leaves it at the end.
        tag: the tag of its all-reduces.
        group: the process group; the default one unless given.
        observer: receives the trainer's events.

    Raises:
        ValueError: no trainable parameter, a setting out of range, an optimizer of another model,
            or a model that has a trainer already.

    Example:
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        >>> with DiLoCo(model, optimizer, every=100, url="pccl://host:48148/my-run"):
        ...     for batch in data:
        ...         loss(model, batch).backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
    """

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
        mix: Mix = 0.5,
        weight: Weight = "equal",
        buffers: Literal["average", "own"] = "average",
        shared: Mapping[str, torch.Tensor] | None = None,
        url: str | None = None,
        tag: str = "diloco",
        group: dist.ProcessGroup | None = None,
        observer: Observer | None = None,
    ) -> None:
        named = trainable(model)  # raises now rather than in start()
        self._optimizers = owned_optimizers(model, optimizer)
        self._settings = Settings(
            every=every,
            outer_lr=outer_lr,
            outer_momentum=outer_momentum,
            outer_optimizer=outer_optimizer,
            fragments=fragments,
            overlap=overlap,
            mix=mix,
            weight=weight,
            buffers=buffers,
            counts=bool(self._optimizers),
        )
        if fragments > len(named):
            raise ValueError(
                f"fragments is {fragments}, and the model has {len(named)} trainable parameters: "
                "a fragment has at least one"
            )
        if url is not None and group is not None:
            raise ValueError(f"url is {url!r}, and group= is given, too: give one of them")
        self._model = model
        self._shared = {f"shared/{name}": tensor for name, tensor in (shared or {}).items()}
        self._url = url
        self._tag = tag
        self._group = group
        self._observer = observer or Observer()
        self._signals = HeldSignals()
        self._made: Engine | None = None  # by the first start()
        self._loaded: Mapping[str, Any] | None = None
        self._member: tuple[object, ...] = ()  # this peer's name at the last start()
        self._handle: Any = None
        self._boundary_at = 0.0
        self._sent_bytes = 0
        self._inside = False  # an outer step runs, inside an optimizer's step
        self._closed = False
        self.last: OuterStep | None = None
        self._release: Callable[[], None] = claim(model, self)

    @property
    def revision(self) -> int:
        """Number of outer steps that the global parameters have had, over all peers' lives."""
        return 0 if self._made is None else self._made.core.progress.rounds

    @property
    def inner_steps(self) -> int:
        """Inner steps that a peer has taken since the run began, for a newcomer's schedule.

        This is the mean over the peers, as of the last outer step, plus this peer's own since then.
        """
        if self._made is None:
            return 0
        return self._made.core.progress.inner_steps + self._made.core.steps

    @property
    def pseudo_gradient(self) -> torch.Tensor:
        """The buffer that the all-reduce sums in place and borrows while it runs.

        Raises:
            InvalidStateError: start() was not called yet.
        """
        if self._made is None or self._made.info is None:
            raise pccl.InvalidStateError(f"there is no pseudo-gradient yet: {START_FIRST}")
        return self._made.buffers.delta(self._made.core.fragment)

    # --- The calls --------------------------------------------------------------------------------

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
            MemoryError: the host does not have the memory; the message has the numbers.
            PcclError: any error of sync_shared_state and update_topology, except for lost peers.
        """
        with self._signals:
            self._require_open()
            engine = self._engine_to_start()
            engine.strategy = strategy
            engine.run(Goal.START)
            engine.core.end_call()
            self._boundary_at = time.monotonic()
            assert engine.info is not None
            return engine.info

    def step(self) -> OuterStep:
        """Average the peers' learning, move the global parameters, and continue from them.

        The step ends with a meeting, which admits newcomers. All peers must call `step` equally
        often. With `overlap`, the step sends what was learned, and applies what was sent before.

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
            engine = self._engine()
            engine.run(Goal.STEP)
            return self._end_step(engine)

    def meet(self) -> tuple[pccl.Topology, pccl.SyncInfo]:
        """Admit newcomers, remove lost peers, and make sure that all hold the same bits. Joint.

        `step` does it. Call it yourself to wait for other peers before the first step::

            while outer.revision == 0 and dist.get_world_size() < 3:
                time.sleep(0.1)
                outer.meet()

        If the call raised, call it again. After a `step` that raised, `meet` first ends that step's
        all-reduce if it has begun. It also ends a round that travels while inner steps are taken.

        Raises:
            InvalidStateError: start() comes first, also after joining the run again.
            PcclError: any error of update_topology and sync_shared_state, except for lost peers.
        """
        with self._signals:
            engine = self._engine()
            engine.run(Goal.MEET)
            engine.core.end_call()
            assert engine.topology is not None, "a meeting begins with update_topology"
            assert engine.info is not None
            engine.joined = engine.left = ()
            return engine.topology, engine.info

    def finish(self) -> None:
        """Apply what is still travelling. The end of the `with` block does it.

        With `overlap`, all members call it alike, for example before they save. Without, there is
        nothing to do.

        Raises:
            PcclError: as `meet`.
        """
        with self._signals:
            engine = self._engine()
            if engine.core.blocking and engine.core.between:
                return
            engine.run(Goal.MEET)
            self._end_step(engine)

    # --- Around them ------------------------------------------------------------------------------

    def __enter__(self) -> DiLoCo:
        self._require_open()
        if self._url is not None:
            self._group = pccl.join(self._url)
        try:
            self.start()
        except BaseException:
            self._leave_own_run()
            raise
        if self._optimizers:
            self._handle = self._optimizers[-1].register_step_post_hook(self._inner_step)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.finish()
        finally:
            self.close()
            self._leave_own_run()

    def close(self) -> None:
        """Make no further outer step; the model may get another trainer. Not joint."""
        if self._handle is not None:
            self._handle.remove()
        self._handle, self._closed = None, True
        self._release()

    @contextlib.contextmanager
    def global_parameters(self) -> Iterator[torch.nn.Module]:
        """A `with` block in which the model has the global parameters, for evaluation. Not joint.

        At its end the model has its local parameters again. It takes a copy of them on their own
        device.

        Example:
            >>> with outer.global_parameters():
            ...     validate(model)
        """
        engine = self._engine()
        with torch.no_grad():
            kept = {name: tensor.clone() for name, tensor in _tensors(self._model)}
            engine.buffers.adopt()
        try:
            yield self._model
        finally:
            with torch.no_grad():
                for name, tensor in _tensors(self._model):
                    tensor.copy_(kept[name])

    def state_dict(self) -> dict[str, Any]:
        """Return the shared state, to be saved by one peer. Not joint.

        Keys: "tensors" (by name, not copied), "revision" and "hash" of the last meeting, and
        "digest" of the tensors. With `overlap`, call `finish` first, on all members.

        Example:
            >>> dcp.save(outer.state_dict(), checkpoint_id=folder, no_dist=True)
        """
        return checkpoint.save(self._engine())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin from a saved state instead of the model's parameters; call it before `start`.

        All peers may load it, or only some: the others receive it. Settings and the number of peers
        may differ from those of the run that saved it.

        Raises:
            InvalidStateError: the trainer has started.
            ValueError: the state is damaged, or belongs to another model; the message says which
                tensor.
        """
        if self._made is not None and self._made.core.started:
            raise pccl.InvalidStateError("load_state_dict() comes before start()")
        checkpoint.check(state)
        self._loaded = state

    def _inner_step(self, *_: object) -> None:
        """The optimizer has stepped."""
        if self._inside or self._closed:
            return
        engine = self._engine()
        engine.inner_steps += 1
        seconds = self._settings.seconds_every
        goal = engine.core.inner_step(
            due=seconds is not None and time.monotonic() - self._boundary_at >= seconds,
            landed=self._settings.overlap == "auto" and engine.has_landed,
        )
        if goal is None:
            return
        self._inside = True
        try:
            with self._signals, torch.no_grad():
                engine.run(goal)
                if goal is Goal.STEP:
                    done = self._end_step(engine)
                    self._observer.stepped(self, done)
                else:
                    engine.core.end_call()
        finally:
            self._inside = False

    def _end_step(self, engine: Engine) -> OuterStep:
        core, outcome, topology = engine.core, engine.outcome, engine.topology
        core.end_call()
        assert topology is not None, "a step contains a whole meeting"
        assert engine.info is not None
        self._boundary_at = time.monotonic()
        sent = pccl.run_info(self._group).get("bytes_sent", 0)
        self.last = OuterStep(
            revision=self.revision,
            contributors=outcome.contributors,
            attempts=engine.attempts,
            world_size=topology.world_size,
            joined=engine.joined,
            left=engine.left,
            synced=engine.info,
            excluded=outcome.excluded,
            inner_steps=core.progress.inner_steps,
            waited_s=engine.waited_s,
            reduce_s=engine.reduce_s,
            sent_bytes=sent - self._sent_bytes,
        )
        self._sent_bytes = sent
        engine.joined = engine.left = ()
        engine.waited_s = 0.0
        return self.last

    def _engine(self) -> Engine:
        self._require_open()
        engine = self._made
        if engine is None or engine.info is None:
            raise pccl.InvalidStateError(f"there are no global parameters yet: {START_FIRST}")
        if self._name() != self._member:
            raise pccl.InvalidStateError(f"this process has joined the run anew: {START_FIRST}")
        return engine

    def _engine_to_start(self) -> Engine:
        """Return the engine with the model as it is, or as an earlier membership has left it."""
        member = self._name()
        engine = self._made
        if engine is not None and engine.info is not None:
            if member != self._member:
                with contextlib.suppress(pccl.PcclError):  # what was learned remains local
                    engine.leave()
                engine.restart()
        elif engine is None:
            engine = self._made = Engine(
                self,
                self._model,
                self._settings,
                signals=self._signals,
                observer=self._observer,
                tag=self._tag,
                group=self._group,
                more=self._shared,
            )
        else:
            engine.read_model()
            if member != self._member:
                engine.restart()
        if self._loaded is not None and engine.info is None:
            checkpoint.load(engine, self._loaded)
        self._member = member
        return engine

    def _name(self) -> tuple[object, ...]:
        """Return a name of this peer that is unique among all memberships of all runs."""
        info = pccl.run_info(self._group)
        return tuple(info.get(key) for key in ("master", "run", "peer"))

    def _require_open(self) -> None:
        if self._closed:
            raise pccl.InvalidStateError("this trainer is closed: make another one")

    def _leave_own_run(self) -> None:
        if self._url is not None and self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()
