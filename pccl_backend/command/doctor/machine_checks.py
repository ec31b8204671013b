"""Decisions about the limits, the settings and the network of this machine. Pure.

A function returns None if its check does not apply, or if a fact is not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from ipaddress import ip_address

from pccl_backend._limits import LANES_MAX, PORT_MAX
from pccl_backend.command.doctor.facts import Facts
from pccl_backend.command.doctor.line import Line, bad, ok, warn
from pccl_backend.probe.advice import buffer_command, rate_of_buffer, wanted_buffer

__all__ = [
    "addresses",
    "buffers",
    "clock",
    "congestion",
    "cores",
    "disk",
    "memory",
    "open_files",
    "own_name",
    "ports",
    "provider",
]

GIB, MIB = 1 << 30, 1 << 20
OPEN_FILES_LEAST = 256  # below this, a peer cannot open its lanes to two neighbours
OPEN_FILES_USUAL = 1024
OPEN_FILES_ENOUGH = 65536
PEERS_DESCRIPTORS = 4  # of a master, for each peer: a generous estimate
RATE = 1000.0  # Mbit/s that the buffers should allow
FAR_RTT_S = 0.1  # without a measured round trip: an ocean
MEMORY_LEAST = GIB
DISK_LEAST, DISK_USUAL = MIB, 64 * MIB
CLOCK_SLACK_S = 60.0
CLOCK_AHEAD_S = 20 * 365 * 86400.0


# --- Limits ---------------------------------------------------------------------------------------


def open_files(facts: Facts) -> Line | None:
    """Are enough open files allowed? Each connection takes one."""
    limits = facts.machine.open_files
    if limits is None:
        return None
    now, most = (OPEN_FILES_ENOUGH if limit < 0 else limit for limit in limits)
    text = f"a process may open {now} files (ulimit -n)"
    if now >= OPEN_FILES_USUAL:
        return ok(text)
    wanted = min(max(most, now), OPEN_FILES_ENOUGH)
    step = (
        f"ulimit -n {wanted}"
        if wanted >= OPEN_FILES_USUAL
        else f"as root, allow {OPEN_FILES_ENOUGH}: `nofile` in /etc/security/limits.conf, or "
        "LimitNOFILE= of the service"
    )
    if now < OPEN_FILES_LEAST:
        return bad(f"{text}, and the connections of a peer need {OPEN_FILES_LEAST} or more", step)
    return warn(
        f"{text}: a master serves at most {now // PEERS_DESCRIPTORS} peers with this, and a peer "
        "few groups",
        step,
    )


def cores(facts: Facts) -> Line | None:
    """Are there two cores, one for the training and one for the transfers?"""
    found = facts.machine.cores
    if found is None:
        return None
    quota = "" if found.quota is None else f", and its cgroup allows {found.quota:g} of them"
    text = f"this process may use {found.count} core{'s' * (found.count != 1)}{quota}"
    if min(found.count, found.quota or found.count) < 2:
        return warn(
            f"{text}: the training and the transfers share it",
            "give the machine or its container two cores or more",
        )
    return ok(text)


def memory(facts: Facts) -> Line | None:
    """Is there memory for torch and a model?"""
    found = facts.machine.memory
    if found is None:
        return None
    limit = "" if found.limit is None else f" of the {found.limit / GIB:.1f} GiB of its cgroup"
    text = f"{found.free / GIB:.1f} GiB of memory are free{limit}"
    if found.free < MEMORY_LEAST:
        return warn(
            f"{text}: torch alone takes about {MEMORY_LEAST // GIB} GiB",
            "end other programs, or give the machine or its container more memory",
        )
    return ok(text)


def disk(facts: Facts) -> Line | None:
    """Can a master write its journal?"""
    found = facts.machine.disk
    if found is None:
        return None
    if not found.folder:
        return warn(
            "HOME is not set, so a master has no place for its journal",
            "export HOME, or start the master with --journal PATH",
        )
    text = f"{found.folder} has {found.free / MIB:,.0f} MiB free"
    if found.free < DISK_LEAST:
        return bad(f"{text}: a master there cannot write its journal", f"df -h {found.folder}")
    if not found.is_writable:
        return warn(
            f"this user may not write to {found.folder}, the folder of a master's journal",
            "start the master as another user, or with --journal PATH",
        )
    if found.free < DISK_USUAL:
        return warn(f"{text}, and a full disk stops a master", f"df -h {found.folder}")
    return ok(f"{text}, for the journal of a master")


def clock(facts: Facts) -> Line | None:
    """Is the clock later than the installation of pccl?"""
    found = facts.machine.clock
    if found is None:
        return None
    if -CLOCK_SLACK_S <= found.now - found.installed <= CLOCK_AHEAD_S:
        return ok(f"the clock shows {_date(found.now)}")
    side = "before" if found.now < found.installed else "20 years after"
    return warn(
        f"the clock shows {_date(found.now)}, {side} the installation of pccl "
        f"({_date(found.installed)}): the times in logs and keyrings would be wrong",
        "sudo timedatectl set-ntp true",
    )


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


# --- TCP ------------------------------------------------------------------------------------------


def congestion(facts: Facts) -> Line | None:
    """May pccl choose the congestion control that it is told to use?"""
    tcp = facts.machine.tcp
    if not tcp.congestion:
        return None
    choices = " ".join(tcp.allowed) or "unknown"
    text = f"TCP uses {tcp.congestion}; {choices} may be chosen"
    if tcp.available and "bbr" not in tcp.available:
        return ok(f"{text}; bbr, which helps where packets are lost, is not loaded")
    if tcp.allowed and "bbr" not in tcp.allowed:
        return ok(f"{text}; bbr, which helps where packets are lost, only by root")
    return ok(text)


def buffers(facts: Facts) -> Line | None:
    """Do the largest buffers of TCP allow RATE, with all lanes together?"""
    tcp = facts.machine.tcp
    if tcp.rmem is None or tcp.wmem is None:
        return None
    rtt, where = _rtt(facts)
    peer = facts.machine.settings.peer if facts.machine.settings else None
    lanes = (peer.lanes if peer else 0) or LANES_MAX
    setting, smallest = min(
        (("tcp_rmem", tcp.rmem), ("tcp_wmem", tcp.wmem)), key=lambda one: one[1].most
    )
    rate = rate_of_buffer(smallest.most, rtt)
    text = (
        f"the largest buffer of {setting} is {smallest.most / MIB:.2g} MiB: over {where}, one "
        f"connection carries {rate:,.0f} Mbit/s at most, and the {lanes} of a link "
        f"{rate * lanes:,.0f} Mbit/s"
    )
    if rate * lanes < RATE:
        return warn(text, buffer_command(setting, smallest, wanted_buffer(RATE, rtt)))
    return ok(text)


def _rtt(facts: Facts) -> tuple[float, str]:
    """Return the round trip to the master if it is long, else the round trip over an ocean."""
    greeting = facts.path.greeting if facts.path else None
    if greeting is not None and greeting.rtt > FAR_RTT_S:
        return greeting.rtt, f"the {greeting.rtt * 1e3:.0f} ms to the master"
    return FAR_RTT_S, f"{FAR_RTT_S * 1e3:.0f} ms"


# --- Names, addresses and ports -------------------------------------------------------------------


def own_name(facts: Facts) -> Line | None:
    """Does the name of this machine have an address?"""
    found = facts.machine.own_name
    if found is None:
        return warn(
            "the name of this machine was not looked up in time: torchrun waits for it, too",
            'add it to /etc/hosts: echo "127.0.1.1 $(hostname)" | sudo tee -a /etc/hosts',
        )
    if not found.addresses:
        return warn(
            f"the name of this machine, {found.name}, has no address ({found.error}): torchrun "
            "and Gloo look for it",
            f'echo "127.0.1.1 {found.name}" | sudo tee -a /etc/hosts',
        )
    return ok(f"the name of this machine, {found.name}, is {', '.join(found.addresses[:3])}")


def addresses(facts: Facts) -> Line | None:
    """Does this machine have IPv4, IPv6, or both?"""
    found = facts.machine.network
    if found is None:
        return None
    if found.ipv4:
        both = f" and IPv6, {found.ipv6}" if found.ipv6 else ", and no IPv6 to distant machines"
        kind = " (private)" if ip_address(found.ipv4).is_private else ""
        return ok(f"this machine has IPv4, {found.ipv4}{kind}{both}")
    if found.ipv6:
        return warn(
            f"this machine has IPv6 only, {found.ipv6}: machines that have only IPv4 cannot reach "
            "it, and it cannot reach them",
            "give all machines of the run IPv6, and start the master with --host ::",
        )
    if found.others:
        shown = ", ".join(found.others[:3])
        return warn(
            f"this machine ({shown}) has no route to distant machines, only to its neighbours",
            "ip route add default via ROUTER",
        )
    return warn("this machine has no network but loopback", "ip address; ip link set DEVICE up")


def ports(facts: Facts) -> Line | None:
    """Are there free ports in PCCL_PORT_RANGE?"""
    found = facts.machine.ports
    if found is None:
        return None
    text = f"PCCL_PORT_RANGE={found.first}-{found.last}"
    if found.free == 0:
        return bad(
            f"all ports of {text} are in use, so a peer cannot listen",
            f"ss -ltnp 'sport >= {found.first} and sport <= {found.last}'",
        )
    return ok(f"ports of {text} are free")


@dataclass(frozen=True, kw_only=True)
class _Provider:
    """A provider of rented machines.

    Attributes:
        mark: begins its variables.
        host: the variable with the public address.
        port: begins the variables with the outside number of a port, by its inside number.
        how: the way to get a port.
    """

    name: str
    mark: str
    host: str
    port: str
    how: str


_PROVIDERS = (
    _Provider(
        name="Runpod",
        mark="RUNPOD_",
        host="RUNPOD_PUBLIC_IP",
        port="RUNPOD_TCP_PORT_",
        how="edit the pod, and add 70000 to its exposed TCP ports",
    ),
    _Provider(
        name="Vast.ai",
        mark="VAST_",
        host="PUBLIC_IPADDR",
        port="VAST_TCP_PORT_",
        how="add `-p 70000:70000` to the Docker options of the instance",
    ),
)


def provider(facts: Facts) -> Line | None:
    """On a rented machine: does the peer tell the others its outside address and port?"""
    variables = facts.machine.variables
    known = [one for one in _PROVIDERS if any(name.startswith(one.mark) for name in variables)]
    if not known:
        return None
    here = known[0]
    peer = facts.machine.settings.peer if facts.machine.settings else None
    if peer is not None and peer.advertise:
        return ok(f"{here.name}, and PCCL_ADVERTISE has the outside address of this machine")
    text = (
        f"this is a machine of {here.name}, behind a router, and PCCL_ADVERTISE is not set: "
        "other machines behind routers cannot reach it"
    )
    if here.host not in variables:
        return warn(f"{text}; {here.host} is missing, so it may have no public address", here.how)
    return warn(text, _advertising(here, variables) or here.how)


def _advertising(provider: _Provider, variables: Mapping[str, str]) -> str:
    """Return the line that advertises a mapped port; "" if there is none to use.

    A number above PORT_MAX is no port: it asks the provider for a port with the same number inside
    and outside. Ports below 1024 belong to services, such as ssh.
    """
    numbers = [
        int(found[1])
        for name in variables
        if (found := re.fullmatch(f"{provider.port}([0-9]{{1,6}})", name))
    ]
    for number in sorted(numbers, reverse=True):
        advertise = f"export PCCL_ADVERTISE=${provider.host}:${provider.port}{number}"
        if number > PORT_MAX:
            return advertise
        if number >= 1024:
            return f"{advertise} PCCL_PORT_RANGE={number}-{number}"
    return ""
