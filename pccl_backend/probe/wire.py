"""The protocol between the two ends of a probe: JSON objects, one per line.

    client                            server
      | hello (control)  ---------->  |
      | <---------- welcome, or busy  |  token, settings of its system
      | ping, pong                    |  a few times: the RTT
      | trial  -------------------->  |  number of streams, seconds, direction
      | <--------------------- ready  |
      | hello (data, token)  ------>  |  on each stream, a connection of its own
      | <-------------------- joined  |
      | go  ----------------------->  |  and bytes flow on the streams
      | <-------------------- result  |  number of bytes that arrived there
      | done  --------------------->  |  another trial may follow

Everything from the other end is checked before it is used: a line that breaks a rule costs its
sender the connection. Every wait has a time limit.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pccl_backend._limits import LANES_MAX

__all__ = [
    "Channel",
    "Direction",
    "Trial",
    "WireError",
    "close_hard",
    "hello",
    "line_of",
    "number",
    "parse",
    "printable",
    "suit",
]

PORT = 48149
VERSION = 1

STREAMS_MAX = 2 * LANES_MAX  # enough to show that more than pccl opens would bring nothing
SECONDS_MIN, SECONDS_MAX = 0.2, 60.0
WARM_UP_S = 1.0  # not counted: the connections reach their speed
NUMBER_MAX = 1e18  # above every count of bytes
LINE_BYTES_MAX = 8192  # the longest line, a welcome, has less than 1 KiB
CONGESTION_NAME = re.compile(r"[a-z0-9_-]{0,15}")  # 15 is the system's own limit

ANSWER_TIMEOUT_S = 15.0  # a line may wait behind seconds of bulk data in a network queue
HELLO_TIMEOUT_S = 5.0

SO_MAX_PACING_RATE = 47  # missing in Python's socket module
PACING_BYTES_PER_S = 10**12
UNSENT_BYTES = 64 << 10

Direction = Literal["there", "back", "both"]
Message = dict[str, Any]


class WireError(Exception):
    """The other end broke a rule, went away or stayed silent too long; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One measurement, as the client requests it.

    Attributes:
        streams: number of connections that carry bytes.
        seconds: duration.
        direction: `there` is from the client to the server.
        wan: whether the streams are set as pccl sets those of a wan path.
        congestion: TCP's congestion control; empty: as pccl would choose it.

    Raises:
        ValueError: a value is out of bounds.
    """

    streams: int
    seconds: float
    direction: Direction
    wan: bool
    congestion: str = ""

    def __post_init__(self) -> None:
        if type(self.streams) is not int or not 1 <= self.streams <= STREAMS_MAX:
            raise ValueError(f"streams is {self.streams!r}, must be 1 to {STREAMS_MAX}")
        if type(self.seconds) not in (int, float) or not (
            SECONDS_MIN <= self.seconds <= SECONDS_MAX
        ):
            raise ValueError(f"seconds is {self.seconds!r}, must be {SECONDS_MIN} to {SECONDS_MAX}")
        if self.direction not in ("there", "back", "both"):
            raise ValueError(f"direction is {self.direction!r}, must be there, back or both")
        if type(self.wan) is not bool:
            raise ValueError(f"wan is {self.wan!r}, must be true or false")
        if type(self.congestion) is not str or not CONGESTION_NAME.fullmatch(self.congestion):
            raise ValueError(f"congestion is {self.congestion!r}, must be the name of one")

    @property
    def warm_up_s(self) -> float:
        """The part that is not counted: one second, or half of a trial shorter than two seconds."""
        return min(WARM_UP_S, self.seconds / 2)

    def to_message(self) -> Message:
        return {"type": "trial", **self.__dict__}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Trial:
        """Return the trial that a message requests; raise WireError if it is invalid."""
        fields = ("streams", "seconds", "direction", "wan", "congestion")
        try:
            return cls(**{name: message.get(name) for name in fields})  # type: ignore[arg-type]
        except ValueError as error:
            raise WireError(str(error)) from None


class Channel:
    """A connection that carries lines. One thread at a time may use it; the owner closes it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._heard = bytearray()

    def send(self, message: Message) -> None:
        """Send a line; raise WireError on failure."""
        try:
            self._connection.settimeout(ANSWER_TIMEOUT_S)
            self._connection.sendall(line_of(message))
        except OSError as error:
            raise WireError(f"could not be told anything: {error}") from None

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Message:
        """Return the next line. Raise WireError if it is not complete within `timeout_s`."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            if len(self._heard) > LINE_BYTES_MAX:
                raise WireError(f"sent a line of more than {LINE_BYTES_MAX} bytes")
            self._heard += self._hear(until - time.monotonic(), timeout_s)
        line, _, rest = bytes(self._heard).partition(b"\n")
        self._heard = bytearray(rest)
        return parse(line)

    def expect(self, kind: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Message:
        """Return the next line; raise WireError if its type is another one."""
        message = self.receive(timeout_s)
        if message.get("type") == "error":
            raise WireError(f"says: {printable(message.get('text'))}")
        if message.get("type") != kind:
            raise WireError(f"sent {printable(message.get('type'))} where {kind} was due")
        return message

    def is_quiet_for(self, seconds: float) -> bool:
        """Wait; return False as soon as the other end sends something or goes away."""
        if self._heard:
            return False
        ready, _, _ = select.select([self._connection], [], [], seconds)
        return not ready

    def _hear(self, left_s: float, timeout_s: float) -> bytes:
        late = WireError(f"said nothing for {timeout_s:g} s")
        if left_s <= 0:
            raise late
        try:
            self._connection.settimeout(left_s)
            heard = self._connection.recv(LINE_BYTES_MAX)
        except TimeoutError:
            raise late from None
        except OSError as error:
            raise WireError(f"is gone: {error}") from None
        if not heard:
            raise WireError("closed the connection")
        return heard


def hello(role: str, token: str = "") -> Message:
    """Return the first line of every connection; its role is `control` or `data`."""
    return {"type": "hello", "probe": "pccl", "version": VERSION, "role": role, "token": token}


def line_of(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def parse(line: bytes) -> Message:
    """Return the object in a line, or raise WireError."""
    if len(line) > LINE_BYTES_MAX:
        raise WireError(f"sent a line of more than {LINE_BYTES_MAX} bytes")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        message = None
    if not isinstance(message, dict):
        raise WireError(f"sent {printable(line.decode(errors='replace'))}, which is no message")
    return message


def number(message: Mapping[str, Any], name: str) -> float:
    """Return a non-negative number from a message, or raise WireError."""
    value: Any = message.get(name)
    if type(value) not in (int, float) or not 0 <= value <= NUMBER_MAX:
        raise WireError(f"sent {name}={printable(value)}, which is no number")
    return float(value)


def printable(value: object) -> str:
    """Return text from an untrusted sender: short, without characters that control a terminal."""
    text = value if isinstance(value, str) else repr(value)
    text = "".join(char if char.isprintable() else "?" for char in text[:200])
    return text if len(text) <= 60 else text[:57] + "..."


def suit(stream: socket.socket, *, wan: bool, congestion: str) -> None:
    """Set a stream as pccl sets its own (Socket::suit).

    Raises:
        WireError: the system refuses the congestion control.
    """
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if congestion:
        _choose(stream, congestion)
    if wan:
        with contextlib.suppress(OSError):
            rate = struct.pack("Q", PACING_BYTES_PER_S)
            stream.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, rate)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    elif not congestion and _congestion(stream).startswith("bbr"):
        try:
            _choose(stream, "cubic")
        except WireError:
            _choose(stream, "reno")  # always allowed


def close_hard(stream: socket.socket) -> None:
    """Close a stream and discard its unsent bytes, which would disturb the next trial."""
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def _congestion(stream: socket.socket) -> str:
    name = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode(errors="replace")


def _choose(stream: socket.socket, congestion: str) -> None:
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    except OSError as error:
        raise WireError(f"refuses the congestion control {congestion}: {error.strerror}") from None
