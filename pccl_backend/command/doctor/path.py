"""Gathers the facts about the path to a master: name, routes, connections, greetings, the way back.

A greeting is a Hello that names no run: every master refuses it, and changes nothing. The second
one is longer than a packet. It shows whether large packets arrive, and is sent only if the first
one was answered. So is the question whether the master can connect to this machine: it connects to
a port on which a peer would listen, and sends a random number.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pccl_backend._settings import PeerSettings
from pccl_backend._tokens import Token
from pccl_backend.command.doctor.bounded import gathered, last_of
from pccl_backend.command.doctor.facts import Address, DialBack, Greeting, Path
from pccl_backend.command.doctor.machine import LOOKED_AT, device_of, route_to
from pccl_backend.command.endpoint import Endpoint

__all__ = ["gather"]

GATHER_S = 17.5  # for everything below, whose own limits end earlier
RESOLVE_S = 4.0
CONNECT_S = 4.0
GREET_S = 3.5  # for the connection, and again for the answer
DIAL_BACK_S = 4.0  # for the connection, and again for the answer; a master dials for at most 3 s
ARRIVE_S = 0.5  # for a connection of the master that it has made, and again for its bytes
CALLERS_MAX = 4  # connections to the port that others may make at the same time
PROOF_BYTES = 8
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
    return last_of(lambda: _steps(path, peer), GATHER_S) or path


def _steps(path: Path, peer: PeerSettings) -> Iterator[Path]:
    """Yield the facts after each step."""
    token = peer.token
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
    if path.greeting is None or path.greeting.ending != "answered":
        yield path
        return
    yield (path := replace(path, dial_back=_dial_back(host, path.port, peer)))
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


# --- The way back ---------------------------------------------------------------------------------


def _dial_back(host: str, port: int, peer: PeerSettings) -> DialBack:
    """Ask the master to connect to a port on which a peer of this machine would listen."""
    with contextlib.ExitStack() as stack:
        listener = _listener(peer.port_range)
        own = 0
        if listener is not None:
            stack.enter_context(listener)
            own = _outside(peer, listener.getsockname()[1])
        seconds = int(DIAL_BACK_S * 1000)
        asked = {"host": host, "port": port, "own_port": own, "milliseconds": seconds}
        with Endpoint({"dial_back": asked}, [peer.token] if peer.token else []) as endpoint:
            line = next(endpoint.lines(), None)
        if line is None or "dialed" not in line:
            return DialBack(port=own, why=line["why"] if line else "no answer")
        found = line["dialed"]
        arrived = bool(found["connected"] and listener and _arrives(listener, found["proof"]))
    return DialBack(
        port=own,
        host=found["host"],
        connected=found["connected"],
        fault="" if found["connected"] else found["fault"],
        arrived=arrived,
        ahead=found["ahead"],
    )


def _listener(ports: tuple[int, int]) -> socket.socket | None:
    """Listen on a port of the range, on all addresses. None: all of them are in use."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    first, last = ports
    for port in range(first, min(last, first + LOOKED_AT - 1) + 1):
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    return None


def _outside(peer: PeerSettings, port: int) -> int:
    """Return the number that others use for a port of this machine (PCCL_ADVERTISE)."""
    if peer.advertised_ports == (0, 0):
        return port
    return peer.advertised_ports[0] + port - peer.port_range[0]


def _arrives(listener: socket.socket, proof: str) -> bool:
    """Return whether a connection with these bytes, as hexadecimal digits, has arrived."""
    listener.settimeout(ARRIVE_S)
    for _ in range(CALLERS_MAX):
        try:
            caller, _ = listener.accept()
        except OSError:
            return False
        with caller, contextlib.suppress(OSError):
            caller.settimeout(ARRIVE_S)
            if caller.recv(PROOF_BYTES, socket.MSG_WAITALL).hex() == proof:
                return True
    return False
