"""The waterfall of an all-reduce: traces made by hand, with known steps."""

from __future__ import annotations

import itertools
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "wan"))

import critical_path
import packets
import waterfall
from carriers import NetworkPath, Plan, Trunk
from packets import Flow, Packet, TraceError

MASTER = (0, 48148)
RTT = 0.1
MBIT = 8.0  # a kilobyte takes a millisecond
CALL = 100.0  # the moment of the first call
MS = 1e-3
HEADERS = 52  # of a packet


def plan(hosts: int, *, uplink_mbit: float = MBIT, trunks: Sequence[Trunk] = ()) -> Plan:
    path = NetworkPath(mbit=MBIT, rtt_ms=RTT * 1e3, queue_ms=50.0, loss=0.0)
    pairs = [(i, j) for i in range(hosts) for j in range(hosts) if i != j]
    return Plan(hosts=(), uplink_mbit=uplink_mbit, paths=dict.fromkeys(pairs, path), trunks=trunks)


def frame(
    kind: int, *, round: int = 0, block: int = 0, slice: int = 0, payload: int = 0, op: int = 7
) -> bytes:
    fields = (packets.MAGIC, kind, 0, round, 1, 2, op, block, 3, slice, payload)
    header = struct.pack("<4sBBHQQIIQII", *fields).ljust(packets.HEADER_BYTES, b"\0")
    return header + bytes(payload + packets.TRAILER_BYTES if kind == packets.CHUNK else 0)


def message(kind: int) -> bytes:
    return struct.pack("<IH", 10, kind) + bytes(8)


@dataclass
class Wire:
    """Packets that are sent one after another; times are milliseconds after the call."""

    sent: list[Packet] = field(default_factory=list)
    _next: dict[Flow, int] = field(default_factory=dict)

    def send(
        self,
        source: int,
        target: int,
        came: float,
        payload: bytes,
        *,
        port: int = 50_000,
        busy: float = 0.0,
        late: float = 0.0,
        lost: bool = False,
        repeat: bool = False,
    ) -> Flow:
        """Send a packet that is in the uplink for `busy` ms, and arrives `late` ms too late."""
        flow = Flow(source, target, port + source, port + target)
        if MASTER[1] == port:
            ends = [port if host == MASTER[0] else 40_000 + host for host in (source, target)]
            flow = Flow(source, target, *ends)
        at = self._next.get(flow, (1 << 32) - 40)  # sequence numbers begin again from 0
        if repeat:
            at -= len(payload)
        self._next[flow] = at + len(payload)
        left = CALL + (came + busy) * MS
        arrived = None if lost else left + RTT / 2 + late * MS
        self.sent.append(
            Packet(
                flow=flow,
                came=CALL + came * MS,
                sent=left,
                left=left,
                arrived=arrived,
                sequence=at % (1 << 32),
                acknowledged=0,
                wire_bytes=len(payload) + HEADERS,
                payload=payload,
            )
        )
        return flow

    def acknowledge(self, flow: Flow, arrived: float, count: int) -> None:
        """Let an acknowledgement of a number of bytes arrive at the sender of this flow."""
        self.sent.append(
            Packet(
                flow=flow.reverse,
                came=CALL + arrived * MS - RTT / 2,
                sent=CALL + arrived * MS - RTT / 2,
                left=CALL + arrived * MS - RTT / 2,
                arrived=CALL + arrived * MS,
                sequence=0,
                acknowledged=count,
                wire_bytes=HEADERS,
            )
        )

    def call(self, times: Sequence[tuple[float, float]], **network: object) -> critical_path.Call:
        """Return the call of these packets; `times`: begin and end of each rank."""
        flows = packets.by_flow(sorted(self.sent, key=lambda packet: packet.came))
        frames, messages = packets.decoded(flows, master=MASTER)
        spans = [(CALL + begin * MS, CALL + end * MS) for begin, end in times]
        made = critical_path.Network(plan(len(times), **network), flows)  # type: ignore[arg-type]
        return critical_path.Call(made, frames, messages, spans)


def steps(call: critical_path.Call) -> list[tuple[str, int, int | None, dict[str, float]]]:
    """Return the steps in milliseconds; they lie end to end, and their parts add up."""
    path = call.path()
    assert (path[0].begin, path[-1].end) == (call.begin, call.end)
    for before, after in itertools.pairwise(path):
        assert before.end == pytest.approx(after.begin)
    for step in path:
        assert sum(step.parts.values()) == pytest.approx(step.end - step.begin)
    return [
        (
            step.what,
            step.host,
            step.target,
            {name: round(1e3 * one, 3) for name, one in step.parts.items() if one > 1e-6},
        )
        for step in path
    ]


def exchange() -> Wire:
    """Two members: rank 1 calls 3 ms later than rank 0, and sends its chunk in three packets."""
    wire = Wire()
    chunk = frame(packets.CHUNK, payload=3000)
    wire.send(0, 1, 1.0, chunk, busy=3.0)
    flow = wire.send(1, 0, 4.0, chunk[:1000], busy=1.0)
    wire.acknowledge(flow, 6.0, 500)
    wire.send(1, 0, 10.0, chunk[1000:2000], busy=1.0)
    wire.acknowledge(flow, 18.5, 1000)
    wire.send(1, 0, 19.0, chunk[2000:], busy=1.0)
    wire.send(1, 0, 55.0, frame(packets.DONE))
    wire.send(0, 1, 71.0, frame(packets.DONE), late=0.5)
    return wire


def test_two_members_exchange_their_tensors() -> None:
    call = exchange().call([(0.0, 80.0), (3.0, 122.0)])
    assert call.pattern == "exchange"
    assert steps(call) == [
        ("calls", 1, None, {"late call": 3.0}),
        ("begins", 1, None, {"processor": 1.0}),
        # a packet 5 ms after the first one, by itself; another one after an acknowledgement
        ("exchange is sent", 1, None, {"bytes": 2.0, "pacing": 5.0, "window": 8.0}),
        ("exchange travels", 1, 0, {"bytes": 1.0, "distance": 50.0}),
        ("is done", 0, None, {"processor": 1.0}),
        ("kDone travels", 0, 1, {"distance": 50.0, "emulator": 0.5}),
        ("returns", 1, None, {"processor": 0.5}),
    ]
    one = 3000 + packets.HEADER_BYTES + packets.TRAILER_BYTES
    found = {phase.what: phase for phase in call.phases()}
    assert list(found) == ["exchange", "kDone between peers", "return"]
    assert found["exchange"].bytes == 2 * one
    assert found["exchange"].bytes_s == pytest.approx(one * call.network.headers * MS / 1e3)


def test_a_lost_packet_has_a_name() -> None:
    wire = Wire()
    chunk = frame(packets.CHUNK, payload=100)
    wire.send(0, 1, 1.0, chunk, lost=True)
    wire.send(0, 1, 40.0, chunk, busy=0.5, repeat=True)
    wire.send(1, 0, 1.0, chunk)
    wire.send(0, 1, 52.0, frame(packets.DONE))
    wire.send(1, 0, 91.0, frame(packets.DONE))
    call = wire.call([(0.0, 141.0), (0.0, 110.0)])
    assert call.path()[0].sent == {"exchange": len(chunk), "lost": len(chunk)}
    assert steps(call) == [
        ("begins", 0, None, {"processor": 1.0}),
        ("exchange is sent", 0, None, {}),
        ("exchange travels", 0, 1, {"loss": 39.0, "bytes": 0.5, "distance": 50.0}),
        ("is done", 1, None, {"processor": 0.5}),
        ("kDone travels", 1, 0, {"distance": 50.0}),
        ("returns", 0, None, {}),
    ]


def direct(*, words: bool) -> Wire:
    """Three members, of whom only rank 1 owns a share: two legs, whatever the shares are."""
    wire = Wire()
    for rank, came in ((0, 1.0), (2, 2.0)):
        wire.send(rank, 1, came, frame(packets.CHUNK, block=1, payload=500), busy=1.0)
    for rank, came in ((0, 55.0), (2, 56.0)):
        wire.send(1, rank, came, frame(packets.CHUNK, round=1, block=1, payload=500), busy=1.0)
    for source, came in ((1, 57.0), (0, 107.0), (2, 109.0)):
        for target in {0, 1, 2} - {source} if words else ():
            wire.send(source, target, came, frame(packets.DONE), port=60_000)
        if source != 0:
            wire.send(source, 0, came, message(packets.DONE_MESSAGE), port=MASTER[1])
    for target in (1, 2):
        wire.send(0, target, 160.0, message(packets.VERDICTS_MESSAGE), port=MASTER[1])
    return wire


LEGS = [
    ("begins", 2, None, {"processor": 2.0}),
    ("leg 1 (reduce) is sent", 2, None, {}),
    ("leg 1 (reduce) travels", 2, 1, {"bytes": 1.0, "distance": 50.0}),
    ("combines", 1, None, {"processor": 2.0, "bytes": 1.0}),
    ("leg 2 (gather) is sent", 1, None, {}),
    ("leg 2 (gather) travels", 1, 2, {"bytes": 1.0, "distance": 50.0}),
    ("is done", 2, None, {"processor": 2.0}),
]


def test_the_direct_pattern_has_two_legs() -> None:
    call = direct(words=True).call([(0.0, 159.5), (0.0, 160.0), (0.0, 158.0)])
    assert call.pattern == "direct"
    assert steps(call) == [
        *LEGS,
        ("kDone travels", 2, 1, {"distance": 50.0}),
        ("returns", 1, None, {"processor": 1.0}),
    ]
    combines = next(step for step in call.path() if step.what == "combines")
    one = 500 + packets.HEADER_BYTES + packets.TRAILER_BYTES
    assert combines.sent == {"leg 2 (gather)": 2 * one}, "the one before it has left as well"
    legs = {phase.what: phase for phase in call.phases() if "leg" in phase.what}
    assert legs["leg 1 (reduce)"].end == pytest.approx(CALL + 53 * MS)
    assert legs["leg 2 (gather)"].begin == pytest.approx(CALL + 55 * MS)
    assert legs["leg 2 (gather)"].bytes_s == pytest.approx(2 * legs["leg 1 (reduce)"].bytes_s)


def test_a_verdict_ends_a_call_without_kdone() -> None:
    call = direct(words=False).call([(0.0, 161.0), (0.0, 212.0), (0.0, 211.0)])
    assert steps(call) == [
        *LEGS,
        ("Done travels", 2, 0, {"distance": 50.0}),
        ("verdict is made", 0, None, {"processor": 1.0}),
        ("verdict travels", 0, 1, {"distance": 50.0}),
        ("returns", 1, None, {"processor": 2.0}),
    ]
    assert call.phases()[-2].what == "verdict of the master"
    assert call.phases()[-2].end == pytest.approx(CALL + 210 * MS)


def test_a_ring_has_as_many_rounds_as_hops() -> None:
    wire = Wire()
    for number in range(4):  # block 0 goes from rank 0 around, twice
        came = 1.0 + 51.0 * number
        chunk = frame(packets.CHUNK, round=number, payload=10)
        wire.send(number % 3, (number + 1) % 3, came, chunk)
    wire.send(1, 0, 205.0, frame(packets.DONE), port=60_000)
    wire.send(2, 0, 110.0, frame(packets.DONE), port=60_000)
    call = wire.call([(0.0, 256.0), (0.0, 206.0), (0.0, 206.0)])
    assert call.pattern == "ring"
    names = [what for what, *_ in steps(call) if "travels" in what]
    reduce, gather = "leg 1 (reduce) travels", "leg 2 (gather) travels"
    assert names == [reduce, reduce, gather, gather, "kDone travels"]


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (frame(packets.CHUNK, payload=10, op=8), "data of 2 operations"),
        (b"\x17\x03\x03" * 40, "the run is encrypted"),
        (frame(packets.CHUNK, round=1, block=9, payload=10), "no chunk that it received"),
    ],
)
def test_a_trace_that_cannot_be_understood(extra: bytes, says: str) -> None:
    wire = exchange()
    wire.send(0, 1, 70.5, extra, port=61_000)
    wire.send(1, 0, 70.0, extra, port=61_000)
    with pytest.raises(TraceError, match=says):
        wire.call([(0.0, 80.0), (3.0, 122.0)]).path()


def test_no_word_leads_to_the_return() -> None:
    wire = Wire()
    wire.send(0, 1, 1.0, frame(packets.CHUNK, payload=10))
    with pytest.raises(TraceError, match="neither kDone nor Done led to it"):
        wire.call([(0.0, 80.0), (0.0, 90.0)]).path()
    with pytest.raises(TraceError, match="data of 0 operations"):
        Wire().call([(0.0, 80.0), (0.0, 90.0)])


def test_a_trunk_is_busy_with_the_bytes_of_all_its_paths() -> None:
    wire = Wire()
    wire.send(0, 1, 1.0, frame(packets.CHUNK, payload=10))
    wire.send(2, 1, 2.0, frame(packets.CHUNK, payload=10))
    wire.sent = [Packet(**{**vars(packet), "left": packet.sent + 5 * MS}) for packet in wire.sent]
    trunk = Trunk(mbit=1.0, queue_ms=10.0, paths=[(0, 1), (2, 1)])
    alone = wire.call([(0.0, 9.0)] * 3).network
    shared = wire.call([(0.0, 9.0)] * 3, trunks=[trunk]).network
    ms = [[round(1e3 * (at - CALL), 3) for at in span] for span in shared.busy(0, 1)]
    assert ms == [[1.0, 7.0]]
    assert len(alone.busy(0, 1)) == 1
    assert alone.busy(0, 1)[0][1] == pytest.approx(CALL + 6 * MS)


def test_spans() -> None:
    spans = critical_path.union([(5.0, 6.0), (1.0, 2.0), (1.5, 3.0), (4.0, 4.0)])
    assert spans == [(1.0, 3.0), (5.0, 6.0)]
    assert critical_path.gaps(spans, 0.0, 7.0) == [(0.0, 1.0), (3.0, 5.0), (6.0, 7.0)]
    assert critical_path.gaps(spans, 2.0, 4.0) == [(3.0, 4.0)]
    assert critical_path.gaps(spans, 1.0, 3.0) == []


def test_packets_of_a_file(tmp_path: Path) -> None:
    """The layout of TracedPacket in trace.h."""
    record = struct.pack("<4q", 10**9, 2 * 10**9, 3 * 10**9, 0) + bytes(
        [10, 88, 0, 11, 10, 88, 0, 10]
    )
    record += struct.pack("<HHIIIII", 5, 6, 7, 8, 3, 55, 0) + b"abc"
    (tmp_path / "trace").write_bytes(record)
    assert packets.read(tmp_path / "trace", ["10.88.0.10", "10.88.0.11"]) == [
        Packet(
            flow=Flow(1, 0, 5, 6),
            came=1.0,
            sent=2.0,
            left=3.0,
            arrived=None,
            sequence=7,
            acknowledged=8,
            wire_bytes=55,
            payload=b"abc",
        )
    ]


def test_tables() -> None:
    call = exchange().call([(0.0, 80.0), (3.0, 122.0)])
    seen = waterfall.seen_in(call, ["0 here", "1 there"])
    assert sum(seen.sums.values()) == pytest.approx(seen.took) == pytest.approx(122.0)
    assert seen.goal == pytest.approx(150.0 + seen.bytes_alone)
    lines = waterfall.report(seen).splitlines()
    assert lines[0].startswith("the call took 122.0 ms, 1.22 RTT; the goal is 153.")
    sent = next(line for line in lines if line.startswith("exchange is sent"))
    figures = "1 there 4.0 19.0 0.15 2.0 13.0 window 8.0, pacing 5.0 exchange 3 KiB"
    assert " ".join(sent.split()[3:]) == figures
    assert "distance   100.0  1.00    82%" in lines
