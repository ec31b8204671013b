"""Follower: a process of a host without a core; it carries out the orders of the leader."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from pccl_backend.errors import HostLostError, InvalidStateError
from pccl_backend.trainers._signals import HeldSignals
from pccl_backend.trainers.flat import Buffers, Make, Plan
from pccl_backend.trainers.host.arena import Arena
from pccl_backend.trainers.host.channel import Address, Channel, connect, limit_of
from pccl_backend.trainers.host.orders import Begin, Bye, Chose, Do, End, Facts, Map, Status, Waits
from pccl_backend.trainers.layout import Layout
from pccl_backend.trainers.settings import Settings
from pccl_backend.trainers.stages import Goal

__all__ = ["Follower"]

T = TypeVar("T")

# Seconds after the timeout until the next order counts as missing. The leader announces each wait
# for other hosts, and such a wait ends by the timeout. So the order can arrive a little later.
GRACE_S = 60.0


class Follower:
    """A process of a host, other than the first.

    Args:
        group: the group of all processes of the host.
        facts: this process's facts, compared with the leader's.
        signals: the held signals of the trainer.
        build: makes the buffers of this process over the leader's shared memory.

    Attributes:
        status: the status of the leader's trainer.
        buffers: the buffers of this process; None before the leader has made its own.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        facts: Facts,
        *,
        signals: HeldSignals,
        build: Callable[[Make], Buffers],
    ) -> None:
        self._group = group
        self._facts = facts
        self._signals = signals
        self._build = build
        self._channel: Channel | None = None
        self._over: Exception | None = None
        self.buffers: Buffers | None = None
        self.status = Status()

    def call(self, name: str, call: Callable[[], T]) -> T:
        """Carry out orders until the leader's call of this name ends; return its result."""
        with self._signals, torch.no_grad():
            if self._channel is None:
                self._signals.wait(self._connect)
            begin = self._next()
            if begin != Begin(name):
                raise self._differ(begin, f"calls {name}()")
            end = self._serve()
            self.status = end.status
        if end.error is not None:
            raise end.error
        result: T = end.result
        return result

    def choose(self, choose: Callable[[], Goal | None]) -> Goal | None:
        """Return the goal of the call after an inner step, or None, as the leader has chosen."""
        with self._signals:
            chosen = self._next()
            if not isinstance(chosen, Chose):
                raise self._differ(chosen, "has taken an inner step")
            last, revision = self.status.last, self.status.revision
            self.status = Status(revision, chosen.inner_steps, last)
            return chosen.goal

    def make_buffers(self, layout: Layout, settings: Settings) -> Buffers:
        """Raise InvalidStateError: without a core, the trainer has no shared state here."""
        raise InvalidStateError(
            "state_dict() is a call of the leader of the host, the process of rank 0 in "
            "host_group, which alone has the whole state"
        )

    def close(self, *, orderly: bool) -> None:
        """Wait until the leader closes, too. If not `orderly`, close at once: the host is lost."""
        if self._channel is None:
            return
        try:
            while orderly and self._over is None:
                self._next()
        except (HostLostError, InvalidStateError):
            pass  # the leader has closed, or has ended
        self._channel.close()

    # --- Parts of it ------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Connect to the leader, and let it compare the facts of this process."""
        box: list[Address | None] = [None]
        dist.broadcast_object_list(box, group=self._group, group_src=0)
        (address,) = box
        assert address is not None, "the leader has sent it"
        rank = dist.get_rank(self._group)
        limit_s = limit_of(self._group) + GRACE_S
        channel = connect(address, rank=rank, limit_s=limit_s)
        channel.send(dict(self._facts))
        if (refusal := channel.receive()) is not None:
            channel.close()
            raise refusal
        self._channel = channel

    def _next(self) -> Any:
        """Return the next order."""
        if self._over is not None:
            raise self._over
        assert self._channel is not None, "the host has gathered"
        try:
            order = self._channel.receive()
        except HostLostError as error:
            self._over = error
            raise
        if isinstance(order, Bye):
            self._over = InvalidStateError(
                "the leader of this host has closed its trainer: all processes of a host make the "
                "same calls"
            )
            raise self._over
        return order

    def _serve(self) -> End:
        """Carry out orders until the call ends."""
        assert self._channel is not None, "the host has gathered"
        while True:
            match order := self._next():
                case Do():
                    self._answer(lambda: self._do(order))
                case Map():
                    self._answer(self._map)
                case Waits():
                    continue
                case End():
                    return order
                case _:
                    raise self._differ(order, "carries out orders")

    def _answer(self, carry_out: Callable[[], None]) -> None:
        assert self._channel is not None, "an order has come"
        answer: Exception | None = None
        try:
            carry_out()
        except HostLostError:
            raise
        except Exception as error:  # noqa: BLE001
            answer = error
        self._channel.send(answer)

    def _do(self, order: Do) -> None:
        assert self.buffers is not None, "Map comes first"
        order.carry_out(self.buffers)

    def _map(self) -> None:
        assert self._channel is not None, "an order has come"
        self.buffers = None  # two copies might not fit
        descriptor = self._channel.receive_descriptor()

        def make(plan: Plan, pinned: bool) -> dict[str, torch.Tensor]:
            return Arena(descriptor, plan).tensors(pinned=pinned)

        try:
            self.buffers = self._build(make)
        finally:
            os.close(descriptor)

    def _differ(self, order: object, mine: str) -> InvalidStateError:
        """Close the channel, and return the error: the leader makes a different call."""
        theirs = f"calls {order.name}()" if isinstance(order, Begin) else f"says {order}"
        self._over = InvalidStateError(
            f"local rank {dist.get_rank(self._group)} {mine}, and the leader of this host {theirs}:"
            " all processes of a host make the same calls of the trainer, in the same order"
        )
        assert self._channel is not None, "an order has come"
        self._channel.close()
        return self._over
