"""PcclTransport: gives a replica of torchft that is behind the state of another one.

The replica that sends founds a small world of pccl with the replicas that torchft names as behind,
and all make one call of sync_shared_state: the sender with "send_only", the others with
"receive_only". So several receivers pass pieces on to each other, and pccl verifies each piece and
the whole by hash. One tensor of the shared state has the structure of the state (nested.py).

torchft calls as follows, all but the last two in the thread that asks for the quorum:

    every replica       metadata() before each quorum; it may become a sender by it
    the sender          send_checkpoint(), which returns at once
    each receiver       recv_checkpoint() with the metadata of its sender
    every replica       disallow_checkpoint() when a step ends: the tensors may change then
    every replica       shutdown()

They meet in a store that each transport has open for its whole life, and whose address is its
metadata. In the store, a sender writes an offer for the step: a random name for the world, and the
number of receivers. Each receiver draws a ticket, which is its rank in this world.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torchft.checkpointing.transport import CheckpointTransport

from pccl_backend import _C
from pccl_backend._settings import PeerSettings
from pccl_backend._torch import devices
from pccl_backend._torch.hosted_world import Founding, found_world
from pccl_backend._torch.store_dialogue import Run, look, pauses
from pccl_backend.errors import (
    InvalidStateError,
    MasterLostError,
    OperationTimeoutError,
    PcclError,
)
from pccl_backend.shared_state import SharedState
from pccl_backend.state_sync import SyncInfo, sync_shared_state
from pccl_backend.torchft import nested

__all__ = ["PcclTransport"]

log = logging.getLogger("pccl")

SCHEME = "pccl-checkpoint://"
STRUCTURE = "structure"  # name of the tensor with the structure
END_S = 10.0  # seconds that a sender may take to end after its world was told to


class PcclTransport(CheckpointTransport[Any]):
    """A checkpoint transport for torchft's Manager, in place of its HTTPTransport.

    The state arrives with the same bits, shapes, dtypes and structure. All its tensors arrive on
    the CPU, contiguous and without requires_grad. A tensor at two places of the state (tied
    weights) is one tensor again. The state may have dicts, lists, tuples, sets, numbers, texts,
    bytes, dtypes, devices, and dense tensors of any shape and dtype, on the CPU and on CUDA
    devices. All replicas need the same transport with the same arguments.

    Nothing is copied for sending. From `send_checkpoint` until `disallow_checkpoint` has returned,
    the program must not change the tensors of the state; torchft sees to that.

    Args:
        host: the name or address by which other machines reach this one. Without it, the host of
            PCCL_ADVERTISE, or the name of this machine.
        state_dict: returns a state of this replica, of the structure that arrives. Only a state
            with DTensors needs it: each that arrives gets the mesh and the placements of the
            DTensor at the same place.
        allow_pickle: also take objects of other types, by pickle. A sender can then run any code
            on the receiver, as with torchft's own transports.

    Raises:
        ValueError: an environment variable is invalid.
        PcclError: no store can be opened; the message has the reason.

    Example:
        >>> manager = Manager(pg=group, checkpoint_transport=PcclTransport(host="10.0.0.7"), ...)
    """

    def __init__(
        self,
        *,
        host: str | None = None,
        state_dict: Callable[[], object] | None = None,
        allow_pickle: bool = False,
    ) -> None:
        settings = PeerSettings.read(os.environ)
        self._host = host or settings.advertise or socket.gethostname()
        self._own_state = state_dict
        self._allow_pickle = allow_pickle
        self._store: TCPStore | None = _open_store(self._host)
        self._sending: _Sending | None = None
        self._receiving: _C.PcclGroup | None = None

    def metadata(self) -> str:
        """Return the address of this transport: pccl-checkpoint://HOST:PORT.

        Raises:
            InvalidStateError: it was shut down.
        """
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{SCHEME}{host}:{self._open().port}"

    def send_checkpoint(
        self, dst_ranks: list[int], step: int, state_dict: Any, timeout: timedelta
    ) -> None:
        """Offer a state to replicas that are behind, and return at once.

        An earlier offer ends first, as by `disallow_checkpoint`. The log has a warning if the
        receivers do not get the state.

        Args:
            dst_ranks: the receivers; only their number matters.
            step: the step of the state; `recv_checkpoint` asks for it.
            state_dict: the state.
            timeout: limit for the whole transfer.

        Raises:
            TypeError, ValueError: the state has an object that the transport does not send, or the
                timeout is not above 0; the message has its place.
            InvalidStateError: the transport was shut down.
        """
        store = self._open()
        _C.checked_timeout(timeout.total_seconds())
        self.disallow_checkpoint()
        text, tensors = nested.encode(state_dict, allow_pickle=self._allow_pickle)
        if not dst_ranks:
            return
        for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
            torch.cuda.synchronize(device)  # another thread reads them, on another stream
        named = {f"{number:08d}": tensor for number, tensor in enumerate(tensors)}
        named[STRUCTURE] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        state = SharedState(named, revision=step)
        self._sending = _Sending(store, self._host, state, len(dst_ranks), timeout)

    def disallow_checkpoint(self) -> None:
        """End the offer; the tensors may change afterwards.

        If all receivers are connected, it waits until they have the state, within the timeout of
        `send_checkpoint`. Otherwise it does not wait: the step ends, so a replica that has not
        connected has failed, and those that wait for it get an error at once.
        """
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.end(wait=True)

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        """Return the state that another replica offers for a step. It blocks.

        Args:
            src_rank: the replica, for messages.
            metadata: the other transport's `metadata`.
            step: the step of the state.
            timeout: limit for the whole call.

        Raises:
            OperationTimeoutError: the other replica offered no state of this step in time, or the
                transfer took too long.
            PcclError: the transfer failed, or the state does not fit into the memory of this host.
            ValueError: the metadata is of another transport; or the state has DTensors or pickled
                objects that this transport cannot take.
            InvalidStateError: the transport was, or is, shut down.
        """
        self._open()
        limit = _Limit(timeout, f"recv_checkpoint of step {step} from replica {src_rank}")
        store = _connect(metadata, limit)
        number, receivers = _await_offer(store, step, limit)
        rank = store.add(f"ticket/{number}", 1)
        if rank > receivers:
            raise InvalidStateError(
                f"{limit.what}: it offers the state to {receivers} replicas, and this one came "
                "after them"
            )
        founding = Founding(
            store=PrefixStore(number, store),
            rank=rank,
            size=receivers + 1,
            timeout=limit.left(),
            name="",  # rank 0 names it
            store_host=None,  # rank 0 chooses its address
            from_launcher=False,
            on_peer_loss="raise",
            is_over=lambda: look(store, _offer_key(step)) != f"{number} {receivers}",
        )
        state = SharedState({}, allow_missing=True)
        try:
            info = self._receive(founding, state, limit)
        except MasterLostError:
            raise MasterLostError(
                f"{limit.what} has failed: the replica has ended its offer, or its process has "
                "ended; the next quorum repeats the transfer"
            ) from None
        except PcclError as error:
            raise type(error)(f"{limit.what} has failed: {error}") from None
        _log_transfer("received", step, info, info.rx_bytes)
        tensors = [state[name] for name in sorted(set(state) - {STRUCTURE})]
        text = bytes(state[STRUCTURE].numpy()).decode()
        return nested.decode(
            text, tensors, allow_pickle=self._allow_pickle, own_state=self._own_state
        )

    def _receive(self, founding: Founding, state: SharedState, limit: _Limit) -> SyncInfo:
        group = found_world(founding)
        self._receiving = group
        try:
            self._open()  # a shutdown() before this line has not seen the group
            return _sync(group, state, "receive_only", limit)
        finally:
            self._receiving = None
            group.shutdown()

    def shutdown(self, wait: bool = True) -> None:
        """End the transport and its threads; a `recv_checkpoint` under way fails.

        Args:
            wait: let the receivers that are connected get the state, and wait until the threads
                have ended. Otherwise transfers end at once, and threads soon afterwards.
        """
        sending, self._sending = self._sending, None
        self._store = None  # its server ends when the last thread that uses it has ended
        receiving = self._receiving
        if receiving is not None:
            receiving.shutdown()
        if sending is not None:
            sending.end(wait=wait)

    def _open(self) -> TCPStore:
        store = self._store
        if store is None:
            raise InvalidStateError("this PcclTransport was shut down: make another one")
        return store


class _Sending:
    """An offer, and the thread that sends the state to those that take it."""

    def __init__(
        self, store: Store, host: str, state: SharedState, receivers: int, timeout: timedelta
    ) -> None:
        self._store = store
        self._state = state
        self._limit = _Limit(timeout, f"send_checkpoint of step {state.revision}")
        self._key = _offer_key(state.revision)
        self._exchange = threading.Lock()  # of the next three
        self._ended = False
        self._run: Run | None = None
        self._group: _C.PcclGroup | None = None
        self._host = host
        self._receivers = receivers
        self._number = secrets.token_hex(8)
        store.set(self._key, f"{self._number} {receivers}")
        self._thread = threading.Thread(target=self._send, name="pccl sends a checkpoint")
        self._thread.start()

    def end(self, *, wait: bool) -> None:
        """End the transfer. With `wait`, one that has begun is completed, within its timeout."""
        with self._exchange:
            has_begun = self._group is not None
            if not (wait and has_begun):
                self._ended = True
            run = self._run
        if wait and has_begun:
            self._thread.join(max(0.0, self._limit.left_s()))
        self._ended = True
        if self._group is not None:
            self._group.shutdown()
        elif run is not None:
            run.give_up()
        if wait:
            self._thread.join(END_S)

    def _take_run(self, run: Run) -> None:
        with self._exchange:
            self._run = run
            ended = self._ended
        if ended:
            run.give_up()

    def _send(self) -> None:
        try:
            self._send_to_all()
        except Exception as error:  # noqa: BLE001
            level = logging.INFO if self._ended else logging.WARNING
            log.log(level, "%s has failed: %s", self._limit.what, error)
        finally:
            try:
                self._store.delete_key(self._key)
            except dist.DistError as error:
                log.info("%s: the offer stays in the store: %s", self._limit.what, error)

    def _send_to_all(self) -> None:
        founding = Founding(
            store=PrefixStore(self._number, self._store),
            rank=0,
            size=self._receivers + 1,
            timeout=self._limit.left(),
            name=f"torchft checkpoint {self._state.revision}",
            store_host=self._host,
            from_launcher=False,
            on_peer_loss="raise",
            on_hosted=self._take_run,
        )
        group = found_world(founding)
        try:
            with self._exchange:
                self._group = group
                if self._ended:
                    raise InvalidStateError("the offer has ended")
            info = _sync(group, self._state, "send_only", self._limit)
            _log_transfer("sent", self._state.revision, info, info.tx_bytes)
        finally:
            group.shutdown()


class _Limit:
    """The time that a call may take, over all its parts."""

    def __init__(self, timeout: timedelta, what: str) -> None:
        self.what = what
        self._timeout_s = _C.checked_timeout(timeout.total_seconds())
        self._until = time.monotonic() + self._timeout_s

    def left_s(self) -> float:
        return self._until - time.monotonic()

    def left(self) -> timedelta:
        """Return the rest, or raise OperationTimeoutError if there is none."""
        left_s = self.left_s()
        if left_s <= 0:
            raise self.over("")
        return timedelta(seconds=max(left_s, 0.001))

    def over(self, why: str) -> OperationTimeoutError:
        return OperationTimeoutError(f"{self.what} timed out after {self._timeout_s:g} s{why}")


def _sync(group: _C.PcclGroup, state: SharedState, strategy: str, limit: _Limit) -> SyncInfo:
    group.serve(devices.ALL)
    if hasattr(group, "set_timeout"):  # torch 2.15; before, the timeout of the founding applies
        group.set_timeout(limit.left())
    return sync_shared_state(state, strategy, group=group)


def _log_transfer(how: str, step: int, info: SyncInfo, size: int) -> None:
    log.info("checkpoint of step %d: %s %d bytes, hash %s", step, how, size, info.hash)


def _open_store(host: str) -> TCPStore:
    try:
        return TCPStore(host, 0, is_master=True, wait_for_workers=False)
    except dist.DistError as error:
        raise PcclError(
            f"PcclTransport cannot open a store at {host!r}, the name of this machine: give it "
            f"host= with a name or address by which others reach this machine ({error})"
        ) from None


def _offer_key(step: int) -> str:
    return f"offer/{step}"


def _connect(metadata: str, limit: _Limit) -> TCPStore:
    host, _, port = metadata.removeprefix(SCHEME).rpartition(":")
    if not metadata.startswith(SCHEME) or not port.isdigit():
        raise ValueError(
            f"the other replica's checkpoint metadata is {metadata!r}, not of a PcclTransport: "
            "give all replicas the same checkpoint_transport"
        )
    host = host.strip("[]")
    try:
        # The replica has just taken part in a quorum, so its store listens, or it is gone. TCPStore
        # would try again until the timeout.
        socket.create_connection((host, int(port)), limit.left().total_seconds()).close()
        return TCPStore(
            host, int(port), is_master=False, wait_for_workers=False, timeout=limit.left()
        )
    except TimeoutError:
        raise limit.over(f": {metadata} does not answer") from None
    except (OSError, dist.DistError) as error:
        raise PcclError(f"{limit.what} has failed: {metadata} refuses: {error}") from None


def _await_offer(store: Store, step: int, limit: _Limit) -> tuple[str, int]:
    """Return the name of the world that is offered for a step, and its number of receivers."""
    for pause in pauses():
        time.sleep(pause)  # a wait of a TCPStore cannot be ended before its limit
        try:
            offer = look(store, _offer_key(step))
        except dist.DistError as error:
            raise PcclError(f"{limit.what}: the replica is gone ({error})") from None
        if offer is not None:
            number, _, receivers = offer.partition(" ")
            return number, int(receivers)
        if limit.left_s() <= 0:
            break
    raise limit.over(": it has offered no checkpoint of this step")
