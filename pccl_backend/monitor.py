"""Scalars of a run for TensorBoard and for Weights & Biases. Neither of the two is imported.

A scalar is a number by step. These are facts of this process, about the time since its last record;
the first record begins at the join. docs/watching.md lists them.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch.distributed as dist

from pccl_backend.info import MEASURED_BYTES_MIN, PastOperation, RunInfo, TimeSpent, run_info

__all__ = ["Scalars"]

USES = ("computing", "waiting", "transferring", "joint", "saving", "failing")


class Scalars:
    """Writes the scalars of a group to a writer of TensorBoard, or to a run of W&B.

    Args:
        writer: has `add_scalar(name, value, step)`, as torch's SummaryWriter, or
            `log(dict, step=step)`, as `wandb.init()` returns it.
        every: `write` makes a record in every `every`-th call, from the first one on.
        group: the group; the default group unless given.

    Raises:
        TypeError: `writer` has neither method.
        ValueError: `every` is below 1.

    Example:
        >>> scalars = Scalars(SummaryWriter("runs/night"), every=10)
        >>> for step, batch in enumerate(batches):
        ...     train(batch)
        ...     scalars.write(step)
    """

    def __init__(
        self, writer: Any, *, every: int = 1, group: dist.ProcessGroup | None = None
    ) -> None:
        if not (hasattr(writer, "add_scalar") or hasattr(writer, "log")):
            raise TypeError(
                f"writer is a {type(writer).__name__}, which has neither add_scalar(name, value, "
                "step) nor log(dict, step=): give a SummaryWriter of TensorBoard or a run of W&B"
            )
        if every < 1:
            raise ValueError(f"every is {every}, and must be at least 1")
        self._writer = writer
        self._every = every
        self._group = group
        self._calls = 0
        self._last: RunInfo | None = None

    def write(self, step: int) -> None:
        """Write the scalars with this step, if it is the turn of this call. Not joint.

        Raises:
            InvalidStateError: this process has left the group.
        """
        self._calls += 1
        if (self._calls - 1) % self._every:
            return
        now = run_info(self._group)
        scalars = scalars_between(self._last, now)
        self._last = now
        if hasattr(self._writer, "add_scalar"):
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)
        else:
            self._writer.log(scalars, step=step)


def scalars_between(before: RunInfo | None, now: RunInfo) -> dict[str, float]:
    """Return the scalars of the time from one record to the next one; None: from the join on."""
    if before is not None and before.peer != now.peer:  # it has joined again, with counters at 0
        before = None
    scalars: dict[str, float] = {"group/world_size": now.world_size, "group/rank": now.rank}
    ended = _ended_since(before, now)
    scalars["operations/failed"] = sum(past.outcome != "ok" for past in ended)
    reduced = [
        past
        for past in ended
        if past.operation.startswith("all_reduce(")
        and past.outcome == "ok"
        and past.bytes >= MEASURED_BYTES_MIN
        and past.seconds > 0
    ]
    if reduced:
        hops = 2 * (now.world_size - 1) / now.world_size
        rates = [8e-9 * hops * past.bytes / past.seconds for past in reduced]
        scalars["allreduce/busbw_gbps"] = statistics.median(rates)
        scalars["allreduce/seconds"] = statistics.median(past.seconds for past in reduced)
    time = now.time.since(before.time if before else TimeSpent())
    if time.all > 0:
        for way in ("sent", "received"):
            more = getattr(now, f"bytes_{way}") - (getattr(before, f"bytes_{way}") if before else 0)
            scalars[f"network/{way}_gbps"] = 8e-9 * more / time.all
        scalars |= {f"time/{use}": getattr(time, use) / time.all for use in USES}
    downstream = now.ring[(now.ring.index(now.rank) + 1) % len(now.ring)]
    for link in now.links:
        if link.peer == now.members[downstream].peer:
            scalars["ring/rtt_ms"] = 1e3 * link.rtt
    return {f"pccl/{name}": value for name, value in scalars.items()}


def _ended_since(before: RunInfo | None, now: RunInfo) -> tuple[PastOperation, ...]:
    """Return the operations that only the later record has: those after the last one of both."""
    last = before.history[-1] if before and before.history else None
    for index in reversed(range(len(now.history))):
        if now.history[index] == last:
            return now.history[index + 1 :]
    return now.history
