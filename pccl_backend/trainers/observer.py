"""A trainer's reports: a record of each outer step, and the events on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pccl_backend as pccl

if TYPE_CHECKING:
    from pccl_backend.trainers.diloco import DiLoCo

__all__ = ["Observer", "OuterStep"]


@dataclass(frozen=True, kw_only=True)
class OuterStep:
    """The record of one outer step. Equal on all peers, except for `synced`'s byte counts.

    Attributes:
        revision: how many outer steps the global parameters have behind them, this one included.
        contributors: how many peers' pseudo-gradients are in the average.
        attempts: how often the all-reduce ran; more than 1 when members were lost, or when it
            failed and `step` was called again.
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
    """Is told what a trainer does, in the thread that called it. Override what you need.

    An exception from here ends the trainer's call, as any other does, and the call may be repeated.
    What has happened is told once, even if the telling raised.
    """

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
