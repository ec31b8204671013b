"""The critical path of one all-reduce in a trace: the steps that its last return has waited for.

The path is followed from its end: the last rank returns when the last kDone is here, or a verdict.
That one left when its sender had received its last chunk. A chunk left after the chunks of the
round before, with the same block and slice, had arrived at its sender. A chunk of round 0 left
after the call. So the steps lie end to end, and their times add up to the time of the call. This is
the same around a ring, in the direct pattern and between two members, whatever the shares are.

The time of each step is divided into
  bytes       the network was busy with the bytes of this host, or of others on the same trunk
  distance    half a round trip
  late call   this rank called after the first one
  processor   nothing holds the sender up: threads wake, encode, add, decode, or wait for a core
  window      the connection waited for acknowledgements of its bytes (TCP's window and buffer)
  pacing      TCP had the rest of a frame, and sent it later although no acknowledgement was missing
  credit      the sender waited for credit from the receiver
  loss        until a lost packet was sent again
  emulator    its ticks of a millisecond, and its own delay
All functions here are pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from carriers import Plan
from packets import (
    BEGIN_MESSAGE,
    CHUNK,
    CREDIT,
    DONE,
    DONE_MESSAGE,
    VERDICTS_MESSAGE,
    Carried,
    Flow,
    Frame,
    Message,
    Packet,
    TraceError,
)

BYTES, DISTANCE = "bytes", "distance"
LATE, PROCESSOR, WINDOW, PACING = "late call", "processor", "window", "pacing"
CREDIT_WAIT, LOSS, EMULATOR = "credit", "loss", "emulator"
RESTS = (LATE, PROCESSOR, WINDOW, PACING, CREDIT_WAIT, LOSS, EMULATOR)
PARTS = (BYTES, DISTANCE, *RESTS)
ACK_S = 1e-3  # TCP answers an acknowledgement that frees its window within this time
CREDIT_S = 2e-3  # threads answer a credit within this time
DIRECT, RING = "direct", "ring"
EXCHANGE, ONE_SHOT = "exchange", "one-shot"  # one leg: of two members, and of small tensors
AGAIN = "lost"
Span = tuple[float, float]
Pair = tuple[int, int]  # sender and receiver


@dataclass(kw_only=True)
class Step:
    """A part of the critical path.

    Attributes:
        what: its name.
        host: the host where it happens, or the sender.
        target: the receiver, if something travels.
        parts: seconds by the name of PARTS.
        sent: number of bytes that left during it, and that the step may have waited for: by the
            name of their leg, and lost ones by the name AGAIN.
    """

    what: str
    host: int
    target: int | None = None
    begin: float
    end: float
    parts: dict[str, float] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)


@dataclass(kw_only=True)
class Phase:
    """Everything of one kind, between all hosts.

    Attributes:
        begin: when the first byte left.
        end: when the last one arrived.
        bytes: number of bytes.
        bytes_s: seconds that the busiest part of the network needs for them.
    """

    what: str
    begin: float
    end: float
    bytes: int = 0
    bytes_s: float = 0.0


# ---- The network ---------------------------------------------------------------------------------


def union(spans: Iterable[Span]) -> list[Span]:
    """Return the same time as spans in order that do not touch."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > begin:
            merged.append((begin, end))
    return merged


def gaps(spans: Sequence[Span], begin: float, end: float) -> list[Span]:
    """Return the time between `begin` and `end` that is in no span. REQUIRES: union()."""
    free: list[Span] = []
    at = begin
    for first, last in spans:
        if last <= begin:
            continue
        if first >= end:
            break
        if first > at:
            free.append((at, first))
        at = max(at, last)
    return [*free, (at, end)] if at < end else free


class Network:
    """The packets of a trace in the network that has carried them."""

    def __init__(self, plan: Plan, packets: Mapping[Flow, Sequence[Packet]]) -> None:
        self.plan = plan
        self._packets = packets
        self._busy: dict[Pair, list[Span]] = {}
        self._acknowledged: dict[Flow, list[float]] = {}

    @cached_property
    def rtt(self) -> float:
        """The longest RTT of two hosts, in seconds."""
        return max(path.rtt_ms for path in self.plan.paths.values()) / 1e3

    def distance(self, source: int, target: int) -> float:
        """Return half the RTT in seconds."""
        return self.plan.paths[source, target].rtt_ms / 2e3

    def busy(self, source: int, target: int) -> list[Span]:
        """Return when bytes were in the uplink of a host, in its path to another one, or in a trunk
        that this path crosses."""
        if (source, target) not in self._busy:
            crossed = [trunk for trunk in self.plan.trunks if (source, target) in trunk.paths]
            spans: list[Span] = []
            for flow, packets in self._packets.items():
                pair = (flow.source, flow.target)
                if flow.source == source:
                    spans += ((packet.came, packet.sent) for packet in packets)
                if pair == (source, target) or any(pair in trunk.paths for trunk in crossed):
                    spans += ((packet.sent, packet.left) for packet in packets)
            self._busy[source, target] = union(spans)
        return self._busy[source, target]

    def beside(self, source: int, target: int) -> set[Pair]:
        """Return the pairs of hosts whose bytes delay those on this path, itself included."""
        pairs = {(source, target)}
        if self.plan.uplink_mbit > 0:
            pairs |= {pair for pair in self.plan.paths if pair[0] == source}
        for trunk in self.plan.trunks:
            pairs |= set(trunk.paths) if (source, target) in trunk.paths else set()
        return pairs

    def lost(self, pairs: set[Pair], begin: float, end: float) -> int:
        """Return the number of bytes that left between these pairs of hosts and were lost."""
        return sum(
            len(packet.payload)
            for flow, packets in self._packets.items()
            if (flow.source, flow.target) in pairs
            for packet in packets
            if packet.arrived is None and begin < packet.came <= end
        )

    def acknowledged(self, flow: Flow) -> list[float]:
        """Return when acknowledgements of further bytes of this flow arrived at its sender."""
        if flow not in self._acknowledged:
            found: list[float] = []
            last: int | None = None
            for packet in self._packets.get(flow.reverse, []):
                ahead = None if last is None else (packet.acknowledged - last) % (1 << 32)
                if packet.arrived is None or ahead == 0 or (ahead or 0) >= 1 << 31:
                    continue
                if last is not None:
                    found.append(packet.arrived)
                last = packet.acknowledged
            self._acknowledged[flow] = found
        return self._acknowledged[flow]

    def next_packet(self, flow: Flow, after: float) -> float | None:
        """Return when the next packet with payload left its host on this flow."""
        packets = self._packets.get(flow, [])
        at = bisect_left(packets, after, key=lambda packet: packet.came)
        return next((packet.came for packet in packets[at:] if packet.payload), None)

    def seconds_for(self, items: Iterable[Carried]) -> float:
        """Return the seconds that the busiest uplink, path or trunk needs for these frames, in full
        packets."""
        flows: defaultdict[Pair, float] = defaultdict(float)
        for item in items:
            flows[item.flow.source, item.flow.target] += size(item) * self.headers
        needed = [8e-6 * count / self.plan.paths[pair].mbit for pair, count in flows.items()]
        for trunk in self.plan.trunks:
            count = sum(flows.get(pair, 0) for pair in trunk.paths)
            needed.append(8e-6 * count / trunk.mbit)
        if self.plan.uplink_mbit > 0:
            by_host: defaultdict[int, float] = defaultdict(float)
            for (source, _), count in flows.items():
                by_host[source] += count
            needed += [8e-6 * count / self.plan.uplink_mbit for count in by_host.values()]
        return max(needed, default=0.0)

    @cached_property
    def headers(self) -> float:
        """The bytes of a full packet for each byte of its payload."""
        return min(
            packet.wire_bytes / len(packet.payload)
            for packets in self._packets.values()
            for packet in packets
            if packet.payload
        )


# ---- The call ------------------------------------------------------------------------------------


class Call:
    """One all-reduce in a trace: rank i is on host i, and all times are of the monotonic clock."""

    def __init__(
        self,
        network: Network,
        frames: Sequence[Frame],
        messages: Sequence[Message],
        times: Sequence[Span],
    ) -> None:
        """Take the frames and messages of a trace.

        Args:
            times: begin and end of each rank's call.

        Raises:
            TraceError: the trace has no data, or the data of several operations.
        """
        self.network = network
        self.times = times
        self.begin = min(begin for begin, _ in times)
        self.end = max(end for _, end in times)
        self.messages = messages
        ops = {frame.op for frame in frames if frame.kind == CHUNK}
        if len(ops) != 1:
            raise TraceError(f"the trace has the data of {len(ops)} operations instead of one")
        own = [frame for frame in frames if frame.op in ops]
        self.chunks = [frame for frame in own if frame.kind == CHUNK]
        self.words = [frame for frame in own if frame.kind == DONE]
        self.credits = [frame for frame in own if frame.kind == CREDIT]
        self._on_lanes: defaultdict[Flow, list[Span]] = defaultdict(list)
        for frame in frames:
            self._on_lanes[frame.flow].append((frame.began, frame.gone))
        self._inputs: defaultdict[tuple[int, int, int, int], list[Frame]] = defaultdict(list)
        for chunk in self.chunks:
            key = (chunk.flow.target, chunk.round, chunk.block, chunk.slice)
            self._inputs[key].append(chunk)

    @cached_property
    def pattern(self) -> str:
        """How the data has travelled."""
        rounds = 1 + max(chunk.round for chunk in self.chunks)
        if rounds == 1:
            return EXCHANGE if len(self.times) == 2 else ONE_SHOT
        return DIRECT if rounds == 2 else RING

    def leg(self, chunk: Frame) -> str:
        """Return the name of the half of the work that a chunk belongs to."""
        if self.pattern in (EXCHANGE, ONE_SHOT):
            return self.pattern
        reduces = 1 if self.pattern == DIRECT else len(self.times) - 1  # rounds
        return "leg 1 (reduce)" if chunk.round < reduces else "leg 2 (gather)"

    def inputs(self, chunk: Frame) -> list[Frame]:
        """Return the chunks that a chunk was made of.

        Raises:
            TraceError: there are none, though the chunk is not of the first round.
        """
        if chunk.round == 0:
            return []
        key = (chunk.flow.source, chunk.round - 1, chunk.block, chunk.slice)
        if key not in self._inputs:
            raise TraceError(
                f"rank {chunk.flow.source} sent block {chunk.block} of slice {chunk.slice} in "
                f"round {chunk.round}, and the trace has no chunk that it received for it"
            )
        return self._inputs[key]

    @property
    def bytes_s(self) -> float:
        """Seconds that the busiest part of the network needs for all frames of the call."""
        return self.network.seconds_for([*self.chunks, *self.words, *self.credits])

    def phases(self) -> list[Phase]:
        """Return the phases of the call. They overlap."""
        kinds: dict[str, list[Carried]] = {}

        def add(what: str, items: Iterable[Carried]) -> None:
            if own := [item for item in items if item.gone <= self.end]:
                kinds[what] = own

        add("Begin to the master", self._said(BEGIN_MESSAGE))
        for what in dict.fromkeys(map(self.leg, sorted(self.chunks, key=lambda one: one.round))):
            add(what, (chunk for chunk in self.chunks if self.leg(chunk) == what))
        add("Done to the master", self._said(DONE_MESSAGE))
        add("kDone between peers", self.words)
        found = [
            Phase(
                what=what,
                begin=min(item.began for item in items),
                end=max(item.arrived for item in items),
                bytes=sum(map(size, items)),
                bytes_s=self.network.seconds_for(items),
            )
            for what, items in kinds.items()
        ]
        if verdicts := self._said(VERDICTS_MESSAGE):
            times = [verdict.began for verdict in verdicts], [one.arrived for one in verdicts]
            found.append(
                Phase(what="verdict of the master", begin=min(times[0]), end=max(times[1]))
            )
        ends = [end for _, end in self.times]
        return [*found, Phase(what="return", begin=min(ends), end=max(ends))]

    def _said(self, kind: int) -> list[Message]:
        return [one for one in self.messages if one.kind == kind and one.began >= self.begin]

    # ---- The critical path, from its end ----

    def path(self) -> list[Step]:
        """Return the steps of the critical path, in order.

        Raises:
            TraceError: it cannot be followed.
        """
        rank = max(range(len(self.times)), key=lambda one: self.times[one][1])
        steps: list[Step] = []
        word, verdict = self._last_word(rank), self._verdict(rank)
        own = min(self._words_of(rank), key=lambda one: one.gone, default=None)
        done = self.begin if own is None else own.gone
        settled = self.end if verdict is None else verdict.arrived
        if word is None or max(word.arrived, done) > settled:
            self._master(rank, verdict, steps)
        elif own is not None and done > word.arrived:
            self._work("returns", rank, done, self.end, steps)
            self._done(own, steps)
        else:
            self._work("returns", rank, word.arrived, self.end, steps)
            self._travel("kDone", word, steps)
            self._done(word, steps)
        return steps[::-1]

    def _last_word(self, rank: int) -> Frame | None:
        """Return the last kDone for a rank, if all others have sent one."""
        words = [word for word in self.words if word.flow.target == rank]
        if len({word.flow.source for word in words}) < len(self.times) - 1:
            return None
        return max(words, key=lambda word: word.arrived)

    def _words_of(self, rank: int) -> list[Frame]:
        return [word for word in self.words if word.flow.source == rank]

    def _verdict(self, rank: int) -> Message | None:
        verdicts = [
            one
            for one in self._said(VERDICTS_MESSAGE)
            if one.flow.target == rank and one.arrived <= self.end
        ]
        return min(verdicts, key=lambda one: one.arrived, default=None)

    def _master(self, rank: int, verdict: Message | None, steps: list[Step]) -> None:
        """Follow the path from a verdict, which nobody sees on the host of the master."""
        until = self.end
        if verdict is not None:
            self._work("returns", rank, verdict.arrived, self.end, steps)
            self._travel("verdict", verdict, steps)
            until = verdict.gone
        reports = [one for one in self._said(DONE_MESSAGE) if one.arrived <= until]
        if not reports:
            raise TraceError("the last rank returned, and neither kDone nor Done led to it")
        last = max(reports, key=lambda one: one.arrived)
        self._work("verdict is made", last.flow.target, last.arrived, until, steps)
        self._travel("Done", last, steps)
        self._done(last, steps)

    def _done(self, word: Frame | Message, steps: list[Step]) -> None:
        """Follow the path from the moment when a rank has announced that it is done."""
        rank, until = word.flow.source, word.gone
        received = [one for one in self.chunks if one.flow.target == rank and one.arrived <= until]
        sent = [one for one in self.chunks if one.flow.source == rank and one.gone <= until]
        if not received:
            raise TraceError(f"rank {rank} was done before it had received anything")
        last_in = max(received, key=lambda one: one.arrived)
        last_out = max(sent, key=lambda one: one.gone, default=None)
        if last_out is not None and last_out.gone > last_in.arrived:
            self._send("is done", word, last_out.gone, until, steps)
            self._sent(last_out, steps)
        else:
            self._send("is done", word, last_in.arrived, until, steps)
            self._arrived(last_in, steps)

    def _arrived(self, chunk: Frame, steps: list[Step]) -> None:
        self._travel(self.leg(chunk), chunk, steps)
        self._sent(chunk, steps)

    def _sent(self, chunk: Frame, steps: list[Step]) -> None:
        """Follow the path from the moment when a chunk had left its host."""
        host = chunk.flow.source
        last = max(self.inputs(chunk), key=lambda one: one.arrived, default=None)
        ready = self.times[host][0] if last is None else last.arrived
        first = chunk.began
        if last is None:
            first = min(one.began for one in self.chunks if one.flow.source == host)
        first = max(ready, first)
        what = self.leg(chunk)
        self._send(f"{what} is sent", chunk, first, chunk.gone, steps)
        self._send("begins" if last is None else "combines", chunk, ready, first, steps)
        if last is not None:
            self._arrived(last, steps)
        elif ready > self.begin:
            late = {LATE: ready - self.begin}
            steps.append(Step(what="calls", host=host, begin=self.begin, end=ready, parts=late))

    # ---- Parts of a step ----

    def _work(self, what: str, host: int, begin: float, end: float, steps: list[Step]) -> None:
        parts = {PROCESSOR: end - begin}
        steps.append(Step(what=what, host=host, begin=begin, end=end, parts=parts))

    def _travel(self, what: str, item: Carried, steps: list[Step]) -> None:
        """Add the step from the departure of the last byte to its arrival."""
        flow, last = item.flow, item.last
        sent = max(last.came, item.gone)  # after it was lost
        left = max(last.left, sent)
        late = item.arrived - left - self.network.distance(flow.source, flow.target)
        parts = {
            LOSS: sent - item.gone,
            BYTES: left - sent,
            DISTANCE: item.arrived - left - max(late, 0.0),
            EMULATOR: max(late, 0.0),
        }
        steps.append(
            Step(
                what=f"{what} travels",
                host=flow.source,
                target=flow.target,
                begin=item.gone,
                end=item.arrived,
                parts=parts,
            )
        )

    def _send(self, what: str, item: Carried, begin: float, end: float, steps: list[Step]) -> None:
        """Add the step at a sender that ends when a frame or message has begun, or is gone."""
        flow = item.flow
        idle = gaps(self.network.busy(flow.source, flow.target), begin, end)
        parts = {BYTES: end - begin - sum(last - first for first, last in idle)}
        for first, last in idle:
            for name, seconds in self._waits(item, first, last).items():
                parts[name] = parts.get(name, 0.0) + seconds
        steps.append(
            Step(
                what=what,
                host=flow.source,
                begin=begin,
                end=end,
                parts=parts,
                sent=self._sent_beside(flow, begin, end),
            )
        )

    def _sent_beside(self, flow: Flow, begin: float, end: float) -> dict[str, int]:
        pairs = self.network.beside(flow.source, flow.target)
        sent: dict[str, int] = {}
        for chunk in self.chunks:
            if (chunk.flow.source, chunk.flow.target) in pairs and begin < chunk.gone <= end:
                sent[self.leg(chunk)] = sent.get(self.leg(chunk), 0) + chunk.bytes
        if lost := self.network.lost(pairs, begin, end):
            sent[AGAIN] = lost
        return sent

    def _waits(self, item: Carried, begin: float, end: float) -> dict[str, float]:
        """Return what a sender waited for while its network was idle."""
        flow = item.flow
        went = self.network.next_packet(flow, end - 1e-9)
        if went is None:
            return {PROCESSOR: end - begin}
        freed = self.network.acknowledged(flow)
        at = bisect_right(freed, went)
        if at > 0 and went - freed[at - 1] <= ACK_S:
            return {WINDOW: end - begin}
        if self._continues(flow, went):
            return {PACING: end - begin}
        granted = [
            credit.arrived
            for credit in self.credits
            if (credit.flow.source, credit.flow.target) == (flow.target, flow.source)
            and begin < credit.arrived <= went <= credit.arrived + CREDIT_S
        ]
        if granted and item.began >= end - 1e-9:
            waited = min(max(granted), end) - begin
            return {CREDIT_WAIT: waited, PROCESSOR: end - begin - waited}
        return {PROCESSOR: end - begin}

    def _continues(self, flow: Flow, went: float) -> bool:
        """Return whether the packet that left then has more bytes of a frame that had begun."""
        frames = self._on_lanes[flow]
        at = bisect_left(frames, went, key=lambda frame: frame[1])
        return at < len(frames) and frames[at][0] < went


def size(item: Carried) -> int:
    """Return the bytes of a frame; messages do not count."""
    return item.bytes if isinstance(item, Frame) else 0
