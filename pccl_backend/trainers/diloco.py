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

**What is shared** is what an outer step changes: the global parameters and the outer momentum.
The inner optimizer and the model's buffers (a batch norm's running statistics, say) are each
peer's own. What is shared lives in host memory, three times the parameters in float32: it is used
once in H steps, and a GPU's memory stays the model's.

**In any dtype** a peer that took no inner step has a pseudo-gradient of exactly zero. The global
parameters are float32 or wider, the local copy begins from their rounding, and the pseudo-gradient
is measured from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.trainers._buffers import Buffers

__all__ = ["DiLoCo", "Observer", "OuterStep"]

Strategy = Literal["enforce_popular", "receive_only"]

# The members changed, nothing else is wrong: meet again and repeat.
MEMBERS_CHANGED = (pccl.PeerLostError, pccl.MembershipChangedError)

# Every repetition follows a change of the members. A run that changes more often than this within
# one outer step makes no progress, and a person should look at it.
ATTEMPTS_MAX = 32


@dataclass(frozen=True, kw_only=True)
class OuterStep:
    """What one outer step did. Equal on all peers, except for `synced`'s byte counts.

    Attributes:
        revision: how many outer steps the global parameters have behind them, this one included.
        contributors: how many peers' pseudo-gradients are in the average.
        attempts: how often the all-reduce ran; more than 1 when members were lost.
        world_size: how many members there are after it.
        joined: who was admitted on the way.
        left: who was lost on the way.
        synced: what sync_shared_state did at its end.
    """

    revision: int
    contributors: int
    attempts: int
    world_size: int
    joined: tuple[str, ...]
    left: tuple[str, ...]
    synced: pccl.SyncInfo


class Observer:
    """Is told what a trainer does, in the thread that called it. Override what you need."""

    def before_reduce(self, trainer: DiLoCo) -> None:
        """The pseudo-gradient is measured; its all-reduce comes next."""

    def reduce_posted(self, trainer: DiLoCo, attempt: int) -> None:
        """The all-reduce runs; wait for it comes next."""

    def reduce_failed(self, trainer: DiLoCo, attempt: int, error: pccl.PcclError) -> None:
        """Members changed and the all-reduce failed; pseudo_gradient is as it was before."""

    def reduce_committed(self, trainer: DiLoCo, attempt: int) -> None:
        """All peers have the average; the outer step comes next."""

    def before_meet(self, trainer: DiLoCo) -> None:
        """update_topology comes next."""

    def topology_updated(self, trainer: DiLoCo, topology: pccl.Topology) -> None:
        """update_topology returned; sync_shared_state comes next.

        `joined` and `left` are since the trainer last looked: empty when nothing changed.
        """

    def state_synced(self, trainer: DiLoCo, info: pccl.SyncInfo) -> None:
        """All peers hold the same global parameters."""


class DiLoCo:
    """The outer half of DiLoCo for one model in one peer group. Use it from one thread.

    Args:
        model: all its trainable parameters take part, on whatever device.
        outer_lr: learning rate of the outer SGD. Equal on all peers.
        outer_momentum: its Nesterov momentum, 0 for none. Equal on all peers.
        tag: the tag of its all-reduces. Equal on all peers.
        group: the process group; the default one unless given.
        observer: is told what happens.

    Raises:
        ValueError: no trainable parameter, or a setting out of range.

    Example:
        >>> dist.init_process_group("pccl", init_method="pccl://host:48148/my-run")
        >>> inner = torch.optim.AdamW(model.parameters(), lr=3e-4)
        >>> outer = DiLoCo(model)
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
        self._outer_lr = outer_lr
        self._outer_momentum = outer_momentum
        self._tag = tag
        self._group = group
        self._observer = observer or Observer()
        self._joined: tuple[str, ...] = ()
        self._left: tuple[str, ...] = ()

        self._buffers = Buffers(model)
        self._state = pccl.SharedState(self._buffers.shared(), revision=0)

    @property
    def revision(self) -> int:
        """How many outer steps the global parameters have behind them, over all peers' lives."""
        return self._state.revision

    @property
    def pseudo_gradient(self) -> torch.Tensor:
        """The buffer that the all-reduce averages in place: lent to it while it runs."""
        return self._buffers.pseudo_gradient

    def start(self, *, strategy: Strategy = "enforce_popular") -> pccl.SyncInfo:
        """Take the run's global parameters; call it once, right after init_process_group.

        The founders of a run may come with different parameters and leave with the same. Who comes
        later gets what the others have trained.

        Args:
            strategy: "receive_only" says that this peer's own parameters count for nothing. Give it
                when the run is known to be under way.

        Raises:
            PcclError: what sync_shared_state and update_topology raise, except for lost peers.
        """
        try:
            info = self._sync(strategy)
        except MEMBERS_CHANGED:
            _, info = self._meet(strategy)
        self._buffers.load()
        return info

    def step(self) -> OuterStep:
        """Average what the peers have learned, move the global parameters, start from them.

        Ends with `meet`, so newcomers get in here. All peers must call it equally often.

        Raises:
            PcclError: what all_reduce, update_topology and sync_shared_state raise, except for
                lost peers: those cost time, not the step.
        """
        self._joined, self._left = (), ()
        self._buffers.measure()
        self._observer.before_reduce(self)
        attempts = self._reduce()
        contributors = dist.get_world_size(self._group)
        self._apply_outer_step()
        topology, synced = self.meet()
        self._buffers.load()
        return OuterStep(
            revision=self.revision,
            contributors=contributors,
            attempts=attempts,
            world_size=topology.world_size,
            joined=self._joined,
            left=self._left,
            synced=synced,
        )

    def meet(self) -> tuple[pccl.Topology, pccl.SyncInfo]:
        """Joint: admit newcomers, drop the lost, and make sure that all hold the same bits.

        `step` does it. Call it yourself to wait for company before the first step::

            while outer.revision == 0 and dist.get_world_size() < 3:
                time.sleep(0.1)
                outer.meet()

        Raises:
            PcclError: what update_topology and sync_shared_state raise, except for lost peers.
        """
        return self._meet("enforce_popular")

    def _meet(self, strategy: Strategy) -> tuple[pccl.Topology, pccl.SyncInfo]:
        attempt = 0
        while True:
            attempt += 1
            self._observer.before_meet(self)
            topology = pccl.update_topology(group=self._group)
            self._joined += topology.joined
            self._left += topology.left
            self._observer.topology_updated(self, topology)
            try:
                return topology, self._sync(strategy)
            except MEMBERS_CHANGED:
                if attempt == ATTEMPTS_MAX:
                    raise

    def _sync(self, strategy: Strategy) -> pccl.SyncInfo:
        info = pccl.sync_shared_state(self._state, strategy=strategy, group=self._group)
        self._observer.state_synced(self, info)
        return info

    def _reduce(self) -> int:
        """Average the pseudo-gradient over the peers; return how many attempts it took."""
        attempt = 0
        while True:
            attempt += 1
            try:
                work = pccl.all_reduce(
                    self._buffers.pseudo_gradient,
                    op="avg",
                    tag=self._tag,
                    group=self._group,
                    async_op=True,
                )
                assert work is not None, "an asynchronous operation has a handle"
                self._observer.reduce_posted(self, attempt)
                work.wait()
            except MEMBERS_CHANGED as error:
                self._observer.reduce_failed(self, attempt, error)
                if attempt == ATTEMPTS_MAX:
                    raise
                self.meet()
            else:
                self._observer.reduce_committed(self, attempt)
                return attempt

    def _apply_outer_step(self) -> None:
        self._buffers.apply_outer_step(lr=self._outer_lr, momentum=self._outer_momentum)
        self._state.revision += 1
