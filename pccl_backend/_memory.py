"""The host's memory: its size is announced before it is taken."""

from __future__ import annotations

import logging
from pathlib import Path

__all__ = ["available", "take"]

CGROUP = Path("/sys/fs/cgroup")
log = logging.getLogger("pccl")


def take(size: int, *, parameters: int) -> None:
    """Announce `size` bytes that are taken next, or refuse them if the host has fewer.

    Raises:
        MemoryError: with the size and the available memory.
    """
    free = available()
    if size > free:
        raise MemoryError(
            f"the outer state of {parameters:,} parameters takes {size / 2**30:.2f} GiB of host "
            f"memory ({size / parameters:.1f} bytes for each), and {free / 2**30:.2f} GiB are "
            "available: use a host with more memory, or freeze parameters"
        )
    log.info(
        "the outer state of %s parameters takes %.2f GiB of host memory",
        f"{parameters:,}",
        size / 2**30,
    )


def available() -> int:
    """Return how many bytes the machine, or the cgroup of this process, has left."""
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":") for line in file)
    free = int(fields["MemAvailable"].split()[0]) << 10
    try:
        most = (CGROUP / "memory.max").read_text().strip()
        if most != "max":
            used = int((CGROUP / "memory.current").read_text())
            fields = dict(line.split() for line in (CGROUP / "memory.stat").open())
            free = min(free, int(most) - used + int(fields["inactive_file"]))
    except OSError:  # no cgroup of version 2, or the root one
        pass
    return free
