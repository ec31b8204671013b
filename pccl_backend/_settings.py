"""Everything a user can set: the parts of a pccl:// URL and the environment variables.

A parameter of the URL overrides the environment variable with the same meaning. Nothing is guessed:
an unknown, repeated, empty or malformed parameter raises ValueError, and the message shows the
value and a valid form. So does a variable, with two exceptions. An empty variable counts as unset,
because a script that exports an unset value gives an empty one. And a variable PCCL_... that is no
setting may belong to another program: it is an error only if it looks like a misspelt setting.
This module does not import torch.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pccl_backend import _limits, _tokens
from pccl_backend._limits import HOST_BYTES_MAX, PORT_MAX
from pccl_backend._tokens import Token

__all__ = [
    "OpenRun",
    "PeerSettings",
    "check_integer",
    "check_name",
    "check_names",
    "decoded",
    "is_printable",
    "printable",
    "read_url",
]

DEFAULT_RUN = "default"
LOG_LEVELS = ("error", "warning", "info", "debug")
PATTERNS = ("ring", "direct")
# The range of each number, as (first, last).
MEMBERS = (1, _limits.MEMBERS_MAX)
PEER_GROUPS = (0, _limits.PEER_GROUP_MAX)
TIMEOUT_S = (_limits.PEER_TIMEOUT_MIN_S, _limits.PEER_TIMEOUT_MAX_S)
LANES = (1, _limits.LANES_MAX)

# The same set as in csrc/base/text.cc: control characters, and characters that format or hide text.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_USERINFO = re.compile(r"^([a-z][a-z0-9+.-]*://)?.*(@|%40)", re.DOTALL | re.IGNORECASE)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PeerSettings:
    """How this process takes part in any run. Times are in seconds.

    If a setting of the run is not given, it is None: this peer takes its value from the run. The
    first peer of a run decides these settings; the defaults are in `csrc/protocol/run_settings.h`.

    Attributes:
        on_peer_loss: setting of the run: fate of the operations in flight when a peer is lost
            (PCCL_ON_PEER_LOSS): "raise" or "retry".
        pattern: setting of the run: how a large all-reduce passes between the peers (PCCL_PATTERN):
            "ring" or "direct".
        peer_timeout: setting of the run: silence of a peer that counts as a loss
            (PCCL_PEER_TIMEOUT).
        first_call_timeout: setting of the run: longest time that the members wait for a newcomer's
            first call (PCCL_FIRST_CALL_TIMEOUT).
        call_timeout: setting of the run: longest time that the others wait for a call of one member
            before they continue without it (PCCL_CALL_TIMEOUT).
        master_timeout: time to look for a master that is gone (PCCL_MASTER_TIMEOUT).
        advertise: this peer's host as seen by other peers (PCCL_ADVERTISE);
            "": the address that the master sees.
        advertised_ports: first and last port number that other peers use (PCCL_ADVERTISE); zeros:
            the same numbers as here. The range is as long as port_range.
        port_range: first and last port to listen on (PCCL_PORT_RANGE); zeros: any free port.
        lanes: TCP connections that this peer opens to each neighbour in the ring, or to each
            other peer where all-reduces are direct (PCCL_LANES); 0: as many as increase the
            throughput of the path.
        tcp_congestion: congestion control of connections to other peers (PCCL_TCP_CONGESTION); "":
            the choice of the system, but on local paths never one that paces.
        restore: whether the bytes that an operation overwrites are kept until its outcome is known
            (PCCL_RESTORE).
        check_callsite: whether the calls of the ranks are compared by the line of the program that
            made them, too (PCCL_CHECK_CALLSITE).
        name: this peer's name in errors, logs and `run_info` (PCCL_NAME); "": the name of the host.
            Several peers may have the same name.
        secret_file: absolute path of the file that has this peer's token (PCCL_SECRET_FILE); "":
            this peer has no token. The file is read again at each connection to a master.
        token: the content of the file when it was first read; None: this peer has no token.
        insecure: whether this peer, without a token, joins a master on another machine
            (PCCL_INSECURE).
        log_level: level of the messages on stderr (PCCL_LOG).
    """

    on_peer_loss: str | None = None
    pattern: str | None = None
    peer_timeout: float | None = None
    first_call_timeout: float | None = None
    call_timeout: float | None = None
    master_timeout: float = _limits.MASTER_TIMEOUT_DEFAULT_S
    advertise: str = ""
    advertised_ports: tuple[int, int] = (0, 0)
    port_range: tuple[int, int] = (0, 0)
    lanes: int = 0
    tcp_congestion: str = ""
    restore: bool = True
    check_callsite: bool = False
    name: str = ""
    secret_file: str = ""
    token: Token | None = None
    insecure: bool = False
    log_level: str = "warning"

    @classmethod
    def read(
        cls, environment: Mapping[str, str], parameters: Mapping[str, str] | None = None
    ) -> PeerSettings:
        """Read the settings from the environment and a URL's parameters; the parameters win.

        Raises:
            ValueError: a value is malformed, or a variable is a misspelt setting.
        """
        given = {name: value for name, value in environment.items() if value}
        check_names(given)
        look = _Lookup(given, parameters or {})
        nowhere = (cls.advertise, cls.advertised_ports)
        advertise, advertised_ports = look.get("advertise", nowhere, _advertised)
        port_range = look.get("port_range", cls.port_range, _port_range)
        token = look.get("secret_file", cls.token, _tokens.read_secret_file)
        insecure = look.get("insecure", cls.insecure, _one)
        if token is not None and insecure:
            raise ValueError(
                "PCCL_SECRET_FILE and PCCL_INSECURE=1 exclude each other: a peer with a token "
                "never speaks plain text. Unset one of them"
            )
        return cls(
            on_peer_loss=look.get("on_peer_loss", cls.on_peer_loss, _peer_loss_policy),
            pattern=look.get("pattern", cls.pattern, _pattern),
            peer_timeout=look.get("peer_timeout", cls.peer_timeout, _seconds),
            first_call_timeout=look.get("first_call_timeout", cls.first_call_timeout, _seconds),
            call_timeout=look.get("call_timeout", cls.call_timeout, _seconds),
            master_timeout=look.get("master_timeout", cls.master_timeout, _seconds),
            advertise=advertise,
            advertised_ports=advertised_ports,
            port_range=_ports_inside(advertised_ports, port_range),
            lanes=look.get("lanes", cls.lanes, _integer(*LANES)),
            tcp_congestion=look.get("tcp_congestion", cls.tcp_congestion, _congestion_control),
            restore=look.get("restore", cls.restore, _on_or_off),
            check_callsite=look.get("check_callsite", cls.check_callsite, _one),
            name=look.get("name", cls.name, lambda text: check_name(decoded(text))),
            secret_file=os.path.abspath(given["PCCL_SECRET_FILE"]) if token else "",
            token=token,
            insecure=insecure,
            log_level=look.get("log", cls.log_level, _log_level),
        )


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """A run that peers join and leave at any time, as a pccl:// URL names it.

    Attributes:
        host: the master's name, IPv4 address or IPv6 address.
        port: the master's port.
        run: name of the run at the master.
        peer_group: number of the peer group. Peers of one group call collectives together; the
            groups of a run update their topology together.
        min_peers: the smallest number of members with which the group continues.
        founders: number of peers that begin the group.
        peer: how this process takes part.
    """

    host: str
    port: int
    run: str
    peer_group: int
    min_peers: int
    founders: int
    peer: PeerSettings


_PEER_PARAMETERS = (
    "peer_timeout",
    "first_call_timeout",
    "call_timeout",
    "master_timeout",
    "advertise",
    "port_range",
    "lanes",
    "tcp_congestion",
    "restore",
    "on_peer_loss",
    "pattern",
    "name",
)
# A URL is copied and logged, so it contains no secret.
_VARIABLES_ONLY = ("log", "master", "secret_file", "insecure", "check_callsite")
_VARIABLES = {f"PCCL_{name.upper()}" for name in (*_PEER_PARAMETERS, *_VARIABLES_ONLY)}
_PARAMETERS = ("peer_group", "min_peers", "founders", *_PEER_PARAMETERS)

# Kubernetes gives each pod the addresses of the Services beside it. If one is named pccl, or
# pccl-master, its variables begin with PCCL_. No setting may have a name of this form.
_KUBERNETES = re.compile(
    r".*(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
_EDITS_MAX = 2  # a name within this edit distance of a setting is a misspelling
_warned: set[str] = set()  # names that this process has warned of


def read_url(url: str, environment: Mapping[str, str]) -> OpenRun:
    """Read `pccl://host[:port][/RUN][?peer_group=0&min_peers=2&...]`.

    Raises:
        ValueError: the form is wrong, a parameter is unknown, or a value is invalid.

    Example:
        >>> read_url("pccl://[::1]/tokyo?min_peers=2", {}).port
        48148
    """
    if not isinstance(url, str):
        raise TypeError(f"the URL must be a str, not {type(url).__name__}")
    url = decoded(url)
    if _tokens.PREFIX in unquote(url).lower():
        raise ValueError(
            f"the URL contains {_tokens.PREFIX}, with which a token begins. A URL is logged and "
            "shown, so a token belongs in a file that PCCL_SECRET_FILE names"
        )
    shown = repr(_masked(url))
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValueError(
            f"{shown}: {_masked(str(error))}: expected pccl://host:port/RUN?parameters"
        ) from None
    if parts.scheme != "pccl":
        raise ValueError(f"{shown} does not begin with pccl://")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError(f"{shown}: expected pccl://host:port/RUN?parameters, without @ and #")
    if parts.netloc.count(":") > 1 and "[" not in parts.netloc:
        raise ValueError(f"{shown}: an IPv6 address stands in brackets: pccl://[::1]:48148/RUN")
    if not parts.hostname:
        raise ValueError(f"{shown} names no host: expected pccl://host:port/RUN")
    try:
        host = _host(unquote(parts.hostname))
    except ValueError as error:
        raise ValueError(f"{shown}: {error}") from None
    parameters = _parameters(shown, parts)
    look = _Lookup({}, parameters)
    min_peers = look.get("min_peers", 1, _integer(*MEMBERS))
    founders = look.get("founders", min_peers, _integer(*MEMBERS))
    if founders < min_peers:
        raise ValueError(
            f"{shown}: founders={founders} is below min_peers={min_peers}: a group cannot begin "
            "with fewer peers than it needs to go on"
        )
    return OpenRun(
        host=host,
        port=_port(shown, parts),
        run=_run(shown, parts),
        peer_group=look.get("peer_group", 0, _integer(*PEER_GROUPS)),
        min_peers=min_peers,
        founders=founders,
        peer=PeerSettings.read(environment, parameters),
    )


def check_names(environment: Mapping[str, str]) -> None:
    """Warn of unknown variables PCCL_..., once per process.

    Raises:
        ValueError: a name looks like a misspelt setting.

    Example:
        >>> check_names({"PCCL_LGO": "info"})
        Traceback (most recent call last):
        ...
        ValueError: PCCL_LGO is no setting of pccl: did you mean PCCL_LOG? Known are ...
    """
    known = ", ".join(sorted(_VARIABLES))
    for name in sorted(environment):
        if not name.startswith("PCCL_") or name in _VARIABLES or _KUBERNETES.fullmatch(name):
            continue
        said = f"{printable(name)} is no setting of pccl"
        nearest = _nearest(name, _VARIABLES)
        if nearest:
            raise ValueError(f"{said}: did you mean {nearest}? Known are {known}")
        if name not in _warned:
            _warned.add(name)
            warnings.warn(f"{said} and has no effect; known are {known}", stacklevel=2)


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that this one is probably meant to be; "" if there is none.

    A short name is close to many other names, so at most one edit in three characters is allowed.
    """
    edits, nearest = min((_edits(name, setting), setting) for setting in known)
    allowed = max(1, min(_EDITS_MAX, len(nearest.removeprefix("PCCL_")) // 3))
    return nearest if edits <= allowed else ""


def _edits(one: str, other: str) -> int:
    """Return how many edits turn one text into the other.

    An edit inserts, deletes or replaces a character, or swaps two neighbours.
    """
    rows = [list(range(len(other) + 1))]
    for i in range(1, len(one) + 1):
        row = [i]
        for j in range(1, len(other) + 1):
            differs = one[i - 1] != other[j - 1]
            best = min(row[-1] + 1, rows[-1][j] + 1, rows[-1][j - 1] + differs)
            if i > 1 and j > 1 and one[i - 2 : i] == other[j - 2 : j][::-1]:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's loopback by its form; no name is looked up.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.7")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def decoded(text: str) -> str:
    """Return a text from the environment or the command line, decoded as UTF-8 where it was not.

    A C locale knows ASCII only, and Python keeps each other byte as a lone surrogate.

    Example:
        >>> decoded("t\\udcc3\\udcb6kyo")
        'tökyo'
    """
    try:
        return text.encode(errors="surrogateescape").decode()
    except UnicodeError:
        return text


def is_printable(text: str) -> bool:
    """Return whether a name is safe to show: no character controls or hides another one.

    Example:
        >>> is_printable("tokyo"), is_printable("tokyo\\n")
        (True, False)
    """
    return _HIDDEN.search(text) is None


def printable(text: str) -> str:
    """Return the text with every character escaped that is_printable() rejects.

    Example:
        >>> printable("tokyo\\n")
        'tokyo\\\\n'
    """
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _masked(text: str) -> str:
    """Return a URL, or text given in place of a part of one, in a form that an error may repeat.

    Every part that may be a secret is masked: all text before an @, a fragment, a token, and the
    values of unknown parameters. Only a number of at most 6 digits is shown: it is no secret, and
    `min_peer=2` is easier to find than `min_peer=***`.
    """
    text = _USERINFO.sub(r"\1***@", _tokens.masked(text))
    text, hash_mark, fragment = text.partition("#")
    text, question_mark, query = text.partition("?")
    shown = []
    for pair in query.split("&"):
        name, equals, value = pair.partition("=")
        known = name in (*_PARAMETERS, "rank", "world_size")
        harmless = known or re.fullmatch(r"[0-9]{1,6}", value)
        shown.append(pair if harmless else f"{name}=***" if equals else "***" if name else "")
    return text + question_mark + "&".join(shown) + hash_mark + ("***" if fragment else "")


def _escaped(text: str) -> str:
    return text if is_printable(text) else repr(text)[1:-1]


def _parameters(shown: str, parts: SplitResult) -> dict[str, str]:
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ValueError(f"{shown}: expected name=value pairs joined by & after the ?") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name in ("rank", "world_size"):
            raise ValueError(
                f"{shown}: {name} cannot be given for an open run, where the master assigns ranks "
                "and the world size changes as peers come and go: leave rank and world_size out, "
                "and say min_peers=N to wait for N peers"
            )
        if name in _VARIABLES_ONLY:
            raise ValueError(
                f"{shown}: {name} cannot be given in a URL: set the variable PCCL_{name.upper()}"
            )
        if name not in _PARAMETERS:
            nearest = _nearest(name, _PARAMETERS)
            hint = f": did you mean {nearest}? Known" if nearest else "; known"
            raise ValueError(
                f"{shown}: unknown parameter {name!r}{hint} are {', '.join(_PARAMETERS)}"
            )
        if name in parameters:
            raise ValueError(f"{shown}: parameter {name!r} is given twice")
        if not value:
            raise ValueError(f"{shown}: parameter {name!r} is empty: give it a value or omit it")
        parameters[name] = value
    return parameters


def _port(shown: str, parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port is None:
        return _limits.MASTER_PORT_DEFAULT
    if port == 0:
        raise ValueError(f"{shown}: the port must be a number from 1 to {PORT_MAX}")
    return port


def _run(shown: str, parts: SplitResult) -> str:
    name = parts.path.removeprefix("/")
    if "/" in name:
        raise ValueError(f"{shown}: the run's name {_masked(name)!r} must not contain a slash")
    name = unquote(name)
    if not is_printable(name):
        raise ValueError(
            f"{shown}: the run's name {_masked(name)!r} must be text that can be printed"
        )
    return name or DEFAULT_RUN


class _Lookup:
    """Finds a setting in a URL's parameters, else in the environment, else its default."""

    def __init__(self, environment: Mapping[str, str], parameters: Mapping[str, str]) -> None:
        self._environment = environment
        self._parameters = parameters

    def get(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        variable = f"PCCL_{name.upper()}"
        for source, values in ((name, self._parameters), (variable, self._environment)):
            if source in values:
                try:
                    if name != "secret_file" and _tokens.find_token(values[source]):
                        raise ValueError(
                            "it contains a token, which belongs in a file that PCCL_SECRET_FILE "
                            "names"
                        )
                    return parse(values[source])
                except ValueError as error:
                    raise ValueError(
                        f"{source}={_escaped(_masked(values[source]))}: {error}"
                    ) from None
        return default


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    low, high = TIMEOUT_S
    if not low <= value <= high:
        raise ValueError(f"expected a number of seconds from {low:g} to {high:g}, such as 2.5")
    return value


# A host name (RFC 1123; underscores are common). If the last label is digits, it is an address.
_LABEL = "(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"({_LABEL}\.)*(?![0-9]+\.?$){_LABEL}\.?")
_OUTSIDE = re.compile(r"(\[(?P<v6>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):(?P<ports>[0-9-]+)")


def _advertised(text: str) -> tuple[str, tuple[int, int]]:
    """Return PCCL_ADVERTISE's host, and its first and last port; zeros if it has no ports."""
    outside = _OUTSIDE.fullmatch(text)
    if outside is None:
        return _own_host(text.removeprefix("[").removesuffix("]"), text), (0, 0)
    ports = outside["ports"]
    try:
        first_last = _port_range(ports if "-" in ports else f"{ports}-{ports}")
    except ValueError:
        raise _not_advertised(text) from None
    return _own_host(outside["host"] if outside["v6"] is None else outside["v6"], text), first_last


def _not_advertised(text: str) -> ValueError:
    return ValueError(
        f"expected HOST, HOST:PORT or HOST:FIRST-LAST, with ports from 1 to {PORT_MAX}, and "
        f"brackets around an IPv6 address that has ports ([2001:db8::5]:40001), not "
        f"{_masked(text)!r}"
    )


def _own_host(text: str, whole: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        if len(text) > HOST_BYTES_MAX or not _NAME.fullmatch(text):
            raise _not_advertised(whole) from None
        return text
    if address.is_unspecified or address.is_multicast or text == "255.255.255.255":
        raise ValueError(f"{text} is not the address of one host")
    return text


def _host(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if len(text) > HOST_BYTES_MAX or not _NAME.fullmatch(text):
            raise ValueError(
                f"expected the name or the address of a host, not {_masked(text)!r}"
            ) from None
    return text


def _ports_inside(outside: tuple[int, int], inside: tuple[int, int]) -> tuple[int, int]:
    """Return the ports to listen on; each corresponds to one outside port, in the same order."""
    if outside == (0, 0):
        return inside
    if inside == (0, 0):
        return outside
    counts = outside[1] - outside[0] + 1, inside[1] - inside[0] + 1
    if counts[0] != counts[1]:
        raise ValueError(
            f"PCCL_ADVERTISE has {counts[0]} ports ({outside[0]}-{outside[1]}), but "
            f"PCCL_PORT_RANGE has {counts[1]} ({inside[0]}-{inside[1]}): give both the same number"
        )
    return inside


def check_integer(name: str, value: object, bounds: tuple[int, int]) -> int:
    """Return an argument that must be an int within `bounds`.

    Raises:
        TypeError: the value is not an int.
        ValueError: the value is out of bounds.

    Example:
        >>> check_integer("min_peers", 2, MEMBERS)
        2
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    low, high = bounds
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be from {low} to {high}")
    return value


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise ValueError(f"expected an integer from {low} to {high}")
        return int(text)

    return parse


def _port_range(text: str) -> tuple[int, int]:
    ends = text.split("-")
    try:
        first, last = (_integer(1, PORT_MAX)(end) for end in ends)
    except ValueError:
        first, last = 1, 0
    if first > last:
        raise ValueError(f"expected first-last, ports from 1 to {PORT_MAX}, such as 48200-48299")
    return first, last


def _congestion_control(text: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        try:
            trial.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, text.encode())
        except OSError as error:
            raise ValueError(
                f"this machine refuses it ({error.strerror}); what this process may choose is in "
                "/proc/sys/net/ipv4/tcp_allowed_congestion_control, such as cubic"
            ) from None
    return text


def _on_or_off(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("expected on or off")
    return text == "on"


def check_name(text: str, bytes_max: int = _limits.NAME_BYTES_MAX) -> str:
    """Return a name that people see, such as a peer's.

    Raises:
        ValueError: it is empty, too long, or has a character that cannot be shown.

    Example:
        >>> check_name("tokyo-3")
        'tokyo-3'
    """
    hidden = _HIDDEN.search(text)
    if hidden:
        raise ValueError(f"the name must be printable, and it contains {hidden[0]!a}")
    size = len(text.encode())
    if size == 0:
        raise ValueError("the name is empty")
    if size > bytes_max:
        raise ValueError(f"the name is {size} bytes long; at most {bytes_max} fit")
    return text


def host_name() -> str:
    """Return the name of this host in a form that can be the name of a peer."""
    name = printable(socket.gethostname()).encode()[: _limits.NAME_BYTES_MAX]
    return name.decode(errors="ignore")


def _log_level(text: str) -> str:
    if text not in LOG_LEVELS:
        raise ValueError(f"expected one of {', '.join(LOG_LEVELS)}")
    return text


def _one(text: str) -> bool:
    if text != "1":
        raise ValueError("expected 1; to turn it off, unset the variable")
    return True


def _peer_loss_policy(text: str) -> str:
    if text not in ("raise", "retry"):
        raise ValueError(
            "expected raise (operations raise PeerLostError until update_topology is called) or "
            "retry (they are repeated without the lost peer)"
        )
    return text


def _pattern(text: str) -> str:
    if text not in PATTERNS:
        raise ValueError(
            "expected ring (around the ring of all peers) or direct (from each peer straight to "
            "each other one); without it the master chooses"
        )
    return text
