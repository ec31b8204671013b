"""Gathers the facts about this machine: limits, cores, memory, disk, names, addresses, clock."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pccl_backend._settings import PeerSettings
from pccl_backend.command.common import state_folder
from pccl_backend.command.doctor import packages
from pccl_backend.command.doctor.bounded import gathered
from pccl_backend.command.doctor.facts import (
    Clock,
    Cores,
    Disk,
    Machine,
    Memory,
    Network,
    OwnName,
    Ports,
    Settings,
)
from pccl_backend.command.endpoint import PROGRAM
from pccl_backend.probe import settings as system
from pccl_backend.probe.settings import HostSettings

__all__ = ["LOOKED_AT", "device_of", "gather", "look_at_ports", "read_settings", "route_to"]

GATHER_S = 15.0
LOOKED_AT = 64  # ports of PCCL_PORT_RANGE
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
PROVIDERS = ("RUNPOD_", "VAST_", "PUBLIC_IPADDR")
DISTANT = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # no packet is sent
GET_ADDRESS = 0x8915  # SIOCGIFADDR


def gather(
    environment: Mapping[str, str], settings: Settings | None, ports: Ports | None = None
) -> Machine:
    """Return the facts about this machine. It takes at most GATHER_S seconds, and raises nothing.

    Args:
        environment: the variables of this process.
        settings: the result of read_settings(); None: not known.
        ports: the result of look_at_ports().

    Example:
        >>> gather({}, None).python == sys.version_info[:3]
        True
    """
    calls: dict[str, Callable[[], Any]] = {
        "torch": packages.torch_version,
        "modules": packages.modules,
        "installs": packages.installs,
        "commands": packages.commands,
        "libraries": packages.libraries,
        "open_files": lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
        "tcp": lambda: HostSettings.from_texts(system.read()),
        "cores": _cores,
        "memory": _memory,
        "disk": lambda: _disk(environment),
        "own_name": _own_name,
        "network": _network,
        "clock": _clock,
    }
    found = gathered(calls, GATHER_S)
    return Machine(
        python=sys.version_info[:3],
        executable=sys.executable,
        suffixes=tuple(EXTENSION_SUFFIXES),
        folder=str(packages.FOLDER),
        settings=settings,
        ports=ports,
        variables={
            name: text for name, text in environment.items() if name.startswith(PROVIDERS) and text
        },
        **found,
    )


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read the variables PCCL_... of this process, and the file of the token.

    Call it once: it collects warnings, which a process has once.

    Example:
        >>> read_settings({"PCCL_LANES": "65"}).error
        'PCCL_LANES=65: expected an integer from 1 to 64'
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            peer = PeerSettings.read(environment)
        except ValueError as error:
            return Settings(error=str(error))
    return Settings(peer=peer, warnings=tuple(str(one.message) for one in caught))


def look_at_ports(peer: PeerSettings) -> Ports | None:
    """Try to listen on each port of PCCL_PORT_RANGE, for a moment. None: any port may be used.

    Example:
        >>> look_at_ports(PeerSettings(port_range=(48201, 48203)))
        Ports(first=48201, last=48203, free=3)
    """
    if peer.port_range == (0, 0):
        return None
    first, last = peer.port_range
    free = 0
    for port in range(first, min(last, first + LOOKED_AT - 1) + 1):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("", port))
                trial.listen(1)
                free += 1
            except OSError:
                continue
    return Ports(first=first, last=last, free=free)


# --- Cores and memory -----------------------------------------------------------------------------


def _cores() -> Cores:
    return Cores(count=len(os.sched_getaffinity(0)), quota=_quota())


def _quota() -> float | None:
    """Return the cores that the cgroup allows; None if it has no limit."""
    quotas = []
    for text in _in_cgroups("", "cpu.max"):
        most, _, period = text.partition(" ")
        quotas += [int(most) / int(period)] if most != "max" else []
    most_v1, period_v1 = (_in_cgroups("cpu", f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    for most, period in zip(most_v1, period_v1, strict=False):
        quotas += [int(most) / int(period)] if int(most) > 0 else []
    return min(quotas, default=None)


def _memory() -> Memory:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free, total = (int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
    limits = []
    for place, most, used in (
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for limit, usage in zip(_in_cgroups(place, most), _in_cgroups(place, used), strict=False):
            if limit.isdigit() and int(limit) < total:
                limits.append(int(limit))
                free = min(free, int(limit) - int(usage))
    return Memory(free=max(free, 0), limit=min(limits, default=None))


def _in_cgroups(controller: str, name: str) -> list[str]:
    """Return the texts of a file in the cgroup of this process and in those above it.

    Args:
        controller: of version 1; "": version 2.
    """
    texts = []
    for line in OWN_CGROUPS.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        top = CGROUPS / controller
        place = top / path.strip("/")
        for folder in (place, *place.parents):
            if (folder / name).is_file():
                texts.append((folder / name).read_text().strip())
            if folder == top:
                break
    return texts


# --- Disk and clock ---------------------------------------------------------------------------


def _disk(environment: Mapping[str, str]) -> Disk:
    folder = state_folder(environment)
    if folder is None:
        return Disk(folder="")
    place = folder
    while not place.exists():
        place = place.parent
    free = os.statvfs(place)
    return Disk(
        folder=str(folder),
        free=free.f_bavail * free.f_frsize if free.f_favail or not free.f_files else 0,
        is_writable=os.access(place, os.W_OK | os.X_OK),
    )


def _clock() -> Clock:
    return Clock(now=time.time(), installed=PROGRAM.stat().st_mtime)


# --- Names and addresses --------------------------------------------------------------------------


def _own_name() -> OwnName:
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return OwnName(name=name, error=error.strerror or str(error))
    return OwnName(name=name, addresses=tuple({str(one[4][0]): None for one in found}))


def _network() -> Network:
    sources = [route_to(family, host)[0] for family, host in DISTANT.items()]
    return Network(ipv4=sources[0], ipv6=sources[1], others=tuple(_addresses()))


def route_to(family: socket.AddressFamily, host: str) -> tuple[str, str]:
    """Return this machine's address on the way to a host, and an error if there is no way.

    It asks for the route alone: nothing is sent.
    """
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.connect((host, 9))
            source = str(trial.getsockname()[0])
    except OSError as error:
        return "", error.strerror or str(error)
    return ("", "no address of its own") if ip_address(source).is_unspecified else (source, "")


def device_of(source: str) -> str:
    """Return the interface that has an IPv4 address of this machine; "" if it is unknown."""
    found = {address: device for device, address in _ipv4_devices()}
    return found.get(source, "")


def _addresses() -> list[str]:
    """Return the addresses of this machine, without loopback and those of a single link."""
    found = [address for _, address in _ipv4_devices()]
    table = Path("/proc/net/if_inet6")  # missing without IPv6
    for line in table.read_text().splitlines() if table.exists() else []:
        found.append(str(ip_address(bytes.fromhex(line.split()[0]))))
    of_others = (ip_address(one) for one in found)
    return [str(one) for one in of_others if not one.is_loopback and not one.is_link_local]


def _ipv4_devices() -> list[tuple[str, str]]:
    """Return each interface that has an IPv4 address, with its first address."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asks.fileno(), GET_ADDRESS, request)
            except OSError:  # it has none
                continue
            found.append((name, socket.inet_ntoa(answer[20:24])))
    return found
