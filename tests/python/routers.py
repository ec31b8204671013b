"""Routers: a small internet of hosts and routers; each is its own network namespace.

    with Network() as network:
        server = network.host()                # on the internet, all ports open
        shy = network.host(Unasked.DROP)       # a firewall: it only accepts answers
        home = network.home(Unasked.REJECT)    # a router with NAT
        laptop = home.host()
        home.forward(40001, laptop, 48201)     # 40001 of the router is 48201 of the laptop

The internet has the addresses 203.0.113.0/24 and 2001:db8::/32. All homes have the same inside
addresses, as real homes do. A router has no hairpin: inside hosts do not reach each other by its
outside address. The namespaces have no names, and no device is ever made outside them, so several
networks can exist side by side. A namespace ends with the process that holds it open, and that
process ends with this one (network.py): nothing stays behind, however a test ends.
"""

from __future__ import annotations

import contextlib
import enum
import os
import subprocess
from collections.abc import Iterator
from typing import TypeVar

import network

INTERNET = "203.0.113"
INTERNET_6 = "2001:db8"
HOME = "192.168.1"
COMMAND_S = 20.0  # limit of a command that takes a moment


class Unasked(enum.Enum):
    """The fate of an unsolicited connection from outside, as an nft verdict."""

    ACCEPT = "accept"
    DROP = "drop"
    REJECT = "reject with tcp reset"


class Node:
    """One network namespace, with cubic and without waiting for duplicate addresses."""

    def __init__(self) -> None:
        self._inside = network.Namespace()
        self.namespace = self._inside.path
        self.pid = self._inside.pid
        try:
            self.shell(
                "ip link set lo up",
                "echo cubic > /proc/sys/net/ipv4/tcp_congestion_control",
                "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad",
            )
        except BaseException:
            self.close()
            raise

    def shell(self, *lines: str) -> str:
        """Run a script inside; return its output."""
        return self._inside.run("sh", "-ec", "\n".join(lines))

    def nft(self, rules: str) -> None:
        self.shell(f"nft -f - <<'RULES'\n{rules}\nRULES")

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let this thread make sockets inside; a socket stays in the namespace of its creation."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            network.enter(self.namespace)
            yield
        finally:
            network.enter(f"/proc/self/fd/{home}")
            os.close(home)

    def close(self) -> None:
        self._inside.close()


AnyNode = TypeVar("AnyNode", bound=Node)


class Host(Node):
    """A machine with one interface, eth0."""

    def __init__(self, address: str, address_6: str = "") -> None:
        super().__init__()
        self.address = address
        self.address_6 = address_6

    def plug_in(self, switch: Node, bridge: str, gateway: str = "", gateway_6: str = "") -> None:
        """Lay a cable to that bridge of the switch; set the addresses and the routes."""
        _cable(self, "eth0", switch, f"port{self.pid}")
        switch.shell(f"ip link set port{self.pid} master {bridge} up")
        lines = [f"ip address add {self.address}/24 dev eth0"]
        if self.address_6:
            lines += [f"ip address add {self.address_6}/64 dev eth0 nodad"]
        lines += ["ip link set eth0 up"]
        if gateway:
            lines += [f"ip route add default via {gateway}"]
        if self.address_6:
            lines += [f"ip route add default via {gateway_6}", _until_ipv6("eth0")]
        self.shell(*lines)

    def firewall(self, unasked: Unasked) -> None:
        self.nft(f"""
            table inet firewall {{
              chain in {{
                type filter hook input priority 0
                iif lo accept
                ct state established,related accept
                meta l4proto tcp {unasked.value}
              }}
            }}""")


class Router(Node):
    """A router with inside hosts on a bridge called lan. Its creator connects the other side."""

    def __init__(self, subnet: str, subnet_6: str = "") -> None:
        super().__init__()
        self._subnet, self._subnet_6 = subnet, subnet_6
        self._hosts: list[Host] = []
        _bridge(self, "lan", f"{subnet}.1", f"{subnet_6}::1" if subnet_6 else "")
        self.shell(
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
            "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        )

    def host(self) -> Host:
        """Return a new inside host."""
        number = 2 + len(self._hosts)
        address_6 = f"{self._subnet_6}::{number}" if self._subnet_6 else ""
        host = Host(f"{self._subnet}.{number}", address_6)
        self._hosts.append(host)
        host.plug_in(self, "lan", f"{self._subnet}.1", f"{self._subnet_6}::1")
        return host

    def close(self) -> None:
        for host in self._hosts:
            host.close()
        super().close()


class Home(Router):
    """A router with NAT for IPv4, at one address of the internet; IPv6 passes unchanged."""

    def __init__(self, address: str, subnet_6: str, unasked: Unasked) -> None:
        super().__init__(HOME, subnet_6)
        self.address = address
        # A connection from inside to the outer address meets the same rules as one from outside.
        self.nft(f"""
            table inet gate {{
              chain in {{
                type filter hook input priority 0
                ct state established,related accept
                meta l4proto tcp {unasked.value}
              }}
              chain through {{
                type filter hook forward priority 0
                ct state established,related accept
                iifname "lan" accept
                ct status dnat accept
                meta nfproto ipv6 accept
                meta l4proto tcp {unasked.value}
              }}
            }}
            table ip nat {{
              chain in {{
                type nat hook prerouting priority -100
              }}
              chain out {{
                type nat hook postrouting priority 100
                oifname "wan" masquerade
              }}
            }}""")

    def forward(self, outside: int, host: Host, inside: int) -> None:
        """Forward one outside port to a port of an inside host."""
        to = f"{host.address}:{inside}"
        self.shell(f"nft add rule ip nat in iifname wan tcp dport {outside} dnat to {to}")


class Network:
    """The internet: one switch that connects public hosts and the routers of homes."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._numbers = iter(range(10, 250))
        try:
            self._internet = self._keep(Node())
            _bridge(self._internet, "switch", f"{INTERNET}.1", f"{INTERNET_6}::1")
            self._internet.shell("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
        except BaseException:
            self.close()
            raise

    def host(self, unasked: Unasked = Unasked.ACCEPT) -> Host:
        """Return a new host with an IPv4 address that all can reach."""
        host = self._keep(Host(f"{INTERNET}.{next(self._numbers)}"))
        host.plug_in(self._internet, "switch")
        if unasked is not Unasked.ACCEPT:
            host.firewall(unasked)
        return host

    def home(self, unasked: Unasked = Unasked.DROP, *, ipv6: bool = False) -> Home:
        """Return a new router with NAT. `ipv6`: its hosts also have public IPv6 addresses."""
        number = next(self._numbers)
        subnet_6 = f"{INTERNET_6}:{number}" if ipv6 else ""
        home = self._keep(Home(f"{INTERNET}.{number}", subnet_6, unasked))
        _cable(home, "wan", self._internet, f"port{home.pid}")
        self._internet.shell(f"ip link set port{home.pid} master switch up")
        home.shell(
            f"ip address add {home.address}/24 dev wan",
            f"ip address add {INTERNET_6}::{number}/64 dev wan nodad",
            "ip link set wan up",
            f"ip route add default via {INTERNET_6}::1",
        )
        if ipv6:
            home.shell(_until_ipv6("wan"))
            self._internet.shell(f"ip route add {subnet_6}::/64 via {INTERNET_6}::{number}")
        return home

    def offices(self, mtu: int, *, told: bool) -> tuple[Router, Router]:
        """Return two routers, joined by a link of that MTU; both inside networks have larger MTUs.

        Args:
            told: whether a router notifies the sender of a packet that is too big. If not, such
                packets vanish silently.
        """
        west, east = self._keep(Router("10.1.0")), self._keep(Router("10.2.0"))
        _cable(west, "wan", east, "wan")
        for router, own, other, behind in (
            (west, "10.0.0.1", "10.0.0.2", "10.2.0"),
            (east, "10.0.0.2", "10.0.0.1", "10.1.0"),
        ):
            router.shell(
                f"ip address add {own}/24 dev wan",
                f"ip link set wan mtu {mtu} up",
                f"ip route add {behind}.0/24 via {other}",
            )
            if not told:
                router.nft("""
                    table ip silence {
                      chain out {
                        type filter hook output priority 0
                        icmp type destination-unreachable drop
                      }
                    }""")
        return west, east

    def close(self) -> None:
        for node in self._nodes:
            node.close()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self, node: AnyNode) -> AnyNode:
        self._nodes.append(node)
        return node


def _bridge(node: Node, name: str, address: str, address_6: str) -> None:
    lines = [
        f"ip link add {name} type bridge mcast_snooping 0",
        f"ip address add {address}/24 dev {name}",
        f"ip link set {name} up",
    ]
    if address_6:
        lines += [f"ip address add {address_6}/64 dev {name} nodad"]
    node.shell(*lines)


def _until_ipv6(device: str) -> str:
    """Return a wait in shell code: a new device loses IPv6 packets until it has its own address."""
    ready = f"ip -6 address show dev {device} scope link | grep -q fe80"
    return f"for turn in $(seq 500); do {ready} && break; sleep 0.01; done"


def _cable(one: Node, plug: str, other: Node, socket: str) -> None:
    """Join two nodes by a pair of devices, which never exist in another namespace."""
    command = (
        f"ip link add {plug} netns {one.pid} type veth peer name {socket} netns {other.pid}"
    ).split()
    subprocess.run(command, check=True, timeout=COMMAND_S)
