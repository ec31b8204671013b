"""The other end of a probe: `pccl probe --serve`.

The normal course: a client connects and sends a hello; a Session with a thread of its own serves
its requests. The Server accepts all connections and passes the data connections to the Session: the
hello of a data connection contains the token from the client's welcome.

A fault costs only the connection at fault. A connection whose hello is late or malformed is closed.
If too many connections are pending without a hello, the oldest one is closed. A client that breaks
a rule, stays silent or disappears ends its session, and the next client is served. During a
session, other clients get the answer that the server is busy.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pccl_backend.probe import settings
from pccl_backend.probe.flow import Carried, Flow, Span
from pccl_backend.probe.wire import (
    ANSWER_TIMEOUT_S,
    HELLO_TIMEOUT_S,
    LINE_BYTES_MAX,
    STREAMS_MAX,
    Channel,
    Message,
    Trial,
    WireError,
    close_hard,
    hello,
    line_of,
    parse,
    suit,
)

__all__ = ["Server"]

PENDING_MAX = 2 * STREAMS_MAX
SESSION_S_MAX = 3600.0  # enough for every measurement of a client at a minute each
TICK_S = 0.1
JOIN_TIMEOUT_S = 5.0


@dataclass(kw_only=True)
class _Pending:
    """A pending connection: its hello has not come yet."""

    connection: socket.socket
    host: str
    until: float
    heard: bytearray = field(default_factory=bytearray)


class Server:
    """Serves one client at a time, from run() to stop().

    Args:
        host: address to listen on; empty: all addresses.
        port: port to listen on; 0: any free one.
        show: receives a line about each client.
        hello_timeout_s: longest time until a connection's hello.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        show: Callable[[str], None],
        hello_timeout_s: float = HELLO_TIMEOUT_S,
    ) -> None:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._listener = socket.create_server(
            address[:2],
            family=family,
            backlog=PENDING_MAX,
            dualstack_ipv6=family == socket.AF_INET6 and socket.has_dualstack_ipv6(),
        )
        self._listener.setblocking(False)
        self._show = show
        self._hello_timeout_s = hello_timeout_s
        self._pending: dict[socket.socket, _Pending] = {}  # pending connections, oldest first
        self._session: _Session | None = None
        self._stop = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return host, port

    def run(self) -> None:
        """Serve until stop() or an exception, such as Ctrl-C; then close everything."""
        try:
            while not self._stop.is_set():
                for key, _ in self._selector.select(TICK_S):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj in self._pending:  # otherwise it was closed a moment ago
                        self._hear(self._pending[key.fileobj])
                self._drop_late()
        finally:
            self._close()

    def stop(self) -> None:
        """Make run() return soon. Any thread may call it."""
        self._stop.set()

    def _accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # the client is gone again, or no descriptor is left
            self._drop_eldest()
            self._stop.wait(TICK_S)
            return
        if len(self._pending) >= PENDING_MAX:
            self._drop_eldest()
        connection.setblocking(False)
        until = time.monotonic() + self._hello_timeout_s
        pending = _Pending(connection=connection, host=address[0], until=until)
        self._pending[connection] = pending
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, pending: _Pending) -> None:
        try:
            heard = pending.connection.recv(LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        pending.heard += heard
        if not heard or len(pending.heard) > LINE_BYTES_MAX:
            self._drop(pending)
        elif pending.heard.endswith(b"\n"):  # a client sends nothing more before the answer
            self._admit(pending)

    def _admit(self, pending: _Pending) -> None:
        try:
            said = parse(bytes(pending.heard[:-1]))
        except WireError:
            said = {}
        role, token = said.get("role"), said.get("token")
        known = role in ("control", "data") and isinstance(token, str)
        if not known or said != hello(str(role), str(token)):
            self._drop(pending)
            return
        session = self._session if self._session and self._session.is_alive() else None
        if role == "control" and session:
            self._tell(pending, {"type": "busy"})
            self._drop(pending)
        elif role == "control":
            self._forget(pending)
            self._session = _Session(pending.connection, pending.host, self._show)
            self._session.start()
        else:
            self._forget(pending)
            if session and session.take(pending.connection, token):
                self._tell(pending, {"type": "joined"})
            else:
                pending.connection.close()

    def _tell(self, pending: _Pending, message: Message) -> None:
        with contextlib.suppress(OSError):
            pending.connection.send(line_of(message))  # fits, because it is the first send

    def _drop_late(self) -> None:
        now = time.monotonic()
        for pending in list(self._pending.values()):
            if pending.until <= now:
                self._drop(pending)

    def _drop_eldest(self) -> None:
        for pending in list(self._pending.values())[:1]:
            self._drop(pending)

    def _drop(self, pending: _Pending) -> None:
        self._forget(pending)
        pending.connection.close()

    def _forget(self, pending: _Pending) -> None:
        self._selector.unregister(pending.connection)
        del self._pending[pending.connection]

    def _close(self) -> None:
        for pending in list(self._pending.values()):
            self._drop(pending)
        self._selector.close()
        self._listener.close()
        if self._session:
            self._session.end()


class _Session(threading.Thread):
    """One client, from hello to end, in its own thread. The Server calls the public methods."""

    def __init__(self, connection: socket.socket, client: str, show: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._client = client
        self._show = show
        self._token = secrets.token_hex(16)
        self._until = time.monotonic() + SESSION_S_MAX
        self._lock = threading.Lock()
        self._wanted = 0  # streams that may still join; the lock guards it and _streams
        self._streams: list[socket.socket] = []

    def take(self, stream: socket.socket, token: object) -> bool:
        """Take over a stream; refuse it if its token is wrong or no stream is missing."""
        with self._lock:
            if token != self._token or self._wanted == 0:
                return False
            self._wanted -= 1
            self._streams.append(stream)
            return True

    def end(self) -> None:
        """End the session from another thread, and wait until it has ended."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self.join(JOIN_TIMEOUT_S)

    def run(self) -> None:
        self._show(f"client {self._client}: measures")
        trials = 0
        try:
            channel = Channel(self._connection)
            said = {"type": "welcome", "token": self._token, "settings": settings.read()}
            channel.send(said)
            while time.monotonic() < self._until:
                trials += self._answer(channel)
            raise WireError(f"was here for {SESSION_S_MAX:.0f} s, which is enough")
        except (WireError, OSError) as error:
            self._show(f"client {self._client}: {error}, after {trials} measurements")
            with contextlib.suppress(OSError):
                self._connection.send(line_of({"type": "error", "text": str(error)}))
        finally:
            self._close_streams()
            self._connection.close()

    def _answer(self, channel: Channel) -> int:
        """Do what the next line asks for; return the number of trials, 0 or 1."""
        asked = channel.receive(ANSWER_TIMEOUT_S)
        if asked.get("type") == "ping":
            channel.send({"type": "pong"})
            return 0
        if asked.get("type") != "trial":
            raise WireError("asked for nothing that there is")
        trial = Trial.from_message(asked)
        try:
            streams = self._gather(channel, trial)
            carried = self._carry(channel, trial, streams)
            said = {"type": "result", "bytes": carried.bytes, "lost": carried.lost}
            channel.send({**said, "busy": round(carried.busy, 3)})
            channel.expect("done")
        finally:
            self._close_streams()
        return 1

    def _gather(self, channel: Channel, trial: Trial) -> list[socket.socket]:
        with self._lock:
            self._wanted = trial.streams
        channel.send({"type": "ready"})
        channel.expect("go")
        with self._lock:
            if self._wanted > 0:
                raise WireError(f"said go while {self._wanted} streams were missing")
            return list(self._streams)

    def _carry(self, channel: Channel, trial: Trial, streams: list[socket.socket]) -> Carried:
        now = time.monotonic()
        for stream in streams:
            suit(stream, wan=trial.wan, congestion=trial.congestion)
        flow = Flow(
            streams,
            sends=trial.direction != "there",
            receives=trial.direction != "back",
            span=Span(begin=now + trial.warm_up_s, end=now + trial.seconds),
        )
        flow.start()
        try:
            quiet = channel.is_quiet_for(trial.seconds)
        finally:
            carried = flow.stop()
        if not quiet:
            channel.receive(ANSWER_TIMEOUT_S)  # raises if the client has gone
            raise WireError("spoke in the middle of a measurement")
        return carried

    def _close_streams(self) -> None:
        with self._lock:
            streams, self._streams, self._wanted = self._streams, [], 0
        for stream in streams:
            close_hard(stream)
