"""The facts that the checks of `pccl doctor` decide about. Plain values.

A fact that could not be found out is None, or empty. A check has no line about such a fact. Sizes
are in bytes, and times in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pccl_backend._distribution import NAME
from pccl_backend._settings import PeerSettings
from pccl_backend.probe.settings import HostSettings

__all__ = [
    "Address",
    "Clock",
    "Cores",
    "DialBack",
    "Disk",
    "Facts",
    "Greeting",
    "Install",
    "Libraries",
    "Machine",
    "Memory",
    "Network",
    "OwnName",
    "Path",
    "Ports",
    "Settings",
]


@dataclass(frozen=True, kw_only=True)
class Install:
    """An installed package with the name of this project, or with its former name.

    Attributes:
        name: "pccl-torch" or "pccl".
        folder: the folder of its metadata.
        is_ours: whether it is this project, and not another one of that name.
    """

    name: str = NAME
    version: str
    folder: str
    is_ours: bool = True


@dataclass(frozen=True, kw_only=True)
class Libraries:
    """The libraries that the compiled programs use.

    Attributes:
        error: reason why the program `pccl-probe` does not start; "": it starts.
        libuv: the file of libuv that it uses.
        own_libuv: the file that it uses without LD_LIBRARY_PATH and LD_PRELOAD.
        is_global: whether TORCH_USE_RTLD_GLOBAL is set.
    """

    error: str = ""
    libuv: str = ""
    own_libuv: str = ""
    is_global: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The variables PCCL_... of this process.

    Attributes:
        error: reason why a peer refuses them; "": they are right.
        peer: the settings; None if they are refused.
        warnings: texts about unknown variables.
    """

    error: str = ""
    peer: PeerSettings | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cores:
    """The cores of this process: their number, and the share that its cgroup allows (or None)."""

    count: int
    quota: float | None = None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory that this process can still get, and the limit of its cgroup (or None)."""

    free: int
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The folder of journals and keyrings, or the nearest folder above it that exists.

    Attributes:
        folder: the folder of journals and keyrings; "" without HOME.
        free: bytes that this user can write there.
        is_writable: whether this user may write there.
    """

    folder: str
    free: int = 0
    is_writable: bool = True


@dataclass(frozen=True, kw_only=True)
class OwnName:
    """The name of this machine, and its addresses, or the reason why it has none."""

    name: str
    addresses: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The addresses of this machine.

    Attributes:
        ipv4, ipv6: the address of packets to distant machines; "": there is no route to them.
        others: all addresses, without loopback and addresses of a single link.
    """

    ipv4: str = ""
    ipv6: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The range of PCCL_PORT_RANGE, and the number of ports in it that nobody uses.

    The number is at most LOOKED_AT, in the module `machine`.
    """

    first: int
    last: int
    free: int


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Seconds since 1970: now, and when the files of pccl were written."""

    now: float
    installed: float


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The facts about this machine.

    Attributes:
        python: the version.
        executable: the path of the interpreter.
        suffixes: endings of the compiled modules that this Python can load.
        torch: the version of the installed torch; "": there is none.
        modules: names of the compiled modules of pccl.
        folder: the folder of pccl.
        installs: all installed packages named pccl.
        commands: the files `pccl` in PATH, without links to the same file.
        open_files: limits of open files, now and at most.
        variables: the variables of a provider of rented machines.
    """

    python: tuple[int, int, int] | None = None
    executable: str = ""
    suffixes: tuple[str, ...] = ()
    torch: str | None = None
    modules: tuple[str, ...] | None = None
    folder: str = ""
    installs: tuple[Install, ...] | None = None
    commands: tuple[str, ...] = ()
    libraries: Libraries | None = None
    settings: Settings | None = None
    open_files: tuple[int, int] | None = None
    tcp: HostSettings = field(default_factory=HostSettings)
    cores: Cores | None = None
    memory: Memory | None = None
    disk: Disk | None = None
    own_name: OwnName | None = None
    network: Network | None = None
    ports: Ports | None = None
    clock: Clock | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Address:
    """An address of the master, and the way to it.

    Attributes:
        host: numeric.
        source: the address of this machine on the way there; "": there is no route.
        device: name of the interface that has this address; "": unknown.
        connect: result of a connection to the port. "unreachable": a router, or this machine's
            own network, reports that the way is closed.
        seconds: time that the connection took.
        error: words of the system about a missing route, or about a failed connection.
    """

    host: str
    source: str = ""
    device: str = ""
    connect: Literal["", "open", "refused", "no answer", "unreachable"] = ""
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """The result of a Hello that joins no run (csrc/probe/shell/greeting.h).

    Attributes:
        ending: how it ended: "answered", "refused", "silent", ...
        code: kind of the master's refusal; "" without an answer.
        why: text of the master's refusal, or of the failure.
        rtt: round-trip time; 0: unknown.
        unacknowledged: sent bytes that have not arrived when it ended.
    """

    ending: str
    code: str = ""
    why: str = ""
    rtt: float = 0.0
    unacknowledged: int = 0


@dataclass(frozen=True, kw_only=True)
class DialBack:
    """The result of a connection from the master to this machine, and the time of the master.

    Attributes:
        port: the port that the master was asked to connect to; 0: none, because no socket listened.
        why: reason why there is no result: a refusal of the master, or a failure.
        host: the address of this machine, as the master sees it.
        connected: whether the master has made a connection.
        fault: otherwise, the kind of the failure: "refused", "no answer" or "other".
        arrived: whether the connection has arrived at this process.
        ahead: seconds, the clock of the master minus the clock of this machine; None: unknown.
    """

    port: int
    why: str = ""
    host: str = ""
    connected: bool = False
    fault: str = ""
    arrived: bool = False
    ahead: float | None = None


@dataclass(frozen=True, kw_only=True)
class Path:
    """The facts about the path to a master.

    Attributes:
        host, port: as in the URL.
        addresses: None: the name was not looked up in time.
        resolve_error: reason why the name has no address.
        greeting: of ordinary size; None: it was not sent.
        large_greeting: longer than a packet; None: it was not sent.
        dial_back: None: the master was not asked.
        token: id of the token that was shown; "": none.
        is_insecure: whether PCCL_INSECURE=1 is set.
    """

    host: str
    port: int
    addresses: tuple[Address, ...] | None = None
    resolve_error: str = ""
    greeting: Greeting | None = None
    large_greeting: Greeting | None = None
    dial_back: DialBack | None = None
    token: str = ""
    is_insecure: bool = False

    @property
    def open(self) -> Address | None:
        """The first address that accepts a connection."""
        return next((one for one in self.addresses or () if one.connect == "open"), None)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All facts; `path` is None without a URL."""

    machine: Machine
    path: Path | None = None
