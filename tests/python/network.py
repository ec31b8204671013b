"""Machines: network namespaces joined by a bridge, with cables that can be cut.

The process that makes them runs in its own namespace (tools/stock-network.sh), together with the
bridge and the master. Each machine is a namespace that lives as long as its holder process, and the
holder ends with this process: nothing stays behind, however this run ends.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import uuid
from pathlib import Path

from programs import Program

SUBNET = "10.77.0"
HUB = f"{SUBNET}.1"
CLONE_NEWNET = 0x40000000
COMMAND_S = 60.0  # limit of a command that takes a moment


class Namespace:
    """A network namespace that lives as long as a process holds it open."""

    def __init__(self) -> None:
        # The holder waits for the end of its input, which ends with this process.
        self._holder = Program(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE
        )
        if not self._holder.line(COMMAND_S):
            self.close()
            raise OSError("there is no network namespace: see the error of unshare above")
        self.pid = self._holder.pid
        self.path = f"/proc/{self.pid}/ns/net"

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs `arguments` inside."""
        return ["nsenter", f"--net={self.path}", *arguments]

    def run(self, *arguments: str) -> str:
        """Run a program inside; return its output."""
        done = subprocess.run(
            self.command(*arguments),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=COMMAND_S,
        )
        return done.stdout

    def close(self) -> None:
        self._holder.end()


# Two processes with the same boot id run on one machine, for pccl.
WITH_BOOT_ID = 'mount --bind "$1" /proc/sys/kernel/random/boot_id; shift; exec "$@"'


def own_boot_id(folder: Path, machine: int) -> list[str]:
    """Return the prefix of a command that sees another boot id; its file is in `folder`."""
    boot_id = folder / f"boot-id-{machine}"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    return ["unshare", "--mount", "sh", "-ec", WITH_BOOT_ID, "-", str(boot_id)]


class Machine:
    """One machine on the bridge, with its own address."""

    def __init__(self, number: int) -> None:
        self._cable = f"cable{number}"
        self._inside = Namespace()
        self.namespace = self._inside.path
        plug = f"plug{number}"
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", plug)
        _ip("link", "set", plug, "netns", str(self._inside.pid))
        _ip("link", "set", self._cable, "master", "bridge", "up")
        for command in (
            "link set lo up",
            f"link set {plug} name eth0",
            f"address add {SUBNET}.{10 + number}/24 dev eth0",
            "link set eth0 up",
        ):
            self._inside.run("ip", *command.split())

    def cut(self) -> None:
        """Drop every packet, silently, until mend()."""
        _ip("link", "set", self._cable, "nomaster")

    def mend(self) -> None:
        _ip("link", "set", self._cable, "master", "bridge")


def make_hub() -> None:
    """Make the bridge, with this process's own address on it."""
    # No cable has this hardware address. Otherwise the bridge takes the address of a cable, and
    # packets that arrive on that cable are for the bridge even when the cable is cut.
    _ip("link", "add", "bridge", "address", "02:00:00:00:00:01", "type", "bridge")
    _ip("address", "add", f"{HUB}/24", "dev", "bridge")
    _ip("link", "set", "bridge", "up")


def enter(namespace: str) -> None:
    """Move this process, which has one thread, to another machine."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    os.close(descriptor)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=COMMAND_S)
