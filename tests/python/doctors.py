"""`pccl doctor` for tests: the command, and the facts of a host without a problem."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pccl_backend._settings import PeerSettings
from pccl_backend.command.doctor.facts import (
    Address,
    Clock,
    Cores,
    DialBack,
    Disk,
    Facts,
    Greeting,
    Install,
    Libraries,
    Machine,
    Memory,
    Network,
    OwnName,
    Path,
    Settings,
)
from pccl_backend.probe.settings import Buffers, HostSettings

PCCL = [sys.executable, "-m", "pccl_backend.cli"]
DOCTOR_S = 100.0  # it takes at most 20 s on a machine that is not busy

SYSTEM = HostSettings(
    congestion="cubic",
    available=("reno", "cubic"),
    allowed=("reno", "cubic"),
    wmem=Buffers(least=4096, first=16384, most=4194304),
    rmem=Buffers(least=4096, first=131072, most=6291456),
)
# An ordinary Debian on an ordinary machine in a cloud.
MACHINE = Machine(
    python=(3, 11, 2),
    executable="/srv/train/bin/python",
    suffixes=(".cpython-311-x86_64-linux-gnu.so", ".abi3.so", ".so"),
    torch="2.15.0+cu130",
    modules=("_C_torch_2_15.cpython-311-x86_64-linux-gnu.so",),
    folder="/srv/train/lib/python3.11/site-packages/pccl_backend",
    installs=(Install(version="0.1.0", folder="/srv/train/lib/python3.11/site-packages"),),
    commands=("/srv/train/bin/pccl",),
    libraries=Libraries(libuv="/usr/lib/libuv.so.1.0.0", own_libuv="/usr/lib/libuv.so.1.0.0"),
    settings=Settings(peer=PeerSettings()),
    open_files=(1024, 1048576),
    tcp=SYSTEM,
    cores=Cores(count=4),
    memory=Memory(free=12 << 30),
    disk=Disk(folder="/srv/state/pccl", free=20 << 30),
    own_name=OwnName(name="tokyo", addresses=("127.0.1.1",)),
    network=Network(ipv4="203.0.113.7", others=("203.0.113.7",)),
    clock=Clock(now=1_790_000_000.0, installed=1_780_000_000.0),
)
REACHED = Address(
    host="203.0.113.9", source="203.0.113.7", device="eth0", connect="open", seconds=0.08
)
NO_RUN = Greeting(
    ending="answered", code="invalid argument", why="the name of the run is empty", rtt=0.08
)
PATH = Path(
    host="master.example.com",
    port=48148,
    addresses=(REACHED,),
    greeting=NO_RUN,
    large_greeting=NO_RUN,
    dial_back=DialBack(port=43210, host="203.0.113.7", connected=True, arrived=True, ahead=0.02),
    token="k3v9x2mq7a1p",
)
GOOD = Facts(machine=MACHINE, path=PATH)


class Found(NamedTuple):
    """A report of the command."""

    code: int
    lines: Mapping[str, Mapping[str, str]]  # by the name of the check

    def level(self, name: str) -> str:
        return self.lines[name]["level"]

    def text(self, name: str) -> str:
        return self.lines[name]["text"]

    def next(self, name: str) -> str:
        return self.lines[name]["next"]

    def bad(self) -> list[str]:
        return [name for name, line in self.lines.items() if line["level"] == "bad"]


def run_doctor(
    *words: str, inside: Sequence[str] = (), **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Run `pccl doctor`.

    Args:
        inside: the start of the command, for example nsenter with its options.
        environment: variables; None removes one.
    """
    variables = {name: text for name, text in os.environ.items() if name not in environment}
    variables |= {name: text for name, text in environment.items() if text is not None}
    return subprocess.run(
        [*inside, *PCCL, "doctor", *words],
        env=variables,
        capture_output=True,
        text=True,
        timeout=DOCTOR_S,
        check=False,
    )


def doctor(*words: str, inside: Sequence[str] = (), **environment: str | None) -> Found:
    """Run `pccl doctor --json`; return its report."""
    done = run_doctor(*words, "--json", inside=inside, **environment)
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["schema"] == 1
    assert (report["worst"] == "bad") == (done.returncode == 1)
    return Found(done.returncode, {line["name"]: line for line in report["lines"]})
