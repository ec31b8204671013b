"""Host: the processes that train one model together, and are one peer of the run.

A peer need not be a process: it may be a host of several, whose model is cut between them (FSDP2).
Then the outer state lies in memory that all of them map. One process, the *leader*, has the core
that decides, and alone talks to the other hosts. For what concerns the model, it gives *orders*:
each process measures or loads the part that it has, and answers when it is done. So every order is
a barrier of the host, and the next one finds its work complete:

    leader      measure ┐          ┌ all-reduce  outer step  load ┐
    others      measure ┴ answer ──┘                         load ┴ answer

All processes of the host make the same calls of the trainer. In each of them, the leader does what
a peer of one process does, and the others carry out orders until it ends (follower.py). Its result
or error is that of all.

If one process dies, the whole host leaves the run at once, whatever the leader does at the moment:
a thread of it watches the others. A collective of the host's own group would not do for this: the
wait for other hosts may take minutes, and NCCL ends a barrier that takes so long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
import torch.distributed as dist

from pccl_backend.trainers.host.arena import Plan, private
from pccl_backend.trainers.host.orders import Chose, Status

if TYPE_CHECKING:
    from pccl_backend.trainers.flat import Buffers
    from pccl_backend.trainers.stages import Goal

__all__ = ["ALONE", "Alone", "Host", "limit_of"]

T = TypeVar("T")


class Host(Protocol):
    """What a trainer needs of its host.

    Attributes:
        leads: whether this process is the first of the host, which has the core.
        status: of the trainer, if this process has no core.
        buffers: of this process, if it has no core.
    """

    leads: bool
    status: Status
    buffers: Buffers | None

    def call(self, name: str, call: Callable[[], T], status: Callable[[], Status]) -> T:
        """Make a call of the trainer together with the other processes of the host."""

    def choose(self, choose: Callable[[], Chose]) -> Goal | None:
        """Return what follows an inner step."""

    def everywhere(
        self, buffers: Buffers, name: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Call a method of the buffers in each process of the host."""

    def make(self, plan: Plan, pinned: bool) -> dict[str, torch.Tensor]:
        """Make the tensors of the buffers."""

    def waits(self) -> None:
        """This process waits for other hosts next."""

    def require_whole(self) -> None:
        """Raise HostLostError if a process of the host is gone."""

    def close(self, *, orderly: bool) -> None:
        """Make no further call. If it is not orderly, the host leaves the run."""


class Alone:
    """The host of a peer that is one process."""

    leads = True
    status = Status()
    buffers: Buffers | None = None

    def call(self, name: str, call: Callable[[], T], status: Callable[[], Status]) -> T:
        return call()

    def choose(self, choose: Callable[[], Chose]) -> Goal | None:
        return choose().goal

    def everywhere(
        self, buffers: Buffers, name: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        getattr(buffers, name)(*arguments, **options)

    def make(self, plan: Plan, pinned: bool) -> dict[str, torch.Tensor]:
        return private(plan, pinned)

    def waits(self) -> None:
        pass

    def require_whole(self) -> None:
        pass

    def close(self, *, orderly: bool) -> None:
        pass


ALONE = Alone()


def limit_of(group: dist.ProcessGroup) -> float:
    """Return the timeout of a group of torch, in seconds."""
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        if (limit := getattr(options, "_timeout", None)) is not None:
            return float(limit.total_seconds())
    return float(dist.default_pg_timeout.total_seconds())
