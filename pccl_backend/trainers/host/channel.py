"""Channel: messages between two processes of one host, over a Unix socket.

The first process of a host, the leader, has one channel to each of the others. The channels carry
the leader's orders, and the descriptor of the shared memory. By its channel, each side also notices
the end of the other: the kernel closes the sockets of a killed process at once. Processes that it
has forked may hold its sockets open, so the process itself is watched, too (`pidfd_open`).

Normal course: the leader listens at an address of its own choice (`listen`), and sends the address
and a secret to the others through the group of the host. Each of them connects and sends the secret
(`connect`); the leader accepts them all (`accept`). Failures: every wait ends with HostLostError
when the other side has ended, or has been silent for the limit. A process without the secret is
refused before the leader reads any other data of it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import pickle
import secrets
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from pccl_backend.errors import HostLostError

__all__ = ["Address", "Channel", "accept", "connect", "limit_of", "listen"]

LENGTH = struct.Struct("<Q")
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of the other side


@dataclass(frozen=True)
class Address:
    """The leader's address: a name without a file, and the secret for a connection to it."""

    name: bytes
    secret: bytes


class Channel:
    """One end. Use it from one thread, except for `end`, `is_gone` and the poll of `watch`.

    Args:
        connected: the socket.
        other: the name of the other side in errors.
        limit_s: the longest wait in seconds.
    """

    def __init__(self, connected: socket.socket, *, other: str, limit_s: float) -> None:
        self._socket = connected
        self.other = other
        self.limit_s = limit_s
        self.pid, _ = _credentials(connected)
        self.process: int | None = None  # a descriptor, readable once the other process has ended
        with contextlib.suppress(OSError):  # an old kernel, or a process in another namespace
            self.process = os.pidfd_open(self.pid)
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        if self.process is not None:
            self._poll.register(self.process, select.POLLIN)

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            HostLostError: the other side has ended, or reads nothing.
        """
        data = pickle.dumps(message)
        self._socket.settimeout(self.limit_s)
        try:
            self._socket.sendall(LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise self.lost(str(error)) from None

    def receive(self) -> Any:
        """Return the next message.

        Raises:
            HostLostError: the other side has ended, or sends nothing.
        """
        (count,) = LENGTH.unpack(self._read(LENGTH.size))
        return pickle.loads(self._read(count))

    def send_descriptor(self, descriptor: int) -> None:
        """Send an open file, after a message that announces it."""
        try:
            socket.send_fds(self._socket, [b"f"], [descriptor])
        except OSError as error:
            raise self.lost(str(error)) from None

    def receive_descriptor(self) -> int:
        """Return the open file that a message has announced; the caller closes it."""
        self._await()
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if len(descriptors) != 1:
            raise self.lost("it sent no descriptor")
        return descriptors[0]

    def try_send(self, message: object) -> None:
        """Send a last message, unless the other side has ended."""
        with contextlib.suppress(HostLostError):
            self.send(message)

    def watch(self, poll: select.poll) -> None:
        """Register the end of the other side with a poll, which any thread may use."""
        poll.register(self._socket, select.POLLRDHUP)
        if self.process is not None:
            poll.register(self.process, select.POLLIN)

    @property
    def is_gone(self) -> bool:
        """Whether the other side has ended. Any thread may ask."""
        poll = select.poll()
        self.watch(poll)
        return bool(poll.poll(0))

    def end(self) -> None:
        """End the waits of both sides. Any thread may call it, several times."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.end()
        self._socket.close()
        if self.process is not None:
            os.close(self.process)
            self.process = None

    def _read(self, count: int) -> bytes:
        parts = []
        while count > 0:
            self._await()
            try:
                part = self._socket.recv(min(count, 1 << 20))
            except OSError as error:
                raise self.lost(str(error)) from None
            if not part:
                raise self.lost("its socket is closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _await(self) -> None:
        """Wait for data. Data from before the other side's end is still readable."""
        ready = dict(self._poll.poll(self.limit_s * 1000))
        if not ready:
            raise HostLostError(
                f"{self.other} (pid {self.pid}) has sent nothing for {self.limit_s:g} s, the "
                "timeout of host_group: all processes of a host make the same calls of the trainer"
            )
        if self._socket.fileno() not in ready:
            raise self.lost("it has ended")

    def lost(self, how: str) -> HostLostError:
        """Return the error for a lost other side; `how` is the reason in the message."""
        return HostLostError(
            f"{self.other} (pid {self.pid}) is gone ({how}), and a host trains with all of its "
            "processes or not at all: start them again"
        )


def limit_of(group: dist.ProcessGroup) -> float:
    """Return the timeout of a group of torch, in seconds: the longest wait of its channels."""
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        if (limit := getattr(options, "_timeout", None)) is not None:
            return float(limit.total_seconds())
    return float(dist.default_pg_timeout.total_seconds())


def listen() -> tuple[socket.socket, Address]:
    """Return a listener, and its address for the others."""
    address = Address(b"\0pccl-host-" + secrets.token_hex(16).encode(), secrets.token_bytes(32))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address.name)
    listener.listen()
    return listener, address


def accept(
    listener: socket.socket, address: Address, *, count: int, limit_s: float
) -> dict[int, Channel]:
    """Accept the other processes of the host; return their channels by rank.

    Raises:
        HostLostError: not all of them connected in time.
    """
    until = time.monotonic() + limit_s
    channels: dict[int, Channel] = {}
    while len(channels) < count:
        listener.settimeout(max(until - time.monotonic(), 0.001))
        try:
            connected, _ = listener.accept()
        except TimeoutError:
            missing = sorted(set(range(1, count + 1)) - set(channels))
            raise HostLostError(
                f"local ranks {missing} have not made their trainers within {limit_s:g} s, the "
                "timeout of host_group"
            ) from None
        rank = _rank_of(connected, address)
        if rank is None:
            connected.close()
            continue
        channels[rank] = Channel(connected, other=f"local rank {rank}", limit_s=limit_s)
    return channels


def connect(address: Address, *, rank: int, limit_s: float) -> Channel:
    """Return the channel to the leader.

    Raises:
        HostLostError: the leader does not answer.
    """
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(limit_s)
    try:
        connected.connect(address.name)
        connected.sendall(address.secret + LENGTH.pack(rank))
    except OSError as error:
        connected.close()
        raise HostLostError(f"the leader of this host does not answer: {error}") from None
    return Channel(connected, other="the leader of this host", limit_s=limit_s)


def _rank_of(connected: socket.socket, address: Address) -> int | None:
    """Return the rank of a process that has sent the secret; None for any other process."""
    if _credentials(connected)[1] != os.getuid():
        return None
    connected.settimeout(10.0)  # ample: connect() sends the secret at once
    shown, count = b"", len(address.secret) + LENGTH.size
    try:
        while len(shown) < count:
            part = connected.recv(count - len(shown))
            if not part:
                return None
            shown += part
    except OSError:
        return None
    if not hmac.compare_digest(shown[: -LENGTH.size], address.secret):
        return None
    return int(LENGTH.unpack(shown[-LENGTH.size :])[0])


def _credentials(connected: socket.socket) -> tuple[int, int]:
    """Return pid and uid of the other side."""
    size = CREDENTIALS.size
    pid, uid, _ = CREDENTIALS.unpack(
        connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return pid, uid
