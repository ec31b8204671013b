"""The packets that the emulator has recorded, and the frames and messages of pccl inside them.

    lab.trace()                        # on
    lab.trace(file)                    # off
    packets = read(file, addresses)
    frames, messages = decoded(packets, master=(0, port))

All functions here are pure but read(). A packet is one that the emulator has carried (trace.h), or
a segment of many that have travelled together. Packets of a direction of a connection make a
stream of bytes. It consists of frames on a lane, and of messages on a connection to the master
(csrc/protocol/PROTOCOL.md, sections 1 and 6). They can be read only in plain text, as the runs of
the lab are. A trace must begin while the network is idle, so that each stream begins with a whole
frame or message.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MAGIC = b"PcL1"
HEADER_BYTES, TRAILER_BYTES = 64, 8
CREDIT, CHUNK, DONE = 4, 5, 9  # frames (csrc/protocol/frames.h)
VERDICTS_MESSAGE, BEGIN_MESSAGE, DONE_MESSAGE = 14, 16, 17  # csrc/protocol/fields.h
# magic, type, zero, round, epoch, tag, sequence, block, digest, slice, length
_HEADER = struct.Struct("<4sBBHQQIIQII")
_PREFIX = struct.Struct("<IH")  # of a message: length, which counts the type, and type
_PACKET = struct.Struct("<4q4s4sHHIIIII")  # TracedPacket of trace.h
_NS = 1e-9


class TraceError(Exception):
    """A trace cannot be understood; the message has the reason."""


class Flow(NamedTuple):
    """One direction of a connection: hosts by their numbers, and ports."""

    source: int
    target: int
    source_port: int
    target_port: int

    @property
    def reverse(self) -> Flow:
        """The other direction."""
        return Flow(self.target, self.source, self.target_port, self.source_port)


@dataclass(frozen=True, kw_only=True)
class Packet:
    """A packet, or a segment of many.

    Attributes:
        came: seconds of the monotonic clock when the emulator got it from its host.
        sent: when its last byte was through the uplink of its host.
        left: when it was through the slowest part of its path, too.
        arrived: when the other host got it; None: it was lost, or is still under way.
        wire_bytes: bytes with the headers of all its packets.
    """

    flow: Flow
    came: float
    sent: float
    left: float
    arrived: float | None
    sequence: int
    acknowledged: int
    wire_bytes: int
    payload: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A frame or a message, with its times.

    Attributes:
        began: when the emulator got its first byte.
        gone: when the emulator got its last byte, for the first time if it was lost.
        arrived: when the other host had all bytes up to its last one.
        last: the packet that arrived then.
    """

    flow: Flow
    kind: int
    began: float
    gone: float
    arrived: float
    last: Packet


@dataclass(frozen=True, kw_only=True)
class Frame(Carried):
    """A frame of a lane.

    Attributes:
        op: epoch, tag and sequence number of its operation.
        bytes: bytes with header and trailer.
    """

    op: tuple[int, int, int]
    round: int
    block: int
    slice: int
    bytes: int


class Message(Carried):
    """A message from or to the master."""


def read(file: Path, addresses: Sequence[str]) -> list[Packet]:
    """Return the packets that `lab.trace(file)` has written, by the time when they came.

    Args:
        addresses: of the hosts, by number.
    """
    numbers = {bytes(map(int, address.split("."))): i for i, address in enumerate(addresses)}
    data = file.read_bytes()
    found = []
    at = 0
    while at < len(data):
        came, sent, left, arrived, source, target, *rest = _PACKET.unpack_from(data, at)
        source_port, target_port, sequence, acknowledged, count, wire_bytes, _ = rest
        at += _PACKET.size
        packet = Packet(
            flow=Flow(numbers[source], numbers[target], source_port, target_port),
            came=came * _NS,
            sent=max(sent, came) * _NS,  # it has no such times if it found a full queue
            left=max(left, sent, came) * _NS,
            arrived=arrived * _NS if arrived else None,
            sequence=sequence,
            acknowledged=acknowledged,
            wire_bytes=wire_bytes,
            payload=data[at : at + count],
        )
        found.append(packet)
        at += count
    return sorted(found, key=lambda packet: packet.came)


# ---- Streams -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """Bytes of a stream, from `start` on, that arrived in one packet."""

    start: int
    packet: Packet
    came: float  # for the first time
    arrived: float  # with all bytes before them
    last: Packet  # that arrived then


class _Stream:
    """The bytes of a flow in order, up to the first one that has not arrived."""

    def __init__(self, flow: Flow, packets: Iterable[Packet]) -> None:
        self.flow = flow
        offsets = _offsets([packet for packet in packets if packet.payload])
        lost = [(start, packet) for start, packet in offsets if packet.arrived is None]
        self._pieces: list[_Piece] = []
        parts: list[bytes] = []
        end, arrived = 0, 0.0
        for start, packet in offsets:
            if start > end and packet.arrived is not None:
                break
            more = start + len(packet.payload) - end
            if packet.arrived is None or more <= 0:
                continue
            if packet.arrived >= arrived:
                arrived, last = packet.arrived, packet
            came = min([packet.came, *(one.came for at, one in lost if _overlap(at, one, end))])
            self._pieces.append(_Piece(end, packet, came, arrived, last))
            parts.append(packet.payload[-more:])
            end += more
        self.data = b"".join(parts)
        self._starts = [piece.start for piece in self._pieces]

    def at(self, offset: int) -> _Piece:
        """Return the piece with this byte."""
        return self._pieces[bisect_right(self._starts, offset) - 1]


def _overlap(start: int, packet: Packet, offset: int) -> bool:
    return start <= offset < start + len(packet.payload)


def _offsets(packets: Sequence[Packet]) -> list[tuple[int, Packet]]:
    """Return the packets with their places in the stream, in order; earlier arrivals go first."""
    if not packets:
        return []
    first = packets[0].sequence
    places = [((packet.sequence - first + (1 << 31)) % (1 << 32), packet) for packet in packets]
    least = min(place for place, _ in places)
    return sorted(
        ((place - least, packet) for place, packet in places),
        key=lambda pair: (pair[0], pair[1].arrived or float("inf")),
    )


def by_flow(packets: Iterable[Packet]) -> dict[Flow, list[Packet]]:
    """Return the packets of each flow, in their order."""
    found: defaultdict[Flow, list[Packet]] = defaultdict(list)
    for packet in packets:
        found[packet.flow].append(packet)
    return dict(found)


# ---- Frames and messages -------------------------------------------------------------------------


def decoded(
    packets: Mapping[Flow, Sequence[Packet]], *, master: tuple[int, int]
) -> tuple[list[Frame], list[Message]]:
    """Return the frames between peers, and the messages from and to the master.

    Args:
        master: its host and port.

    Raises:
        TraceError: a stream has something else.
    """
    frames: list[Frame] = []
    messages: list[Message] = []
    for flow, own in packets.items():
        stream = _Stream(flow, own)
        ends = ((flow.source, flow.source_port), (flow.target, flow.target_port))
        if master in ends:
            messages += _messages(stream)
        else:
            frames += _frames(stream)
    return frames, messages


def _times(stream: _Stream, start: int, end: int) -> dict[str, float]:
    last = stream.at(end - 1)
    return {"began": stream.at(start).came, "gone": last.came, "arrived": last.arrived}


def _frames(stream: _Stream) -> Iterable[Frame]:
    at = 0
    while at + HEADER_BYTES <= len(stream.data):
        fields = _HEADER.unpack_from(stream.data, at)
        magic, kind, _, round_, epoch, tag, sequence, block, _, slice_, length = fields
        if magic != MAGIC:
            raise TraceError(
                f"the connection {stream.flow} has no frame at byte {at} of the trace: either the "
                "trace began while data was under way, or the run is encrypted"
            )
        size = HEADER_BYTES + (length + TRAILER_BYTES if kind == CHUNK else 0)
        if at + size > len(stream.data):
            return
        yield Frame(
            flow=stream.flow,
            kind=kind,
            op=(epoch, tag, sequence),
            round=round_,
            block=block,
            slice=slice_,
            bytes=size,
            last=stream.at(at + size - 1).last,
            **_times(stream, at, at + size),
        )
        at += size


def _messages(stream: _Stream) -> Iterable[Message]:
    at = 0
    while at + _PREFIX.size <= len(stream.data):
        length, kind = _PREFIX.unpack_from(stream.data, at)
        size = _PREFIX.size - 2 + length
        if at + size > len(stream.data):
            return
        yield Message(
            flow=stream.flow,
            kind=kind,
            last=stream.at(at + size - 1).last,
            **_times(stream, at, at + size),
        )
        at += size
