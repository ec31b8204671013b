"""A network for one test (routers.py), or the reason why this machine cannot have one."""

from __future__ import annotations

import contextlib
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import refusal
from programs import Program
from routers import Network

ALLOW_CUBIC = Path(__file__).resolve().parents[2] / "tools" / "allow-cubic.sh"
ALLOW_S = 20.0

# Everything that such a network needs: devices, rules with NAT and rejection, cubic.
TRIAL = """
ip link add one type veth peer name other
ip link add switch type bridge
nft -f - <<RULES
table ip nat {
  chain in {
    type nat hook prerouting priority -100
    tcp dport 1 dnat to 192.0.2.1:2
  }
  chain out {
    type nat hook postrouting priority 100
    oifname "one" masquerade
  }
}
table inet gate {
  chain in {
    type filter hook input priority 0
    ct state established accept
    meta l4proto tcp reject with tcp reset
  }
}
RULES
echo cubic > /proc/sys/net/ipv4/tcp_congestion_control
"""


@contextlib.contextmanager
def own_network() -> Iterator[Network]:
    """Make a network for one test; skip the test if the machine refuses one."""
    _allow_cubic()
    tried = ["unshare", "--net", "sh", "-ec", TRIAL]
    if refused := refusal(tried, "root, network namespaces and nftables"):
        pytest.skip(refused)
    with Network() as network:
        yield network


@functools.cache
def _allow_cubic() -> Program:
    """Let namespaces choose cubic while this process lives; the program's input ends with it."""
    allow = Program([ALLOW_CUBIC], stdin=subprocess.PIPE)
    allow.line(ALLOW_S)
    return allow
