"""Conclusions from the figures: useful streams, time for a model, and settings that would help.

Pure. Rates are in Mbit/s, times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pccl_backend._limits import LANES_MAX, WAN_RTT_MIN_S
from pccl_backend.probe.client import Rate
from pccl_backend.probe.settings import Buffers, HostSettings

__all__ = [
    "MeasuredPath",
    "Row",
    "advise",
    "buffer_command",
    "knee_of",
    "rate_of_buffer",
    "rows_of",
    "seconds_per_all_reduce",
    "streams_text",
    "wanted_buffer",
]

KNEE_SHARE = 0.9
BUSY_SHARE = 0.9  # of a core: from this share on, the measurement itself limits the rate
NEAR_GAIN = 1.25  # two measurements on a local path differ by less than this anyway
SEGMENT_BYTES = 1448
FIRST_SEGMENTS = 10  # a connection's window at its start and after an idle period
BUFFER_BYTES_MAX = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Row:
    """The rates of one number of streams, in Mbit/s; None if not measured.

    Attributes:
        there, back: rates with one direction at a time.
        both_there, both_back: rates with both directions at once.
        busy: share of a core that the busiest thread used.
    """

    streams: int
    there: float
    back: float
    both_there: float | None = None
    both_back: float | None = None
    busy: float = 0.0

    @property
    def carried(self) -> float:
        """The rate of the slower direction.

        An all-reduce needs both directions, so their rates at once count if they are known.
        """
        if self.both_there is None or self.both_back is None:
            return min(self.there, self.back)
        return min(self.both_there, self.both_back)


@dataclass(frozen=True, kw_only=True)
class MeasuredPath:
    """Everything known about the path between two hosts.

    Attributes:
        congestion: congestion control chosen for the streams; "": the hosts' own.
        lanes_asked: the value of PCCL_LANES; 0: as many as increase the throughput.
    """

    rtt: float
    rows: Sequence[Row]
    here: HostSettings
    there: HostSettings
    congestion: str = ""
    lanes_asked: int = 0

    @property
    def is_wan(self) -> bool:
        return self.rtt >= WAN_RTT_MIN_S

    @property
    def best(self) -> Row:
        return max(self.rows, key=lambda row: row.carried)

    @property
    def usual(self) -> Row:
        """The best row whose number of streams pccl can open.

        If pccl opens fewer streams than every row has, the row with the fewest streams.
        """
        fewest = min(self.rows, key=lambda row: row.streams)
        within = [row for row in self.rows if row.streams <= self.lanes]
        return max(within or [fewest], key=lambda row: row.carried)

    @property
    def lanes(self) -> int:
        """The largest number of connections that pccl opens on the path."""
        return self.lanes_asked or (LANES_MAX if self.is_wan else 1)


def rows_of(rates: Iterable[Rate]) -> list[Row]:
    """Return a row for each measured number of streams, in order of measurement."""
    found: dict[int, dict[str, float]] = {}
    for rate in rates:
        row = found.setdefault(rate.streams, {"busy": 0.0})
        row["busy"] = max(row["busy"], rate.busy)
        prefix = "both_" if rate.direction == "both" else ""
        if rate.there is not None:
            row[prefix + "there"] = rate.there
        if rate.back is not None:
            row[prefix + "back"] = rate.back
    return [Row(streams=streams, **row) for streams, row in found.items()]


def knee_of(rows: Sequence[Row]) -> Row:
    """Return the row with the fewest streams that carry 90 % of the best rate."""
    best = max(row.carried for row in rows)
    fewest_first = sorted(rows, key=lambda row: row.streams)
    return next(row for row in fewest_first if row.carried >= KNEE_SHARE * best)


def streams_text(row: Row) -> str:
    """Return "1 stream", "2 streams"."""
    return f"{row.streams} stream{'s' if row.streams > 1 else ''}"


def seconds_per_all_reduce(model_bytes: float, rate: float, world: int | None) -> float:
    """Return the time for 2(N-1)/N of the model at this rate; `world` None: N is large."""
    share = 2.0 if world is None else 2 * (world - 1) / world
    return share * model_bytes / (rate * 1e6 / 8)


def advise(measured: MeasuredPath) -> list[str]:
    """Return the advice, each item as text of one or more lines; empty if nothing is to be set."""
    found = [_lanes(measured), _measurement(measured)]
    if measured.is_wan:
        found += _of_hosts(measured, _send_buffer)
        found += _of_hosts(measured, _receive_buffer)
        found += _of_hosts(measured, _slow_start)
        found += _of_hosts(measured, _congestion)
    return [text for text in found if text]


@dataclass(frozen=True, kw_only=True)
class _End:
    """One of the two hosts, or both if they are alike.

    Attributes:
        sends, receives: highest measured rates, Mbit/s.
        sends_alone, receives_alone: the highest rates with one stream; 0 if not measured.
    """

    name: str
    host: HostSettings
    sends: float
    receives: float
    sends_alone: float
    receives_alone: float


def _of_hosts(
    measured: MeasuredPath, advice: Callable[[MeasuredPath, _End], str | None]
) -> list[str | None]:
    """Return the advice for each host, or one advice for both if it applies to both alike."""
    alone = [row for row in measured.rows if row.streams == 1]
    there, there_alone = _most(measured.rows, "there"), _most(alone, "there")
    back, back_alone = _most(measured.rows, "back"), _most(alone, "back")
    here = _End(
        name="this host",
        host=measured.here,
        sends=there,
        receives=back,
        sends_alone=there_alone,
        receives_alone=back_alone,
    )
    other = _End(
        name="the other host",
        host=measured.there,
        sends=back,
        receives=there,
        sends_alone=back_alone,
        receives_alone=there_alone,
    )
    texts = [advice(measured, here), advice(measured, other)]
    if all(texts) and measured.here == measured.there:
        most, alone_most = max(there, back), max(there_alone, back_alone)
        both = _End(
            name="both hosts",
            host=measured.here,
            sends=most,
            receives=most,
            sends_alone=alone_most,
            receives_alone=alone_most,
        )
        return [advice(measured, both)]
    return texts


def _most(rows: Sequence[Row], direction: str) -> float:
    one_way = [getattr(row, direction) for row in rows]
    both_ways = [getattr(row, f"both_{direction}") or 0.0 for row in rows]
    return max([*one_way, *both_ways], default=0.0)


def _lanes(measured: MeasuredPath) -> str | None:
    knee = knee_of(measured.rows)
    if knee.streams <= measured.lanes:
        return None
    if measured.lanes_asked:
        return (
            f"lanes: PCCL_LANES is {measured.lanes_asked}, and the knee is at {knee.streams} "
            "streams: "
            + ("unset it" if measured.is_wan else f"PCCL_LANES={min(knee.streams, LANES_MAX)}")
        )
    if measured.is_wan:
        return (
            f"lanes: the knee is at {knee.streams} streams, and pccl opens {LANES_MAX}, the most "
            "that PCCL_LANES can ask for too: what lets one stream carry more helps here"
        )
    lanes = min(knee.streams, LANES_MAX)
    fewest = min(measured.rows, key=lambda row: row.streams)
    if fewest.streams > measured.lanes or knee.carried < NEAR_GAIN * fewest.carried:
        return None
    return (
        f"lanes: on a local path, with an RTT under {WAN_RTT_MIN_S * 1e3:g} ms, pccl opens "
        f"{measured.lanes}, which carried "
        f"{fewest.carried:,.0f} Mbit/s; {knee.streams} carried {knee.carried:,.0f}. On all peers:\n"
        f"    PCCL_LANES={lanes}"
    )


def _measurement(measured: MeasuredPath) -> str | None:
    busiest = max(measured.rows, key=lambda row: row.busy)
    if busiest.busy < BUSY_SHARE:
        return None
    return (
        f"the measurement: a thread of it took {100 * busiest.busy:.0f} % of a core with "
        f"{streams_text(busiest)}, so the network may carry more than is shown"
    )


def _send_buffer(measured: MeasuredPath, end: _End) -> str | None:
    if end.host.wmem is None:
        return None
    name = f"tcp_wmem of {end.name}"
    return _buffer(measured, name, end.host.wmem, rate=end.sends, alone=end.sends_alone)


def _receive_buffer(measured: MeasuredPath, end: _End) -> str | None:
    if end.host.rmem is None:
        return None
    name = f"tcp_rmem of {end.name}"
    return _buffer(measured, name, end.host.rmem, rate=end.receives, alone=end.receives_alone)


def _buffer(
    measured: MeasuredPath, name: str, buffers: Buffers, *, rate: float, alone: float
) -> str | None:
    """Advise a larger buffer if it holds less than twice the rate x RTT.

    A connection may have at least half of its buffer in flight, and it needs rate x RTT in flight.
    If one stream alone carried at least 90 % of the rate, its buffer was no limit.
    """
    in_flight = rate * 1e6 / 8 * measured.rtt
    if buffers.most >= 2 * in_flight or alone >= KNEE_SHARE * rate:
        return None
    stream = max(rate_of_buffer(buffers.most, measured.rtt), alone)
    text = (
        f"buffers: {name} ends at {buffers.most / MIB:.1f} MiB, with which one stream "
        f"carries about {stream:,.0f} Mbit/s. To carry {rate:,.0f} alone it has "
        f"{in_flight / MIB:.1f} MiB in flight (bandwidth-delay product) and needs twice that"
    )
    if buffers.most * measured.lanes >= 2 * in_flight:
        text += f". pccl's {measured.lanes} lanes make up for it; with more, fewer do"
    setting, _, _ = name.partition(" ")
    line = buffer_command(setting, buffers, wanted_buffer(rate, measured.rtt))
    return f"{text}:\n    {line}"


def rate_of_buffer(most: int, rtt: float) -> float:
    """Return the rate of one connection with a buffer of `most` bytes, in Mbit/s.

    Half of a buffer may be in flight.

    Example:
        >>> rate_of_buffer(4_000_000, 0.08)
        200.0
    """
    return most / 2 / rtt * 8 / 1e6


def wanted_buffer(rate: float, rtt: float) -> int:
    """Return the bytes of a buffer with which one connection carries `rate` Mbit/s.

    Example:
        >>> wanted_buffer(200.0, 0.08)
        4194304
    """
    return int(min(2 ** math.ceil(math.log2(2 * rate * 1e6 / 8 * rtt)), BUFFER_BYTES_MAX))


def buffer_command(setting: str, buffers: Buffers, wanted: int) -> str:
    """Return the command that sets the largest buffer.

    Example:
        >>> buffer_command("tcp_rmem", Buffers(least=4096, first=131072, most=1), 8388608)
        'sudo sysctl -w net.ipv4.tcp_rmem="4096 131072 8388608"'
    """
    return f'sudo sysctl -w net.ipv4.{setting}="{buffers.least} {buffers.first} {wanted}"'


def _slow_start(measured: MeasuredPath, end: _End) -> str | None:
    # If bbr is allowed, pccl borrows it to keep its windows (csrc/net/socket.h).
    if not end.host.slow_start_after_idle or "bbr" in end.host.allowed:
        return None
    knee = knee_of(measured.rows)
    window = knee.carried * 1e6 / 8 * measured.rtt / knee.streams / SEGMENT_BYTES
    doublings = math.ceil(math.log2(max(window / FIRST_SEGMENTS, 1)))
    if doublings == 0:
        return None
    return (
        f"idle connections: those of {end.name} begin slowly after a silence, about {doublings} "
        f"round trips ({doublings * measured.rtt:.2g} s) for each synchronisation. pccl keeps "
        "their speed where it may choose bbr; elsewhere:\n"
        "    sudo sysctl -w net.ipv4.tcp_slow_start_after_idle=0"
    )


def _congestion(measured: MeasuredPath, end: _End) -> str | None:
    host, used = end.host, measured.congestion or end.host.congestion
    if not used or used.startswith("bbr") or not host.available:
        return None
    title = f"congestion control of {end.name}: {used}. bbr may carry more where packets are lost"
    retry = "to see whether it does, measure with PCCL_TCP_CONGESTION=bbr, which peers obey too"
    if "bbr" not in host.available:
        return f"{title}, if the kernel has it:\n    sudo modprobe tcp_bbr\n  then, {retry}"
    if host.allowed and "bbr" not in host.allowed:
        allowed = " ".join((*host.allowed, "bbr"))
        line = f'sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="{allowed}"'
        return f"{title}; it is there, but only root may choose it:\n    {line}\n  then, {retry}"
    return f"{title}; it is there: {retry}"
