"""Leader: the first process of a host of several; it decides, and orders the others."""

from __future__ import annotations

import pickle
import select
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist

from pccl_backend.errors import HostLostError, InvalidStateError
from pccl_backend.trainers._signals import HeldSignals
from pccl_backend.trainers.flat import Buffers, Plan
from pccl_backend.trainers.host.arena import Arena
from pccl_backend.trainers.host.buffers import HostBuffers
from pccl_backend.trainers.host.channel import Channel, accept, limit_of, listen
from pccl_backend.trainers.host.orders import Begin, Bye, Chose, Do, End, Facts, Map, Status, Waits
from pccl_backend.trainers.layout import Layout
from pccl_backend.trainers.settings import Settings
from pccl_backend.trainers.stages import Goal

__all__ = ["Leader"]

T = TypeVar("T")


class Leader:
    """The first process of a host of several.

    Args:
        group: the group of all processes of the host.
        facts: this process's facts, compared with the facts of the others.
        signals: the held signals of the trainer.
        status: returns the status of the trainer.
        leave: leaves the run at once; another thread may call it.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        facts: Facts,
        *,
        signals: HeldSignals,
        status: Callable[[], Status],
        leave: Callable[[], None],
    ) -> None:
        self._group = group
        self._facts = facts
        self._signals = signals
        self._status = status
        self._leave = leave
        self._arena: Arena | None = None  # memory that the others do not have yet
        self._channels: dict[int, Channel] | None = None
        self._in_call = False
        self._lost: HostLostError | None = None
        self._losing = threading.Lock()
        self._watch: threading.Thread | None = None
        self._wake, self._woken = socket.socketpair()

    def call(self, name: str, call: Callable[[], T]) -> T:
        """Make a call of the trainer together with the other processes of the host."""
        if self._in_call:
            self._require_whole()
            return call()
        with self._signals:
            if self._channels is None:
                self._signals.wait(self._connect)
            self._require_whole()
            self._tell(Begin(name))
            self._in_call = True
            try:
                result = call()
                self._signals.wait(self._require_whole)  # a handler's exception is raised in all
            except BaseException as error:
                if isinstance(error, HostLostError):
                    self._lose(error)
                if self._lost is not None:
                    raise self._lost from error
                self._tell(End(None, _for_others(error), self._status()))
                raise
            finally:
                self._in_call = False
            self._tell(End(result, None, self._status()))
            return result

    def choose(self, choose: Callable[[], Goal | None]) -> Goal | None:
        """Choose the goal of the call after an inner step, and send it to the other processes."""
        with self._signals:
            self._require_whole()
            goal = choose()
            self._tell(Chose(goal, self._status().inner_steps))
            return goal

    def make_buffers(self, layout: Layout, settings: Settings) -> Buffers:
        """Make the buffers of the trainer, in memory that all processes of the host map."""
        return HostBuffers(layout, settings, make=self._make, everywhere=self._everywhere)

    def waits(self) -> None:
        """Announce a wait for other hosts, so that the other processes do not time out."""
        self._tell(Waits())

    def close(self, *, orderly: bool) -> None:
        """Make no further call. If not `orderly`, the other processes get HostLostError."""
        self._forget_memory()
        if self._watch is not None:
            self._wake.close()
            self._watch.join()
            self._woken.close()
            self._watch = None
        for channel in self._others():
            if orderly and self._lost is None:
                channel.try_send(Bye())
            channel.close()
        self._channels = {}

    # --- Parts of it ------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Wait for the other processes of the host, and compare their facts."""
        limit_s = limit_of(self._group)
        count = dist.get_world_size(self._group) - 1
        listener, address = listen()
        with listener:
            dist.broadcast_object_list([address], group=self._group, group_src=0)
            channels = accept(listener, address, count=count, limit_s=limit_s)
        refusals = [self._refusal(rank, channels[rank].receive()) for rank in sorted(channels)]
        refusal = next((each for each in refusals if each is not None), None)
        for channel in channels.values():
            channel.send(refusal)
        if refusal is not None:
            raise refusal
        self._channels = channels
        self._watch = threading.Thread(target=self._watch_others, name="pccl-host", daemon=True)
        self._watch.start()

    def _refusal(self, rank: int, facts: Facts) -> ValueError | None:
        for name in {**self._facts, **facts}:
            mine, theirs = self._facts.get(name), facts.get(name)
            if mine != theirs:
                return ValueError(
                    f"{name} is {mine!r} in the leader of this host, and {theirs!r} in local rank "
                    f"{rank}: all processes of a host make the same trainer"
                )
        return None

    def _others(self) -> list[Channel]:
        return list((self._channels or {}).values())

    def _everywhere(self, buffers: Buffers, order: Do) -> None:
        """Carry out an order in each process of the host.

        Outside of a call, the other processes do not listen: then this one alone carries it out.
        """
        if not self._in_call:
            order.carry_out(buffers)
            return
        self._share_memory()
        self._tell(order)
        try:
            order.carry_out(buffers)
        finally:
            errors = self._answers()
        for error in errors:
            raise error

    def _make(self, plan: Plan, pinned: bool) -> dict[str, torch.Tensor]:
        """Make the tensors of the buffers. The others map them before their next order."""
        self._forget_memory()
        self._arena = Arena.create(plan)
        return self._arena.tensors(pinned=pinned)

    def _share_memory(self) -> None:
        """Let the others map the memory of the buffers, if they have not."""
        if self._arena is None:
            return
        self._tell(Map())
        for channel in self._others():
            channel.send_descriptor(self._arena.descriptor)
        for error in self._answers():
            raise error
        self._forget_memory()

    def _forget_memory(self) -> None:
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def _require_whole(self) -> None:
        """Raise HostLostError if the host has lost a process."""
        if self._lost is not None:
            raise self._lost

    def _tell(self, order: object) -> None:
        try:
            for channel in self._others():
                channel.send(order)
        except HostLostError as error:
            raise self._lose(error) from None

    def _answers(self) -> list[Exception]:
        answers = [channel.receive() for channel in self._others()]
        return [answer for answer in answers if answer is not None]

    def _watch_others(self) -> None:
        """Leave the run when another process has ended or closed its side."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for channel in self._others():
            channel.watch(poll)
        poll.poll()
        gone = [channel for channel in self._others() if channel.is_gone]
        if self._wake.fileno() < 0 or not gone:
            return  # close() has woken it
        self._lose(gone[0].lost("it has ended"))

    def _lose(self, error: HostLostError) -> HostLostError:
        """Leave the run, and wake this process and the others wherever they wait.

        Return the first error: it closes all channels, so a later one may name any process.
        """
        with self._losing:
            if self._lost is not None:
                return self._lost
            self._lost = error
        try:
            self._leave()
        finally:
            for channel in self._others():
                channel.end()
        return error


def _for_others(error: BaseException) -> Exception:
    """Return the error that the other processes of the host raise."""
    text = f"the call ended in the leader of this host, by {type(error).__name__}: {error}"
    if not isinstance(error, Exception):  # such as KeyboardInterrupt
        return InvalidStateError(text)
    try:
        again = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001
        return InvalidStateError(text)
    return again if isinstance(again, Exception) else InvalidStateError(text)
