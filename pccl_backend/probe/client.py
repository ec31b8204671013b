"""Measures against a server: RTT, and the rate for each number of streams.

wire.py shows the normal course. Both ends count for the same length of time, from `go` on. The
server begins and ends half an RTT later, so that both directions get their full time. This end
sends until it has the server's result.

Every failure is a ProbeError, which names the other end and says what to do.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

from pccl_backend._limits import WAN_RTT_MIN_S
from pccl_backend.probe.flow import Carried, Flow, Span
from pccl_backend.probe.settings import HostSettings
from pccl_backend.probe.wire import (
    ANSWER_TIMEOUT_S,
    HELLO_TIMEOUT_S,
    Channel,
    Direction,
    Message,
    Trial,
    WireError,
    close_hard,
    hello,
    number,
    printable,
    suit,
)

__all__ = ["Client", "Plan", "ProbeError", "Rate"]

CONNECT_TIMEOUT_S = 10.0
PINGS = 11


class ProbeError(Exception):
    """The measurement could not be made; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The measurements to make.

    Attributes:
        streams: numbers of streams, in ascending order.
        seconds: duration of each measurement.
        directions: directions to measure for each number of streams.
        congestion: as in Trial.
    """

    streams: tuple[int, ...]
    seconds: float
    directions: tuple[Direction, ...]
    congestion: str = ""

    @property
    def trials(self) -> int:
        return len(self.streams) * len(self.directions)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The result of one trial, in Mbit/s; None for a direction that was not measured.

    Attributes:
        busy: share of a core that the busiest thread of both ends used.
    """

    streams: int
    direction: Direction
    there: float | None
    back: float | None
    busy: float


class Client:
    """A connection to a server. Use it as `with Client(...) as client`, from one thread.

    Args:
        host: the server's name or address.
        port: the server's port.
        timeout_s: limit for the answer to the hello.

    Raises:
        ProbeError: no server answers, it is not a probe server, or it is busy.
    """

    def __init__(self, host: str, port: int, *, timeout_s: float = HELLO_TIMEOUT_S) -> None:
        self._name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._connection = self._connect(host, port)
        self._address = self._connection.getpeername()[:2]
        self._channel = Channel(self._connection)
        try:
            welcome = self._introduce(timeout_s)
        except BaseException:
            self._connection.close()
            raise
        self._token = str(welcome.get("token"))
        self.settings = HostSettings.from_texts(welcome.get("settings"))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def rtt(self) -> float:
        """Return the median RTT of a few messages, in seconds."""
        seconds = []
        try:
            for _ in range(PINGS):
                sent_at = time.monotonic()
                self._channel.send({"type": "ping"})
                self._channel.expect("pong")
                seconds.append(time.monotonic() - sent_at)
        except WireError as error:
            raise self._lost(error) from None
        return statistics.median(seconds)

    def measure(self, plan: Plan, rtt: float) -> Iterator[Rate]:
        """Yield the figures one after another, as soon as each is measured."""
        for streams in plan.streams:
            for direction in plan.directions:
                trial = Trial(
                    streams=streams,
                    seconds=plan.seconds,
                    direction=direction,
                    wan=rtt >= WAN_RTT_MIN_S,
                    congestion=plan.congestion,
                )
                try:
                    yield self._run(trial)
                except WireError as error:
                    raise self._lost(error) from None

    def _connect(self, host: str, port: int) -> socket.socket:
        name = self._name
        try:
            return socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
        except ConnectionRefusedError:
            raise ProbeError(
                f"{name} refuses connections: is `pccl probe --serve` running there? To be reached "
                "by other machines it needs --host 0.0.0.0 --insecure"
            ) from None
        except TimeoutError:
            raise ProbeError(
                f"{name} does not answer within {CONNECT_TIMEOUT_S:.0f} s: is the address right, "
                f"and does a firewall let port {port} through?"
            ) from None
        except (OSError, UnicodeError) as error:
            raise ProbeError(f"cannot connect to {name}: {error}") from None

    def _introduce(self, timeout_s: float) -> Message:
        try:
            self._channel.send(hello("control"))
            answer = self._channel.receive(timeout_s)
        except WireError as error:
            raise self._no_probe(str(error)) from None
        if answer.get("type") == "busy":
            raise ProbeError(f"{self._name} is busy with another client: try again in a minute")
        if answer.get("type") != "welcome":
            raise self._no_probe(f"answered {printable(answer)}")
        return answer

    def _no_probe(self, what: str) -> ProbeError:
        return ProbeError(
            f"{self._name} is no probe server (it {what}): start `pccl probe --serve` there, and "
            "name its port, not the one of `pccl master`"
        )

    def _lost(self, error: WireError) -> ProbeError:
        return ProbeError(f"{self._name} {error}; the measurement ends here: try again")

    def _run(self, trial: Trial) -> Rate:
        self._channel.send(trial.to_message())
        self._channel.expect("ready")
        streams = self._open(trial)
        try:
            carried, result = self._carry(trial, streams)
        finally:
            for stream in streams:
                close_hard(stream)
        self._channel.send({"type": "done"})
        return self._rate(trial, carried, result)

    def _open(self, trial: Trial) -> list[socket.socket]:
        """Connect all streams at once: connecting one by one would take one RTT for each."""
        with ThreadPoolExecutor(trial.streams) as pool:
            attempts = [pool.submit(self._open_one, trial) for _ in range(trial.streams)]
        opened = [each.result() for each in attempts if each.exception() is None]
        failures = [error for each in attempts if (error := each.exception())]
        if failures:
            for stream in opened:
                close_hard(stream)
            raise failures[0]
        return opened

    def _open_one(self, trial: Trial) -> socket.socket:
        try:
            stream = socket.create_connection(self._address, timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            raise WireError(f"takes no further connection: {error}") from None
        try:
            suit(stream, wan=trial.wan, congestion=trial.congestion)
            channel = Channel(stream)
            channel.send(hello("data", self._token))
            channel.expect("joined")
        except BaseException:
            close_hard(stream)
            raise
        return stream

    def _carry(self, trial: Trial, streams: Sequence[socket.socket]) -> tuple[Carried, Message]:
        now = time.monotonic()
        flow = Flow(
            streams,
            sends=trial.direction != "back",
            receives=trial.direction != "there",
            span=Span(begin=now + trial.warm_up_s, end=now + trial.seconds),
        )
        self._channel.send({"type": "go"})
        flow.start()
        try:
            result = self._channel.expect("result", trial.seconds + ANSWER_TIMEOUT_S)
        finally:
            carried = flow.stop()
        return carried, result

    def _rate(self, trial: Trial, carried: Carried, result: Message) -> Rate:
        lost = max(carried.lost, int(number(result, "lost")))
        if lost > 0:
            raise WireError(f"lost {lost} of {trial.streams} streams in a measurement")
        scale = 8e-6 / (trial.seconds - trial.warm_up_s)
        return Rate(
            streams=trial.streams,
            direction=trial.direction,
            there=number(result, "bytes") * scale if trial.direction != "back" else None,
            back=carried.bytes * scale if trial.direction != "there" else None,
            busy=max(carried.busy, number(result, "busy")),
        )
