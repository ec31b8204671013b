"""Measures against a server: RTT, and the rate for each number of streams.

`pccl-probe` measures (command/endpoint.py). This module requests the measurements, and explains
failures: each is a ProbeError, which names the other end and the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from pccl_backend._settings import printable
from pccl_backend._tokens import Token
from pccl_backend.command.endpoint import Endpoint
from pccl_backend.probe.settings import HostSettings

__all__ = ["Client", "Direction", "Plan", "ProbeError", "Rate"]

Direction = Literal["there", "back", "both"]  # `there`: from the client to the server


class ProbeError(Exception):
    """The measurement could not be made; the message has the reason and a remedy."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The measurements to make.

    Attributes:
        streams: numbers of streams, in ascending order.
        seconds: duration of each measurement.
        directions: directions to measure for each number of streams.
        congestion: TCP's congestion control; empty: as pccl would choose it.
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
        busy: share of a core that the thread with the data used, at the busier end.
    """

    streams: int
    direction: Direction
    there: float | None
    back: float | None
    busy: float


class Client:
    """A measurement against a server: `with Client(...) as client`, from one thread.

    Args:
        host: the server's name or address.
        port: the server's port.
        plan: the measurements to make.
        token: proves this end to the other; None: both ends speak plain text.

    Attributes:
        rtt: median RTT of a few messages, in seconds.
        settings: the settings of the server's system.

    Raises:
        ProbeError: no server answers, it is not a probe server, it is busy, or one end has not
            proven that it knows the token.
    """

    def __init__(self, host: str, port: int, plan: Plan, token: Token | None = None) -> None:
        self._name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._port = port
        self._token = token
        asked = {
            "host": host,
            "port": port,
            "streams": plan.streams,
            "directions": plan.directions,
            "milliseconds": round(plan.seconds * 1000),
            "congestion": plan.congestion,
        }
        self._endpoint = Endpoint({"measure": asked}, [token] if token else [])
        try:
            self._lines = self._endpoint.lines()
            ready = self._next()
        except BaseException:
            self._endpoint.close()
            raise
        assert ready is not None
        self.rtt: float = ready["rtt"]
        self.settings = HostSettings.from_texts(_parsed(ready["about"]))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._endpoint.close()

    def measure(self) -> Iterator[Rate]:
        """Yield the figures one after another, as soon as each is measured."""
        while (measured := self._next()) is not None:
            yield Rate(**measured)

    def _next(self) -> dict[str, Any] | None:
        line = next(self._lines, None)
        if line is not None and "failed" in line:
            raise ProbeError(printable(self._explain(line["failed"], line["why"])))
        return line

    def _explain(self, kind: str, why: str) -> str:
        if kind in ("no answer", "no connection"):
            hint = f". Is the address right, and does a firewall let port {self._port} through?"
            return f"cannot {why}{hint if kind == 'no answer' else ''}"
        token, hint = self._token, ""
        refused = "admits only clients with a token: set PCCL_SECRET_FILE here"
        if token is not None:
            hint = ", with the same token in PCCL_SECRET_FILE"
            refused = (
                f"does not prove that it knows the token {token.id} ({why}): set PCCL_SECRET_FILE "
                "there to a file with the same token, or use --keyring where the master is"
            )
        explained = {
            "refused": "refuses connections: is `pccl probe --serve` running there? To be reached "
            "by other machines it needs --host 0.0.0.0, and a token or --insecure",
            "busy": "is busy with another client: try again in a minute",
            "token": refused,
            "no probe": f"is no probe server ({why}): start `pccl probe --serve` there{hint}, and "
            "name its port, not the one of `pccl master`",
            "lost": f"{why}; the measurement ends here: try again",
        }
        return f"{self._name} {explained[kind]}"


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return None
