"""Gathers the facts about the path to a master: name, routes, connections, and two greetings.

A greeting is a Hello that names no run: every master refuses it, and changes nothing. The second
one is longer than a packet. It shows whether large packets arrive, and is sent only if the first
one was answered.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pccl_backend._settings import PeerSettings
from pccl_backend._tokens import Token
from pccl_backend.command.doctor.bounded import gathered, last_of
from pccl_backend.command.doctor.facts import Address, Greeting, Path
from pccl_backend.command.doctor.machine import device_of, route_to
from pccl_backend.command.endpoint import Endpoint

__all__ = ["gather"]

GATHER_S = 18.0  # for everything below, whose own limits end earlier
RESOLVE_S = 4.0
CONNECT_S = 4.0
GREET_S = 3.5  # for the connection, and again for the answer
ADDRESSES_TRIED = 4
PADDING = 6000  # bytes: several full packets of an Ethernet


def gather(host: str, port: int, peer: PeerSettings) -> Path:
    """Return the facts about the path to a master. It takes at most GATHER_S, and raises nothing.

    Args:
        host: name or address.
        port: number of the port.
        peer: the settings. If they have a token, it is shown to the master, which must prove that
            it knows it. Otherwise the greetings are plain text.
    """
    token = peer.token.id if peer.token else ""
    path = Path(host=host, port=port, token=token, is_insecure=peer.insecure)
    return last_of(lambda: _steps(path, peer.token), GATHER_S) or path


def _steps(path: Path, token: Token | None) -> Iterator[Path]:
    """Yield the facts after each step."""
    yield (path := _resolved(path))
    targets = {one.host: one for one in path.addresses or ()}
    calls = {host: _connecting(one, path.port) for host, one in targets.items()}
    reached = gathered(calls, 2 * CONNECT_S)
    path = replace(path, addresses=tuple(reached.get(host, targets[host]) for host in targets))
    yield path
    if path.open is None:
        return
    host = path.open.host
    path = replace(path, greeting=_greet(host, path.port, token, 0))
    yield path
    if path.greeting is not None and path.greeting.ending == "answered":
        yield replace(path, large_greeting=_greet(host, path.port, token, PADDING))


def _resolved(path: Path) -> Path:
    def look_up() -> list[Any] | str:
        try:
            return socket.getaddrinfo(path.host, path.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            return getattr(error, "strerror", None) or str(error)

    found = gathered({"": look_up}, RESOLVE_S).get("")
    if found is None:
        return replace(path, resolve_error=f"no answer within {RESOLVE_S:g} s")
    if isinstance(found, str):
        return replace(path, addresses=(), resolve_error=found)
    hosts = {str(one[4][0]): one[0] for one in found}
    addresses = [_routed(host, family) for host, family in hosts.items()]
    return replace(path, addresses=tuple(addresses[:ADDRESSES_TRIED]))


def _routed(host: str, family: socket.AddressFamily) -> Address:
    source, error = route_to(family, host)
    return Address(host=host, source=source, device=device_of(source), error=error)


def _connecting(address: Address, port: int) -> Any:
    def connect() -> Address:
        if not address.source:
            return address
        began = time.monotonic()
        try:
            socket.create_connection((address.host, port), CONNECT_S).close()
        except TimeoutError:
            return replace(address, connect="no answer")
        except ConnectionRefusedError:
            return replace(address, connect="refused")
        except OSError as error:
            text = error.strerror or str(error)
            return replace(address, connect="unreachable", error=text)
        return replace(address, connect="open", seconds=time.monotonic() - began)

    return connect


def _greet(host: str, port: int, token: Token | None, padding: int) -> Greeting | None:
    asked = {"host": host, "port": port, "padding": padding, "milliseconds": int(GREET_S * 1000)}
    with Endpoint({"greet": asked}, [token] if token else []) as endpoint:
        line = next(endpoint.lines(), None)
    if line is None:
        return None
    return Greeting(
        ending=line["greeting"],
        code=line["code"],
        why=line["why"],
        rtt=line["rtt"],
        unacknowledged=line["unacknowledged"],
    )
