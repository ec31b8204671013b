"""Flow: moves bytes over streams, in one direction or both, and counts arrivals in a time span.

A flow has at most two threads: one sends, one receives, each on all streams. They run in parallel,
because Python releases its lock during system calls. A broken stream is counted as lost; the others
continue.
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
    """The result of a flow.

    Attributes:
        bytes: number of bytes that arrived in the span.
        lost: number of broken streams.
        busy: share of a core that the busier thread used.
    """

    bytes: int
    lost: int
    busy: float


class Flow:
    """Moves bytes from start() to stop(). stop() must be called. The caller owns the streams.

    Args:
        streams: connected streams.
        sends: whether this end sends.
        receives: whether this end receives; only bytes that arrive in `span` are counted.
        span: the time that counts.
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
    """Calls `move`, a single system call, for each stream that is ready."""

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
        self._piece = os.urandom(PIECE_BYTES)  # random, so that a tunnel cannot compress it

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
