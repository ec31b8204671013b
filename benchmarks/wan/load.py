"""How busy the machine was during the calls of a benchmark in an emulated network.

All hosts and the network share the cores of one machine. If many hosts have work at once, each
waits for a core. Machines of their own would not wait. So a result counts only if the cores were
idle for enough time.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab import Lab

CORES_BUSY_MAX = 0.6


@dataclass(kw_only=True)
class Loaded:
    """A row whose calls were watched.

    Attributes:
        network: for each call, the share of a core that each thread of the network took.
        cores: for each call of each contender, the share of all cores that was not idle.
    """

    network: list[float] = field(default_factory=list)
    cores: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def watched(self, lab: Lab, name: str) -> Iterator[None]:
        """Add the load of the code inside, which is a call of this contender."""
        begin, network, idle = time.monotonic(), lab.cpu(), _idle_seconds()
        yield
        passed = time.monotonic() - begin
        self.network.append(lab.load(network, passed))
        self.cores.setdefault(name, []).append(
            1 - (_idle_seconds() - idle) / passed / (os.cpu_count() or 1)
        )

    @property
    def cores_busy(self) -> float:
        """The median share of the contender that needed most."""
        return max(statistics.median(shares) for shares in self.cores.values())

    @property
    def enough_cores(self) -> bool:
        """Whether the cores did not hold up the hosts."""
        return self.cores_busy <= CORES_BUSY_MAX

    def load(self) -> str:
        """Return the medians as text."""
        verdict = "" if self.enough_cores else f", **open**: above {CORES_BUSY_MAX:g}"
        network = statistics.median(self.network)
        return f"{network:.2f} of a core; cores {self.cores_busy:.2f} busy{verdict}"


def _idle_seconds() -> float:
    """Return the time that all cores were idle since the start of the machine."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")  # idle, waiting for a disk
