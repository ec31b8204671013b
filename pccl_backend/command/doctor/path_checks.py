"""Decisions about the path to a master. Pure: facts in, a line out.

The checks go outwards: name, route, port, master, token, large packets, and the way back. If one of
the first three is bad, those after it have no line, because they could not be made.
"""

from __future__ import annotations

from pccl_backend._settings import is_loopback
from pccl_backend.command.doctor.facts import Address, DialBack, Facts, Greeting, Path
from pccl_backend.command.doctor.line import Line, bad, ok, warn

__all__ = ["clocks", "large_packets", "master", "name", "port", "reachable", "route", "token"]

ANSWERED = "answered"
NO_RUN = "invalid argument"  # the code of the refusal of a Hello without a run
NEEDS_TOKEN = "authentication"
OTHER_VERSION = "protocol"
TOKEN_REFUSED = ("unknown token", "wrong secret", "plain text", "unproven")
CLOCK_SLACK_S = 1.0
NEW_TOKEN = "ask the owner of the master for a new token: `pccl token new NAME --out FILE`"


def name(facts: Facts) -> Line | None:
    """Does the name of the master have an address?"""
    path = _path(facts)
    if path.resolve_error or not path.addresses:
        return bad(
            f"the name {path.host} has no address: {path.resolve_error or 'no answer in time'}",
            f"check the spelling, and `getent hosts {path.host}`; or write the address of the "
            "master into the URL",
        )
    shown = ", ".join(one.host for one in path.addresses)
    return ok(f"{path.host} is {shown}" if shown != path.host else f"{shown} is an address")


def route(facts: Facts) -> Line | None:
    """Is there a route to one of the addresses?"""
    path = _path(facts)
    if not path.addresses:
        return None
    ways = [one for one in path.addresses if one.source]
    if ways:
        return ok(f"packets to {ways[0].host} leave from {ways[0].source}")
    first = path.addresses[0]
    here = facts.machine.network
    if here is not None:
        family = "IPv6" if all(":" in one.host for one in path.addresses) else "IPv4"
        own = here.ipv6 if family == "IPv4" else here.ipv4
        none = not (here.ipv4 if family == "IPv4" else here.ipv6)
        mixed = len({":" in one.host for one in path.addresses}) > 1
        if own and none and not mixed:
            other = "IPv4" if family == "IPv6" else "IPv6"
            return bad(
                f"the master has {family} only ({first.host}), and this machine {other} only "
                f"({own})",
                f"name an {other} address of the master in the URL, and start it with --host ::; "
                f"or give this machine {family}",
            )
    return bad(
        f"this machine has no route to {first.host}: {first.error or 'unknown'}",
        f"ip route get {first.host}",
    )


def port(facts: Facts) -> Line | None:
    """Does the port accept a connection? It tells a closed port from silence."""
    path = _path(facts)
    tried = [one for one in path.addresses or () if one.connect]
    if not tried:
        return None
    if path.open is not None:
        return ok(
            f"port {path.port} of {path.open.host} accepts connections, after "
            f"{path.open.seconds * 1e3:.3g} ms"
        )
    return _closed(path, tried[0])


def _closed(path: Path, address: Address) -> Line:
    where = f"port {path.port} of {address.host}"
    if address.connect == "refused":
        host = "" if is_loopback(address.host) else "--host 0.0.0.0 "
        return bad(
            f"{where} is closed: the machine is there, and no master listens on that port",
            f"start `pccl master {host}--port {path.port}` there; if a router or a provider maps "
            "the port, write its outside number into the URL",
        )
    if address.connect == "unreachable":
        return bad(
            f"{address.host} cannot be reached: {address.error}",
            f"is the machine on, and is the route right? `ip route get {address.host}`",
        )
    return bad(
        f"{where} does not answer at all: a firewall drops the packets, or they go a wrong way",
        f"open TCP port {path.port} at the master's firewall, router or provider; compare `ip "
        f"route get {address.host}` with the right way",
    )


def master(facts: Facts) -> Line | None:
    """Is it a master, and does it speak a version of the protocol that this pccl speaks?"""
    path = _path(facts)
    found = path.greeting
    if found is None:
        late = warn("the master was not greeted in time", "run `pccl doctor` again")
        return None if path.open is None else late
    if found.ending == ANSWERED:
        return _answered(found)
    where = f"{path.host} port {path.port}"
    explained = {
        "silent": (
            f"{where} accepts connections, and does not answer: its process may be stopped, or it "
            "is another program",
            "at the master: `pccl status`",
        ),
        "no master": (
            f"the program at {where} is no master: {found.why}",
            "write the address and the port of the master into the URL",
        ),
    }
    other = (
        f"{where} accepts connections, and then ends them ({found.ending}: {found.why})",
        "is it the master, or another program? At the master: `pccl status`, and its log",
    )
    # The line about the token explains a refused one.
    return None if found.ending in TOKEN_REFUSED else bad(*explained.get(found.ending, other))


def _answered(found: Greeting) -> Line:
    if found.code == OTHER_VERSION:
        return bad(found.why, "install the same pccl on this machine and on the master's")
    if found.code in (NO_RUN, NEEDS_TOKEN):
        return ok("a master answers, and speaks a version of the protocol that this pccl does")
    return bad(f"the master refuses this peer: {found.why}", "at the master: `pccl status`")


def token(facts: Facts) -> Line | None:
    """Does the master admit a peer with this token, or without one?"""
    path = _path(facts)
    found = path.greeting
    settings = facts.machine.settings
    if found is None or (settings and settings.error):  # no token was read, for a reason there
        return None
    shown = f"the token {path.token}"
    if found.ending == ANSWERED and found.code == NEEDS_TOKEN:
        return bad(
            "the master admits only peers that have a token, and PCCL_SECRET_FILE is not set",
            f"{NEW_TOKEN}; then name that file in PCCL_SECRET_FILE",
        )
    if found.ending == ANSWERED:
        return ok(f"the master knows {shown}") if path.token else _plain(path)
    explained = {
        "unknown token": (
            f"the master does not know {shown}: it was revoked, or another master has made it",
            NEW_TOKEN,
        ),
        "wrong secret": (
            f"the master has another secret for {shown}",
            f"copy the file of the token again, or {NEW_TOKEN}",
        ),
        "plain text": (
            f"the program there speaks plain text, so it did not get {shown}: it is another "
            "program, or a master without a keyring",
            "start the master with --keyring; or, in a network that you trust, unset "
            "PCCL_SECRET_FILE and set PCCL_INSECURE=1",
        ),
        "unproven": (
            f"the program there does not prove that it knows {shown}: {found.why}",
            "check the address and the port in the URL",
        ),
    }
    return bad(*explained[found.ending]) if found.ending in explained else None


def _plain(path: Path) -> Line:
    here = path.open is not None and is_loopback(path.open.host)
    if here:
        return ok("the master is on this machine, and needs no token")
    if path.is_insecure:
        return warn(
            "the master speaks plain text: everybody on the way can read, change and join",
            "start the master with --keyring, unless you trust the whole network",
        )
    return bad(
        "the master speaks plain text, and a peer does not without PCCL_INSECURE=1",
        "start the master with --keyring; or, in a network that you trust, export PCCL_INSECURE=1",
    )


def large_packets(facts: Facts) -> Line | None:
    """Do packets of full size arrive at the master?"""
    path = _path(facts)
    found, way = path.large_greeting, path.open
    if path.greeting is None or path.greeting.ending != ANSWERED or way is None:
        return None
    if found is None:
        return warn("large packets were not tried in time", "run `pccl doctor` again")
    if found.ending == ANSWERED:
        return ok("packets of full size arrive at the master")
    device = way.device or "DEVICE"
    if found.ending == "silent":
        return bad(
            f"small packets arrive at {way.host}, and large ones vanish without an error (MTU "
            "black hole)",
            f"sudo ip link set dev {device} mtu 1280",
        )
    return warn(
        f"a greeting of {way.host} with large packets failed ({found.ending}: {found.why})",
        f"try again; if it stays, sudo ip link set dev {device} mtu 1280",
    )


def reachable(facts: Facts) -> Line | None:
    """Can the master connect to a port on which a peer of this machine would listen?"""
    path = _path(facts)
    found = path.dial_back
    greeting = path.greeting
    if greeting is None or greeting.ending != ANSWERED or greeting.code == NEEDS_TOKEN:
        return None
    if found is None or found.why:
        why = "" if found is None else f": {found.why}"
        return warn(
            f"the master has not tried in time whether it can connect to this machine{why}",
            "run `pccl doctor` again",
        )
    # Without a port, the line about the ports has the reason.
    return None if found.port == 0 else _way_back(facts, found)


def _way_back(facts: Facts, found: DialBack) -> Line:
    where = f"{found.host} port {found.port}"
    if found.arrived and is_loopback(found.host):
        return ok("the master is on this machine: whether others can connect to it is not known")
    if found.arrived:
        return ok(f"others can connect to this machine: the master has connected to {where}")
    if found.connected:
        return warn(
            f"the master has connected to {where}, and another program or machine has answered",
            "compare PCCL_PORT_RANGE and PCCL_ADVERTISE with the ports that the router forwards",
        )
    reasons = {"refused": ": connection refused", "no answer": ": no answer"}
    text = f"the master cannot connect to {where}{reasons.get(found.fault, '')}"
    here = facts.machine.network
    own = () if here is None else (here.ipv4, here.ipv6, *here.others)
    if found.host in own:
        how = "open that TCP port in the firewall (a port of your choice: PCCL_PORT_RANGE)"
    else:
        text += ", the address of a router"
        how = "forward a TCP port of the router to this machine, and name it in PCCL_ADVERTISE"
    return warn(
        f"{text}; so a peer here can be linked only with peers that accept connections",
        f"if other machines are like this one, {how}",
    )


def clocks(facts: Facts) -> Line | None:
    """Do the clocks of this machine and of the master agree?"""
    path = _path(facts)
    ahead = None if path.dial_back is None else path.dial_back.ahead
    if ahead is None:
        return None
    if abs(ahead) <= CLOCK_SLACK_S:
        return ok(f"this clock and the clock of the master agree within {CLOCK_SLACK_S:g} s")
    side = "behind" if ahead > 0 else "ahead of"
    return warn(
        f"this clock is {abs(ahead):.3g} s {side} the clock of the master: the times in their "
        "logs cannot be compared",
        "sudo timedatectl set-ntp true, here or at the master",
    )


def _path(facts: Facts) -> Path:
    assert facts.path is not None, "a check that needs a URL"
    return facts.path
