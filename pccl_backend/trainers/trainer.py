"""Trainer: the common part of DiLoCo and DDP: joining, starting, meeting, and the `with` block.

All processes of a host call a method marked `together`. Its body runs in one of them, and its
result is returned in all.

A trainer that has joined a run by its `url` also comes back to it. If the run has removed this peer
(KickedError), for example because it was late, the call that raised this error joins again and
takes the others' state.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.info import TimeSpent, count_saving
from pccl_backend.quantization import Format
from pccl_backend.state_sync import SyncInfo
from pccl_backend.topology import Topology
from pccl_backend.trainers import checkpoint, foreign
from pccl_backend.trainers._signals import HeldSignals
from pccl_backend.trainers.bases import Bases
from pccl_backend.trainers.core import Core
from pccl_backend.trainers.engine import Copies, Engine, Strategy
from pccl_backend.trainers.exchange import OnLoss
from pccl_backend.trainers.observer import Observer, OuterStep, text_of
from pccl_backend.trainers.settings import claim
from pccl_backend.trainers.stages import Action, Goal

__all__ = ["START_FIRST", "Trainer", "together", "tracked"]

log = logging.getLogger("pccl")

START_FIRST = "call start() first, right after init_process_group"
Self = TypeVar("Self", bound="Trainer")
P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def tracked() -> Iterator[None]:
    """A `with` block without inference mode: tensors made in that mode cannot be written later."""
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(False), torch.no_grad():
            yield
    else:
        yield


def together(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """Make a method of a trainer a call of all processes of the host."""

    @functools.wraps(method)
    def call(self: Self, /, *arguments: P.args, **options: P.kwargs) -> T:
        self._require_open()
        with tracked():
            made = functools.partial(method, self, *arguments, **options)
            return self._together(method.__name__, made)

    return call


class Trainer:
    """Moves one model together with the peers of one group. Use it from one thread.

    Attributes:
        last: the record of the last outer step; None before the first. All peers have the same
            records: end a loop by `last.revision`, because with `overlap` each peer's `revision`
            moves at a time of its own.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        core: Callable[[], Core],
        copies: Callable[[Core], Copies],
        bases: Bases | None = None,
        shared: Mapping[str, torch.Tensor] | None = None,
        on_loss: OnLoss = "keep",
        quantize: Format | None = None,
        url: str | None,
        tag: str,
        group: dist.ProcessGroup | None,
        observer: Observer | None,
    ) -> None:
        if url is not None and group is not None:
            raise ValueError(f"url is {url!r}, and group= is given, too: give one of them")
        self._model = model
        self._optimizers = optimizers
        self._core = core
        self._copies = copies
        self._bases = bases
        self._shared = {f"shared/{name}": tensor for name, tensor in (shared or {}).items()}
        self._on_loss = on_loss
        self._quantize = quantize
        self._url = url
        self._tag = tag
        self._group = group
        self._observer = observer or Observer()
        self._signals = HeldSignals()
        self._made: Engine | None = None  # by the first start()
        self._prepared = False  # whether the engine holds the model for the next start()
        self._loaded: Mapping[str, Any] | None = None
        self._loads_own = False
        self._member: tuple[object, ...] = ()  # this peer's name at the last start()
        self._name_in_group: tuple[object, ...] = ()
        self._named_group: Callable[[], object] = lambda: None  # the group of that name
        self._handles: list[Any] = []
        self._sent_bytes, self._time = 0, TimeSpent()  # at the last outer step, or at the start
        self._closed = False
        self._removed: pccl.KickedError | None = None  # removal from `url`, until it is back
        self._ends = False  # whether the `with` block is ending
        self.last: OuterStep | None = None
        if optimizers:
            foreign.install()  # imports torch's compiler, too: now, while no peer waits
        self._release = claim(model, self)

    @property
    def revision(self) -> int:
        """Number of outer steps that the global parameters have had, over all peers' lives."""
        return 0 if self._made is None else self._made.core.progress.outer_steps

    @together
    def start(self, *, strategy: Strategy = "enforce_popular") -> SyncInfo:
        """Take the run's global parameters; call it once, right after init_process_group.

        The founders of a run may have different parameters; all get the same. A peer that joins
        later gets the parameters that the others have trained.

        If the call raised, call it again. Until it has succeeded, the model's current parameters
        count. After joining the run again, call it again, too. It keeps this peer's learning since
        its last outer step; this learning counts in the next one.

        Args:
            strategy: with "receive_only", this peer's own parameters do not count. Give it if the
                run is known to be under way.

        Raises:
            MemoryError: the host does not have the memory; the message has the numbers.
            PcclError: any error of sync_shared_state and update_topology, except for lost peers.
        """
        with self._signals:
            engine = self._engine_to_start()
            engine.strategy = strategy
            engine.run(Goal.START)
            engine.core.end_call()
            assert engine.info is not None
            return engine.info

    @together
    def meet(self) -> tuple[Topology, SyncInfo]:
        """Admit newcomers, remove lost peers, and make sure that all hold the same bits. Joint.

        An outer step does it. Call it yourself to wait for other peers before the first one::

            while outer.revision == 0 and dist.get_world_size() < 3:
                time.sleep(0.1)  # the members meet ten times a second
                outer.meet()

        If the call raised, call it again. After a `step` that raised, `meet` first ends the step's
        all-reduce if it has begun. It also ends an outer step that travels while inner steps are
        taken.

        Raises:
            InvalidStateError: start() comes first, also after joining the run again.
            PcclError: any error of update_topology and sync_shared_state, except for lost peers.
        """
        with self._signals:
            came_back = not self._run(Goal.MEET)
            engine = self._engine()
            engine.core.end_call()
            topology = self._admission() if came_back else engine.topology
            assert topology is not None, "a meeting begins with update_topology"
            assert engine.info is not None
            engine.joined = engine.left = ()
            return topology, engine.info

    def finish(self) -> None:
        """Wait for a newcomer that still fetches the state. The end of the `with` block does it."""
        if self._made is not None:
            with self._signals:
                self._made.settle()

    def close(self) -> None:
        """Make no further outer step; the model may get another trainer. Not joint.

        All processes of a host call it.
        """
        self._close(orderly=True)

    def state_dict(self, *, own: bool = False) -> dict[str, Any]:
        """Return the shared state, to be saved by one peer. Not joint.

        Keys: "tensors" (by name, not copied), "revision" and "hash" of the last meeting, and
        "digest" of the tensors. With `overlap`, call `finish` first, on all members. Before
        `start`, the tensors are a place to load a checkpoint into. With `host_group`, only the
        leader may call it.

        With `own`, there are two more keys: "own" has this peer's own tensors, by name, and
        "own_digest" is their digest. They are the residuals of `error_feedback`: the rounding
        errors of this peer's pseudo-gradients that it has not sent yet, in float32. Then each peer
        saves a checkpoint of its own.

        Args:
            own: whether to return this peer's own tensors, too.

        Example:
            >>> dcp.save(outer.state_dict(), checkpoint_id=folder, no_dist=True)
            ...
            >>> state = outer.state_dict()
            >>> dcp.load(state, checkpoint_id=folder, no_dist=True)
            >>> outer.load_state_dict(state)
        """
        self._require_open()
        return checkpoint.save(self._made or self._make_engine(), own=own)

    def load_state_dict(self, state: Mapping[str, Any], *, own: bool = False) -> None:
        """Begin from a saved state instead of the model's parameters; call it before `start`.

        All peers may load it, or only some: the others receive it. The settings and the number of
        peers may differ from the run that saved it. With `host_group`, the leader's state counts.

        With `own`, the peer also continues with its own residuals. Residuals do not depend on the
        other peers, so the number of peers may differ here, too. But they must be sent only once:
        load each peer's own state in one peer at most. A peer without it begins at zero, like a
        newcomer. The residuals of a peer that does not come back are lost, as after a kill: this is
        the rounding error of one outer step.

        Args:
            state: from `state_dict`.
            own: whether to load the peer's own tensors, too; the state is from
                `state_dict(own=True)`.

        Raises:
            InvalidStateError: the trainer has started.
            ValueError: the state is damaged, or belongs to another model, or lacks the peer's own
                tensors with `own=True`; the message names the tensor or the key.
        """
        if self._made is not None and self._made.core.started:
            raise pccl.InvalidStateError("load_state_dict() comes before start()")
        checkpoint.check(state, own=own)
        self._loaded, self._loads_own = state, own

    def __enter__(self: Self) -> Self:
        self._enter()
        self._handles = self._watch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._ends = True
            if error is None:
                self.finish()
                self._require_trained()
        except BaseException:
            self._close(orderly=False)
            raise
        else:
            self._close(orderly=error is None)
        finally:
            self._leave_own_run()

    # --- For the trainers -------------------------------------------------------------------------

    @together
    def _enter(self) -> None:
        """Join the run, once all processes of the host have made this call, and start."""
        self._prepared = False
        self._ends, self._removed = False, None
        if self._url is not None:
            self._prepare()  # a newcomer's first call must come soon
            self._group = pccl.join(self._url)
        try:
            self.start()
        except BaseException:
            self._leave_own_run()
            raise

    def _run(self, goal: Goal, *, until: Action | None = None) -> bool:
        """Reach the goal. Return False if this peer was removed and came back instead."""
        if self._removed is None:
            engine = self._engine()
            try:
                engine.run(goal, until=until)
            except pccl.KickedError as error:
                ours = self._url is not None and self._group is not None
                if not ours or self._ends:  # when the block ends, the others end, too
                    raise
                self._removed = error
            else:
                return True
        self._come_back()
        return False

    def _come_back(self) -> None:
        """Join the run of `url` again, and start. If it raised, call it again."""
        assert self._url is not None, "otherwise the caller comes back"
        assert self._removed is not None, "_run() has remembered it"
        self._leave_own_run()
        self._waits()
        self._group = self._signals.wait(functools.partial(pccl.join, self._url))
        self.start()
        why, self._removed = self._removed, None
        self._signals.wait(functools.partial(self._observer.came_back, self, why))

    def _admission(self) -> Topology:
        """Return the result of the meeting that has admitted this peer."""
        info = pccl.run_info(self._group)
        return Topology(
            epoch=info.epoch,
            rank=info.rank,
            world_size=info.world_size,
            joined=(info.peer,),
            left=(),
        )

    def _close(self, *, orderly: bool) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._closed = [], True
        self._release()

    def _together(self, name: str, call: Callable[[], T]) -> T:
        """Make a call that is marked `together`."""
        return call()

    def _waits(self) -> None:
        """Called before each wait of this process for other peers."""

    def _watch(self) -> list[Any]:
        """Register the hooks of the optimizers, and return their handles."""
        return []

    def _require_trained(self) -> None:
        """Raise ValueError if the `with` block has trained the model without its trainer."""

    def _end_step(self, engine: Engine) -> OuterStep:
        core, outcome, topology = engine.core, engine.copies.outcome, engine.topology
        core.end_call()
        assert topology is not None, "a step contains a whole meeting"
        assert engine.info is not None
        saving, engine.saving_s = engine.saving_s, 0.0
        count_saving(saving, self._group)
        facts = pccl.run_info(self._group)
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
            time=facts.time.since(self._time),
            reduce_s=engine.reduce_s,
            sent_bytes=facts.bytes_sent - self._sent_bytes,
            corrections=engine.corrections,
        )
        self._sent_bytes, self._time = facts.bytes_sent, facts.time
        engine.joined = engine.left = ()
        log.info("%s", text_of(self.last, facts.members))
        return self.last

    def _engine(self) -> Engine:
        self._require_open()
        engine = self._made
        if engine is None or engine.info is None:
            raise pccl.InvalidStateError(f"there are no global parameters yet: {START_FIRST}")
        if self._removed is None and self._name() != self._member:
            raise pccl.InvalidStateError(f"this process has joined the run anew: {START_FIRST}")
        return engine

    def _engine_to_start(self) -> Engine:
        """Return the engine with the present model, or as an earlier membership has left it."""
        member = self._name()
        engine = self._prepare()
        self._prepared = False
        if member != self._member:
            engine.leave()
            facts = pccl.run_info(self._group)
            self._sent_bytes, self._time = facts.bytes_sent, facts.time
        self._member = member
        engine.group = self._group
        return engine

    def _prepare(self) -> Engine:
        """Return the engine, with the present model or with the loaded state."""
        engine = self._made
        if engine is None:
            engine = self._make_engine()
        elif engine.info is not None or self._prepared:
            return engine
        elif self._loaded is None:
            engine.read_model()  # a loaded state is copied below instead
        if self._loaded is not None:
            checkpoint.load(engine, self._loaded, own=self._loads_own)
        self._prepared = True
        return engine

    def _make_engine(self) -> Engine:
        self._made = Engine(
            self,
            self._core(),
            self._copies,
            signals=self._signals,
            observer=self._observer,
            tag=self._tag,
            group=self._group,
            bases=self._bases,
            more=self._shared,
            on_loss=self._on_loss,
            quantize=self._quantize,
            waits=self._waits,
        )
        return self._made

    def _name(self) -> tuple[object, ...]:
        """Return a name of this peer that is unique among all memberships of all runs.

        A group object is one membership, so the name is read once for each group.
        """
        group = self._group or dist.group.WORLD
        if group is None or group is not self._named_group():
            info = pccl.run_info(self._group)
            self._name_in_group = (info.master, info.run, info.peer)
            self._named_group = weakref.ref(group) if group is not None else lambda: None
        return self._name_in_group

    def _require_open(self) -> None:
        """Raise InvalidStateError if the trainer is closed."""
        if self._closed:
            raise pccl.InvalidStateError("this trainer is closed: make another one")

    def _leave_own_run(self) -> None:
        if self._url is not None and self._group is not None:
            group, self._group = self._group, None
            dist.destroy_process_group(group)
