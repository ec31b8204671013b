"""The joint calls that change who is in a group, and how its data travels.

All members of a group make a *joint* call, in the same order. It blocks until all of them have made
it. `group` is the process group of a call; without it, the call uses the default group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from pccl_backend import _limits
from pccl_backend._torch import world

__all__ = ["Topology", "TopologyPlan", "are_peers_pending", "optimize_topology", "update_topology"]


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The members of a group after an `update_topology`.

    Attributes:
        epoch: number of the epoch of these members, the same on all members and never reused.
        rank: this process's rank.
        world_size: number of members.
        joined: ids of the peers that this call admitted. Ids are never reused.
        left: ids of the peers that left the run, and that are in no earlier result.
    """

    epoch: str
    rank: int
    world_size: int
    joined: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TopologyPlan:
    """How large all-reduces travel after an `optimize_topology`. All members get the same.

    Attributes:
        epoch: number of the epoch that has this plan.
        adopted: whether the call changed to this plan; False if it kept the one before.
        ring: ranks in ring order: each rank sends to the next one in it.
        shares: the shares of the ranks in direct all-reduces, in 256ths; empty if all go around the
            ring.
        direct: the sizes of direct all-reduces, as (least, bound): from `least` bytes on, and below
            `bound` bytes (None: no limit). None if all go around the ring.
        predicted_before: predicted seconds of an all-reduce of 1 GiB with the plan before the call;
            None if there is one member.
        predicted: predicted seconds with this plan.
        rates: `rates[i][j]` is the rate of the link from rank i to rank j, in bytes per second, or
            None if it is unknown.
        measured: the pairs of ranks that this call has measured.
        missing: the pairs of ranks whose rates are unknown in one direction or both.
        note: the steps that were left out, with the reason; empty if none was.
    """

    epoch: str
    adopted: bool
    ring: tuple[int, ...]
    shares: tuple[int, ...]
    direct: tuple[int, int | None] | None
    predicted_before: float | None
    predicted: float | None
    rates: tuple[tuple[float | None, ...], ...]
    measured: tuple[tuple[int, int], ...]
    missing: tuple[tuple[int, int], ...]
    note: str


def update_topology(group: dist.ProcessGroup | None = None) -> Topology:
    """Admit waiting peers, remove lost ones, and continue with the rest. Joint.

    If no peer waits and none is lost, the call changes nothing, and running operations continue.
    Otherwise operations that all members have called complete, and any other operation ends with
    `MembershipChangedError`. Newcomers are appended to the ranks; survivors keep their order. A
    loss during the call does not make it fail. Rank and world size change when the call returns.
    `joined` and `left` of the result list the changes; both are empty if nothing changed.

    A newcomer returns from `init_process_group`, or from `join`, when the others return from this
    call. Therefore make this call at the end of a step, so that all members do the same next.

    Raises:
        TooFewPeersError: fewer than `min_peers` members for longer than the group's timeout.
        OperationTimeoutError: a member did not make the call in time.
        CollectiveMismatchError: a member made a different joint call.
        InvalidStateError: this process is in a joint call already.

    Example:
        >>> try:
        ...     dist.all_reduce(gradient)
        ... except pccl.PeerLostError:
        ...     pccl.update_topology()
        ...     dist.all_reduce(gradient)
    """
    pccl_group = world.resolve(group)
    fields = pccl_group.update_topology()
    world.refresh(pccl_group, joined=bool(fields["joined"]))
    return Topology(
        epoch=fields["epoch"],
        rank=fields["rank"],
        world_size=fields["world_size"],
        joined=tuple(fields["joined"]),
        left=tuple(fields["left"]),
    )


def are_peers_pending(group: dist.ProcessGroup | None = None) -> bool:
    """Return whether `update_topology` would change a group of the run now. Joint.

    All members get the same answer. Running operations continue undisturbed.

    Raises:
        PeerLostError: a member was lost: call `update_topology`.
        OperationTimeoutError, CollectiveMismatchError, InvalidStateError: as `update_topology`.

    Example:
        >>> if pccl.are_peers_pending():
        ...     pccl.update_topology()
    """
    return world.resolve(group).are_peers_pending()


def _check_probe_limits(budget: float, max_bytes: int | None) -> None:
    most = _limits.PROBE_BUDGET_MAX_S
    if not isinstance(budget, (int, float)):
        raise TypeError(f"budget must be seconds, a number, not {type(budget).__name__}")
    if not math.isfinite(budget) or not 0 <= budget <= most:
        raise ValueError(
            f"optimize_topology(budget={budget!r}): expected seconds from 0 to {most:g}; the "
            "links are measured for so long, and the rest waits for the next call"
        )
    least = _limits.PROBES_BYTES_MIN
    if max_bytes is not None and (not isinstance(max_bytes, int) or isinstance(max_bytes, bool)):
        raise TypeError(f"max_bytes must be an integer or None, not {type(max_bytes).__name__}")
    if max_bytes is not None and not least <= max_bytes < 2**63:
        raise ValueError(
            f"optimize_topology(max_bytes={max_bytes!r}): expected None, for no limit, or at least "
            f"{least} bytes, which one member sends and receives to measure one link; to measure "
            "nothing, give budget=0"
        )


def optimize_topology(
    group: dist.ProcessGroup | None = None, *, budget: float = 10.0, max_bytes: int | None = None
) -> TopologyPlan:
    """Measure the links between the members, and change to a faster ring if there is one. Joint.

    Nothing else travels meanwhile: operations that all members have called complete first, and
    later calls wait. Each pair of members exchanges data in both directions for 0.8 seconds, or
    12 round trips if that is longer. Disjoint pairs do so at the same time. If `budget` is too
    short for all pairs, the next optimize_topology measures the pairs that are left. The master
    then plans the order of the ring, the members' shares of direct all-reduces, and the tensor
    sizes for which an all-reduce is direct. All members change to this plan if it is predicted to
    be clearly faster than the present one: usually by a tenth, the first time by 3 %. No operation
    is aborted, and ranks do not change. A new order of the ring adds in a new order: the last bits
    of a result may differ from earlier results, but all members get the same bits.

    The call sends as much as the links carry in that time: several GB on a fast network. Give
    `max_bytes` if bytes cost money.

    The master also learns from the traffic of the run, and `update_topology` changes to a better
    plan in the same way. So one call after all members have joined is enough in most runs.

    Args:
        budget: seconds of measurement, at most 600, the same on all ranks. With 0, nothing is
            measured, and the plan follows from the known rates.
        max_bytes: the bytes that this call may send and receive at each member, together, the same
            on all ranks: at least 2 MiB, or None for no limit. Framing, encryption and the bytes
            that TCP sends again are not counted. With N members, these bytes are cut into N turns,
            one for each link and a spare one. A turn has at least 2 MiB, so a small limit leaves
            links for the next call.

    Returns:
        The plan that holds now, the known properties of the links, and in `note` the steps that
        were left out. With one member the call returns at once.

    Raises:
        ValueError: the budget is negative, not a number, or above 600; `max_bytes` is below 2 MiB.
        CollectiveMismatchError: the ranks gave different budgets or values of `max_bytes`, or made
            different joint calls.
        PeerLostError: a member was lost: call `update_topology`. Under the policy "retry", the call
            continues among the others instead.
        OperationTimeoutError: a member did not make the call in time.
        InvalidStateError: another joint call of this process is under way, such as a
            `sync_shared_state` in the background.
        TopologyError: the master has found no plan in time; the present plan stays.
        TypeError: the budget is no number, or `max_bytes` no integer.

    Example:
        >>> plan = pccl.optimize_topology(budget=20)
        >>> if plan.missing:
        ...     plan = pccl.optimize_topology(budget=20)
        >>> plan.ring, plan.predicted
        ((0, 2, 1, 3), 5.7)
    """
    _check_probe_limits(budget, max_bytes)
    return plan_of(world.resolve(group).optimize_topology(round(budget * 1000), max_bytes or 0))


def plan_of(fields: dict[str, Any]) -> TopologyPlan:
    """Return a plan that the compiled module has returned as a dict."""
    return TopologyPlan(
        epoch=fields["epoch"],
        adopted=fields["adopted"],
        ring=tuple(fields["ring"]),
        shares=tuple(fields["shares"]),
        direct=fields["direct"],
        predicted_before=fields["predicted_before"],
        predicted=fields["predicted"],
        rates=tuple(tuple(row) for row in fields["rates"]),
        measured=tuple(fields["measured"]),
        missing=tuple(fields["missing"]),
        note=fields["note"],
    )
