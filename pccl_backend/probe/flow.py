"""Flow: bytes over some streams, one way or both, and how many arrived in a span of time.

Two threads at most, one that sends and one that receives, each on all streams: a system call of
Python lets the other one run. A stream that breaks is counted as lost; the others go on.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Carried", "Flow", "Span"]

PIECE_BYTES = 256 << 10
TICK_S = 0.1
JOIN_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Span:
    """The time in which arriving bytes count, by time.monotonic()."""

    begin: float
    end: float

    def __contains__(self, at: float) -> bool:
        return self.begin <= at < self.end


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What a flow did.

    Attributes:
        bytes: that arrived in its span.
        lost: streams that broke.
        busy: the share of a core that the busier of its threads took.
    """

    bytes: int
    lost: int
    busy: float


class Flow:
    """Moves bytes from start() to stop(), which has to be called. The caller keeps the streams.

    Args:
        streams: connected.
        sends: whether this end sends.
        receives: whether this end receives; only what arrives in `span` is counted.
        span: see there.
    """

    def __init__(
        self, streams: Sequence[socket.socket], *, sends: bool, receives: bool, span: Span
    ) -> None:
        for stream in streams:
            stream.setblocking(False)
        self._stop = threading.Event()
        self._receiver = _Receiver(streams if receives else (), self._stop, span)
        self._sender = _Sender(streams if sends else (), self._stop)

    def start(self) -> None:
        self._receiver.start()
        self._sender.start()

    def stop(self) -> Carried:
        self._stop.set()
        for mover in (self._receiver, self._sender):
            mover.join(JOIN_TIMEOUT_S)
        return Carried(
            bytes=self._receiver.counted,
            lost=max(self._receiver.lost, self._sender.lost),
            busy=max(self._receiver.busy, self._sender.busy),
        )


class _Mover(threading.Thread):
    """Calls `move` for whatever stream is ready; it is one system call."""

    event: int

    def __init__(self, streams: Sequence[socket.socket], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.lost = 0
        self.busy = 0.0
        self._streams = streams
        self._stop_asked = stop

    def move(self, stream: socket.socket) -> None:
        raise NotImplementedError

    def run(self) -> None:
        began_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream, self.event, stream)
            while selector.get_map() and not self._stop_asked.is_set():
                for key, _ in selector.select(TICK_S):
                    try:
                        self.move(key.data)
                    except BlockingIOError:
                        continue
                    except OSError:
                        selector.unregister(key.data)
                        self.lost += 1
        self.busy = time.thread_time() / max(time.monotonic() - began_at, TICK_S)


class _Sender(_Mover):
    event = selectors.EVENT_WRITE

    def __init__(self, streams: Sequence[socket.socket], stop: threading.Event) -> None:
        super().__init__(streams, stop)
        self._piece = os.urandom(PIECE_BYTES)  # what a tunnel cannot make smaller

    def move(self, stream: socket.socket) -> None:
        stream.send(self._piece)


class _Receiver(_Mover):
    event = selectors.EVENT_READ

    def __init__(self, streams: Sequence[socket.socket], stop: threading.Event, span: Span) -> None:
        super().__init__(streams, stop)
        self.counted = 0
        self._span = span
        self._piece = bytearray(PIECE_BYTES)

    def move(self, stream: socket.socket) -> None:
        count = stream.recv_into(self._piece)
        if count == 0:
            raise ConnectionResetError
        if time.monotonic() in self._span:
            self.counted += count
