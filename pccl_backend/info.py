"""Facts about the run of this process: `run_info`, and the records that it returns.

The compiled module makes a dict of each record, with the names of its attributes
(csrc/torch/answers.cc). A record takes that dict as it is, because calls of all constructors would
take longer than the rest of `run_info`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch.distributed as dist

from pccl_backend import _C
from pccl_backend._torch import world
from pccl_backend.topology import TopologyPlan, plan_of

__all__ = ["Link", "Member", "PastOperation", "RunInfo", "TimeSpent", "report", "run_info"]

Record = TypeVar("Record")

MEASURED_BYTES_MIN = 1 << 20  # below, the round trips count as much as the bytes


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member of the group.

    Attributes:
        peer: its id, unique in the run and never reused.
        name: its name in errors and logs (PCCL_NAME).
        address: host and port where it listens for other peers, as passed on by the master.
    """

    peer: str
    name: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Link:
    """The link to another peer, as it was used from here.

    Attributes:
        peer: id of the other peer.
        connection: number of the present link to this peer; each link to the peer has a different
            number.
        lanes: TCP connections that are open.
        lanes_used: how many of them take new data.
        rtt: round-trip time in seconds.
        rate: bytes per second from here while only the network limited them; None if no such time
            was long enough (some round trips).
        bytes_sent: bytes sent over these connections, with framing.
        bytes_received: bytes received over these connections, with framing.
        send_calls: number of system calls that sent.
        receive_calls: number of system calls that received.
    """

    peer: str
    connection: int
    lanes: int
    lanes_used: int
    rtt: float
    rate: int | None
    bytes_sent: int
    bytes_received: int
    send_calls: int
    receive_calls: int


@dataclass(frozen=True, kw_only=True)
class PastOperation:
    """An operation of this process that has ended.

    Attributes:
        operation: the call, its tag and its number, as in errors: "all_reduce(sum, float32, 1024
            elements, world size 2) (layer.3, #12)".
        outcome: "ok", or the kind of its error, such as "peer lost".
        bytes: size of the tensor of this rank, or of each of its parts.
        seconds: from the call to its end.
        commit_seconds: seconds from the arrival of all data here until all members were known to
            have theirs, too; 0 for a failure.
    """

    operation: str
    outcome: str
    bytes: int
    seconds: float
    commit_seconds: float


@dataclass(frozen=True, kw_only=True)
class TimeSpent:
    """The time of the application's thread, in seconds, by its use.

    The application's thread is the one that has joined the group. `all` is the sum of `computing`,
    `waiting`, `transferring`, `joint`, `saving` and `failing`. Only waits in `Work.wait` and in
    calls without `async_op` are seen: a wait for a torch Future, as torch's own
    DistributedDataParallel makes it, counts as computing.

    Attributes:
        all: since this process began to join the group.
        computing: outside of pccl.
        waiting: in the wait for an operation, until the last member had called it, too.
        waiting_for: the parts of `waiting`, by the id of the member that was last.
        transferring: in the wait for an operation, after all members had called it.
        joint: in joint calls, such as `update_topology`, and in the join.
        saving: the trainer's own work: it measures the pseudo-gradient, moves the global
            parameters, and copies them into the model. 0 without a trainer.
        failing: in waits for operations that have failed with the loss of a member.
        other_threads: in waits of all other threads, added up; no part of `all`.
    """

    all: float = 0.0
    computing: float = 0.0
    waiting: float = 0.0
    waiting_for: Mapping[str, float] = field(default_factory=dict)
    transferring: float = 0.0
    joint: float = 0.0
    saving: float = 0.0
    failing: float = 0.0
    other_threads: float = 0.0

    @property
    def waited(self) -> float:
        """Seconds in calls of the group, which is all but `computing` and `saving`."""
        return self.waiting + self.transferring + self.joint + self.failing

    def since(self, before: TimeSpent) -> TimeSpent:
        """Return the time that was spent after `before`, an earlier record of the same group.

        Example:
            >>> before = pccl.run_info().time
            >>> train()
            >>> pccl.run_info().time.since(before).waiting
            1.7
        """
        spent = {
            name: getattr(self, name) - getattr(before, name)
            for name in vars(self)
            if name != "waiting_for"
        }
        longer = {
            peer: seconds - before.waiting_for.get(peer, 0.0)
            for peer, seconds in self.waiting_for.items()
        }
        return TimeSpent(waiting_for={p: s for p, s in longer.items() if s > 0}, **spent)


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The facts about the run that this process has, at one moment.

    Attributes:
        run: name of the run.
        master: address of the master.
        encrypted: whether all traffic is encrypted.
        peer_group: number of the peer group.
        peer: id of this peer, unique in the run and never reused.
        epoch: number of the present epoch.
        rank: this process's rank.
        world_size: number of members.
        min_peers: the smallest number of members with which the group continues.
        members: in the order of the ranks.
        ring: ranks in ring order: each rank sends to the next one in it.
        shares: the shares of the ranks in direct all-reduces, in 256ths; empty if all all-reduces
            go around the ring.
        direct: the sizes of direct all-reduces, as (least, bound): from `least` bytes on, and below
            `bound` bytes (None: no limit). None if all go around the ring.
        one_shot_bytes: operations on parts of up to this size take one message, and are not
            quantized.
        joined: ids of the peers that the last `update_topology` has admitted.
        left: ids of the peers that it has found gone.
        broken_by: the loss that broke the epoch, until `update_topology`; None if there was none.
        master_timeout: limit in seconds of the search for a lost master.
        on_peer_loss: the fate of operations in flight at a loss: "raise" or "retry". This and the
            next four are settings of the run, which its first peer has decided.
        pattern: how large all-reduces travel: "ring" or "direct"; None: the master chooses.
        peer_timeout: limit in seconds of a peer's silence.
        first_call_timeout: limit in seconds of the wait for a newcomer's first call.
        call_timeout: limit in seconds of the wait for a late peer's call; None: the timeout of the
            operation is the only limit.
        bytes_sent: bytes of tensors that this process has sent since it joined, as on the wire.
        bytes_received: bytes of tensors that it has received since then, as on the wire.
        tensor_bytes_sent: bytes of the sent tensors in memory: more than `bytes_sent` if they were
            quantized.
        tensor_bytes_received: bytes of the received tensors in memory.
        bytes_held: scratch memory and saved bytes of all groups of this process.
        operations_open: operations of this process that have not ended.
        links: to other peers.
        history: the last operations, at most 100, the oldest first.
        time: the use of the application's time since this process joined.
        plan: the result of the last `optimize_topology`; None if there was none.
        last_error: the error of the latest failed operation; None if none has failed
            since this process last called `update_topology`. An error usually arrives with its own
            class. If it passes through a Python callback of a future, such as `Future.then` in a
            communication hook, torch turns it into a RuntimeError, and this field still has the
            original.
    """

    run: str
    master: str
    encrypted: bool
    peer_group: int
    peer: str
    epoch: str
    rank: int
    world_size: int
    min_peers: int
    members: tuple[Member, ...]
    ring: tuple[int, ...]
    shares: tuple[int, ...]
    direct: tuple[int, int | None] | None
    one_shot_bytes: int
    joined: tuple[str, ...]
    left: tuple[str, ...]
    broken_by: str | None
    master_timeout: float
    on_peer_loss: str
    pattern: str | None
    peer_timeout: float
    first_call_timeout: float
    call_timeout: float | None
    bytes_sent: int
    bytes_received: int
    tensor_bytes_sent: int
    tensor_bytes_received: int
    bytes_held: int
    operations_open: int
    links: tuple[Link, ...]
    history: tuple[PastOperation, ...]
    time: TimeSpent
    plan: TopologyPlan | None
    last_error: Exception | None

    @property
    def measured_seconds_per_gib(self) -> float | None:
        """Median of the all-reduces in `history` with 1 MiB or more; None if there are none.

        Compare it with `plan.predicted`.
        """
        rates = [
            past.seconds / past.bytes
            for past in self.history
            if past.operation.startswith("all_reduce(")
            and past.outcome == "ok"
            and past.bytes >= MEASURED_BYTES_MIN
        ]
        return statistics.median(rates) * (1 << 30) if rates else None

    @property
    def cuda_library(self) -> str:
        """State of libpccl_cuda.so, the library with the CUDA kernels, in this process.

        "loaded"; "absent" if this installation was built without nvcc; otherwise why it cannot be
        used, such as a driver that is too old. Everything works without it, too: the host then does
        the work of the kernels. Asking loads the library, if nothing has loaded it yet.
        """
        return _C.cuda_library()


def run_info(group: dist.ProcessGroup | None = None) -> RunInfo:
    """Return the facts about the run that this process has, for people and logs. Not joint.

    Raises:
        InvalidStateError: this process has left the group, or is a fork of a process in the group.

    Example:
        >>> pccl.run_info().world_size
        3
        >>> [link.rtt for link in pccl.run_info().links]
        [0.0117, 0.0891]
    """
    pccl_group = world.resolve(group)
    fields = pccl_group.run_info()
    for name in ("ring", "shares", "joined", "left"):
        fields[name] = tuple(fields[name])
    for name, kind in (("members", Member), ("links", Link), ("history", PastOperation)):
        fields[name] = tuple(_record(kind, each) for each in fields[name])
    fields["time"] = _record(TimeSpent, fields["time"])
    plan = fields["plan"]
    fields["plan"] = None if plan is None else plan_of(plan)
    fields["last_error"] = _last_error(pccl_group)
    return _record(RunInfo, fields)


def report(group: dist.ProcessGroup | None = None, /, **numbers: float) -> None:
    """Set numbers of the program that people see who watch the run, such as its loss. Not joint.

    `pccl status` and `pccl top` show the last ones of each peer. A number stays until it is set
    again. Nothing is sent while nobody watches, so the call may be made in each step.

    Args:
        group: the group whose run is meant; the default group unless given.
        numbers: up to 8 finite numbers in all; a name has at most 32 printable bytes.

    Raises:
        ValueError: a number is not finite, a name is too long or not printable, or there are too
            many names. Then no number is set.
        TypeError: a value is no number.
        InvalidStateError: this process has left the group.

    Example:
        >>> pccl.report(step=120, loss=2.31)
    """
    world.resolve(group).report([(name, float(number)) for name, number in numbers.items()])


def count_saving(seconds: float, group: dist.ProcessGroup | None = None) -> None:
    """Count this time of the application's thread as `TimeSpent.saving`; for the trainers."""
    world.resolve(group).add_saving(seconds)


def _record(kind: type[Record], fields: dict[str, Any]) -> Record:
    """Return a record with these attributes, and no others."""
    made = object.__new__(kind)
    object.__setattr__(made, "__dict__", fields)
    return made


def _last_error(group: _C.PcclGroup) -> Exception | None:
    try:
        group.raise_last_error()
    except Exception as error:  # noqa: BLE001
        return error.with_traceback(None)
    return None
