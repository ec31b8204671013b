"""The public calls that torch.distributed does not have.

All members of a group make the *joint* calls (`update_topology`, `optimize_topology`,
`are_peers_pending`, and `sync_shared_state` of state_sync.py), in the same order. A joint call
blocks until all members have made it. `group` is the process group of a call; without it, the call
uses the default group.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, overload

import torch
import torch.distributed as dist

from pccl_backend import _C, _limits, quantization
from pccl_backend._torch import open_run, world

__all__ = [
    "Contribution",
    "Topology",
    "TopologyPlan",
    "all_reduce",
    "are_peers_pending",
    "contributors",
    "cuda_library",
    "join",
    "last_error",
    "optimize_topology",
    "run_info",
    "tag",
    "update_topology",
]

REDUCE_OPS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}


def _options_for(op: dist.ReduceOp.RedOpType) -> dist.AllreduceOptions:
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


# Never changed, therefore created once: a call does not pay for them.
_OPTIONS = {name: _options_for(op) for name, op in REDUCE_OPS.items()}


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The members of a group after an `update_topology`.

    Attributes:
        epoch: name of this membership, the same on all members and never reused.
        rank: this process's rank.
        world_size: number of members.
        joined: names of the peers that this call admitted. Peer names are never reused.
        left: names of the peers that left the run, and that no earlier result has named.
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
        epoch: name of the epoch that has this plan.
        adopted: whether the call changed to this plan; False if it kept the one before.
        ring: ranks in ring order: each sends to the next one.
        shares: of the ranks in direct all-reduces, in 256ths; empty if all go around the ring.
        direct: large all-reduces are direct from so many bytes on, and below so many bytes (None:
            no limit). None if all go around the ring.
        predicted_before: predicted seconds of an all-reduce of 1 GiB with the plan before the call;
            None if there is one member.
        predicted: the same with this plan.
        rates: `rates[i][j]` is what the link from rank i to rank j carries, in bytes per second, or
            None if it is unknown.
        measured: the pairs of ranks that this call has measured.
        missing: the pairs of ranks whose rates are unknown in one direction or both.
        note: what the call has not done, and why; empty if it has done everything.
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


def join(
    url: str,
    *,
    peer_group: int | None = None,
    min_peers: int | None = None,
    timeout: timedelta = dist.default_pg_timeout,
) -> dist.ProcessGroup:
    """Join a run with a group of its own, with or without a default group.

    The call works like `init_process_group(init_method=url)`, but does not touch the default group.
    NCCL or FSDP inside a host continue unchanged, and this group is used between hosts. Address its
    ranks by `group_src=`, `group_dst=`, `group.rank()` and `group.size()`: global ranks belong to
    the default group. End the group with `dist.destroy_process_group(group)`.

    Args:
        url: `pccl://host:port/RUN`.
        peer_group: overrides the URL's parameter of this name.
        min_peers: overrides the URL's parameter of this name.
        timeout: limit for the admission and for each operation of the group. `timedelta.max` means
            for ever.

    Raises:
        ValueError: the URL, the timeout or an environment variable is invalid.
        MasterLostError: no master answered within the peer timeout.
        TooFewPeersError: not enough peers came in time.
        PcclError: the master refused this peer; the message says why.

    Example:
        >>> group = pccl.join("pccl://host:48148/tokyo", peer_group=local_rank)
        >>> dist.all_reduce(tensor, group=group)
    """
    run = open_run.read_url(url, peer_group=peer_group, min_peers=min_peers)
    group = open_run.join_open_run(run, timeout)
    world.add_beside_default(group)
    return group


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
        CollectiveMismatchError: a member made another joint call.
        InvalidStateError: another joint call of this process is under way.

    Example:
        >>> try:
        ...     dist.all_reduce(gradient)
        ... except pccl.PeerLostError:
        ...     pccl.update_topology()
        ...     dist.all_reduce(gradient)
    """
    pccl_group = world.resolve(group)
    fields = pccl_group.update_topology()
    world.refresh(pccl_group)
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
    short for all pairs, the next call goes on with the others. The master then plans the order of
    the ring, the members' shares of direct all-reduces, and the sizes that are direct. If the plan
    is predicted to be faster than the present one by a tenth, all members change to it. No
    operation is aborted, and ranks do not change. Another order of the ring adds in another order:
    results may differ in the last bits from those before, but never between members.

    The call sends as much as the links carry in that time: several GB on a fast network. Where
    bytes cost money, give `max_bytes`.

    The master also learns from the traffic of the run, and `update_topology` changes to a better
    plan in the same way. So one call after the members have come together is enough in most runs.

    Args:
        budget: seconds for which links are measured, at most 600, the same on all ranks. With 0,
            nothing is measured, and the plan follows from what is known.
        max_bytes: the bytes that this call may send and receive at each member, together, the same
            on all ranks: at least 2 MiB, or None for no limit. Framing, encryption and what TCP
            repeats are not counted. N members cut them into N turns, one for each link and a spare
            one. A turn has at least 2 MiB, so a small limit leaves links for the next call.

    Returns:
        The plan that holds now, what is known of the links, and in `note` what was not done. With
        one member the call returns at once.

    Raises:
        ValueError: the budget is negative, not a number, or above 600; `max_bytes` is below 2 MiB.
        CollectiveMismatchError: the ranks gave different budgets or values of `max_bytes`, or made
            different joint calls.
        PeerLostError: a member was lost: call `update_topology`. Under the policy "retry", the call
            goes on among the others instead.
        OperationTimeoutError: a member did not make the call in time.
        InvalidStateError: another joint call of this process is under way, such as a
            `sync_shared_state` in the background.
        TopologyError: the master has found no plan in time; the present one stays.
        TypeError: the budget is no number, or `max_bytes` no integer.

    Example:
        >>> plan = pccl.optimize_topology(budget=20)
        >>> if plan.missing:
        ...     plan = pccl.optimize_topology(budget=20)
        >>> plan.ring, plan.predicted
        ((0, 2, 1, 3), 5.7)
    """
    _check_probe_limits(budget, max_bytes)
    fields = world.resolve(group).optimize_topology(round(budget * 1000), max_bytes or 0)
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


@contextmanager
def tag(text: str) -> Iterator[None]:
    """Put this thread's collectives under a tag.

    Operations with the same tag are matched between ranks by the order of the calls. Operations
    with different tags are independent of each other's order, so threads may interleave them
    freely.

    Args:
        text: up to 256 bytes without control and formatting characters, which do not begin with
            "pccl:"; "" is the default tag.

    Raises:
        ValueError: the tag is longer, or has such characters or such a beginning.

    Example:
        >>> with pccl.tag("layer.3"):
        ...     work = dist.all_reduce(gradient, async_op=True)
    """
    _check_tag(text)
    with _call_options(tag=text):
        yield


@overload
def all_reduce(
    tensor: torch.Tensor,
    op: str | dist.ReduceOp.RedOpType = "sum",
    tag: str = "",
    group: dist.ProcessGroup | None = None,
    *,
    quantize: quantization.Format | None = None,
    on_loss: str | None = None,
    async_op: Literal[True],
) -> dist.Work: ...


@overload
def all_reduce(
    tensor: torch.Tensor,
    op: str | dist.ReduceOp.RedOpType = "sum",
    tag: str = "",
    group: dist.ProcessGroup | None = None,
    *,
    quantize: quantization.Format | None = None,
    on_loss: Literal["keep"],
    async_op: bool = False,
) -> dist.Work: ...


@overload
def all_reduce(
    tensor: torch.Tensor,
    op: str | dist.ReduceOp.RedOpType = "sum",
    tag: str = "",
    group: dist.ProcessGroup | None = None,
    *,
    quantize: quantization.Format | None = None,
    on_loss: str | None = None,
    async_op: bool = False,
) -> dist.Work | None: ...


def all_reduce(
    tensor: torch.Tensor,
    op: str | dist.ReduceOp.RedOpType = "sum",
    tag: str = "",
    group: dist.ProcessGroup | None = None,
    *,
    quantize: quantization.Format | None = None,
    on_loss: str | None = None,
    async_op: bool = False,
) -> dist.Work | None:
    """Reduce a tensor over all members, in place: `dist.all_reduce` with a tag.

    torch's coalescing manager does not collect this call: the operation begins at once.

    Args:
        tensor: a tensor of any shape on the CPU or on a CUDA device, with the same dtype and number
            of elements on all members; integers, bool, floats from 16 bits, and complex for sums
            and averages. A sum also takes sparse tensors (COO, on the CPU), without `on_loss`.
        op: "sum", "avg" (not for bool), "product", "min", "max", or "band", "bor", "bxor"
            (integers and bool), or a `dist.ReduceOp`. In 16-bit floats a sum can overflow, and an
            average of finite numbers is finite. One of integers is their sum / N, towards zero.
        tag: see `tag`; "" keeps the surrounding one.
        group: the process group.
        quantize: `MinMax(...)` or `BFloat16()`, the same on all members: the tensor travels with
            fewer bytes, and all members hold the same rounded result. For sums and averages of
            float32, float16 and bfloat16. None keeps what a surrounding `quantize` has set.
        on_loss: None: the group's policy applies (PCCL_ON_PEER_LOSS). "keep" (sums and averages):
            if a member is lost during the operation, elements that all other members have already
            finished keep their result, over all members that began. Only the remaining elements
            are reduced again, over the survivors. `contributors` tells which elements are which.
            Under the policy "raise", the group still needs `update_topology` after a loss.
        async_op: return at once, with a Work whose `wait()` returns the outcome.

    Returns:
        The Work if `async_op` is set. A finished Work if `on_loss` is "keep". Otherwise None.

    Raises:
        ValueError: op, dtype, quantize, on_loss or tensor is invalid, for example a conjugated or
            negated view.
        PeerLostError, MembershipChangedError, CollectiveMismatchError, OperationTimeoutError: the
            operation failed on all members alike, and the tensor is as it was. With "keep", a loss
            causes a failure only if a member had not called the operation yet, or if fewer than
            min_peers are left.

    Example:
        >>> work = pccl.all_reduce(gradient, op="avg", tag="layer.3", async_op=True)
        >>> work.wait()
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"tensor must be a torch.Tensor, not {type(tensor).__name__}")
    if on_loss not in (None, "keep"):
        raise ValueError(f'on_loss is {on_loss!r}; it can be "keep", or None')
    if tensor.is_conj() or tensor.is_neg() or tensor.is_meta:
        raise _unfit(tensor)
    options = _allreduce_options(op)
    numbers = quantization.numbers_for(tensor, op, quantize)
    # dist.all_reduce spends half of the time of an asynchronous call on checks for other backends.
    call = world.resolve(group).allreduce
    if tag == "" and on_loss is None and quantize is None:
        work = call([tensor], options)
    else:
        _check_tag(tag)
        # An empty tag and None leave what a block around this call has set.
        with _call_options(tag=tag or None, keep=True if on_loss else None, quantize=numbers):
            work = call([tensor], options)
    if async_op:
        return work
    work.wait()
    return None if on_loss is None else work


def _unfit(tensor: torch.Tensor) -> Exception:
    """Return the reason for refusing it: torch gives any backend a resolved copy, or nothing."""
    if tensor.is_meta:
        return NotImplementedError(
            "pccl moves tensors of the CPU and of CUDA devices, not those on meta"
        )
    return ValueError(
        "all_reduce writes to its tensor, and this one is a view that torch conjugates or negates "
        "on reading: use .resolve_conj() or .resolve_neg()"
    )


def _allreduce_options(op: str | dist.ReduceOp.RedOpType) -> dist.AllreduceOptions:
    if isinstance(op, str):
        if op not in _OPTIONS:
            raise ValueError(f"op is {op!r}; known are {', '.join(REDUCE_OPS)}")
        return _OPTIONS[op]
    # torch counts the class dist.ReduceOp as one of its own instances.
    if isinstance(op, type) or not isinstance(op, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        raise TypeError(f"op must be a name or a dist.ReduceOp, not {type(op).__name__}")
    try:
        return _options_for(op)
    except TypeError:  # torch takes the bare PREMUL_SUM for none
        raise ValueError(
            f"op is {op!r} and needs a factor: torch.distributed._make_nccl_premul_sum(factor) "
            "makes such an operation"
        ) from None


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """A range of elements that was reduced over the same members.

    Attributes:
        start: first element, in the order of `tensor.flatten()` for a contiguous tensor, otherwise
            in memory order.
        stop: the element after the last.
        peers: names of the peers whose tensors are in the result, as in `run_info`. A peer that was
            fetching the shared state is not among them (`StateSync`).
    """

    start: int
    stop: int
    peers: tuple[str, ...]


def contributors(work: dist.Work) -> tuple[Contribution, ...]:
    """Tell whose tensors are in the result of an all-reduce with `on_loss="keep"`. Not joint.

    All members get the same answer: one entry after an undisturbed operation, and one more entry
    for each loss after which a part was reduced again. An average divides by the number of `peers`.

    Args:
        work: the finished Work that `all_reduce` returned.

    Raises:
        ValueError: the work is not finished, it failed, or it was not called with `on_loss="keep"`.
        TypeError: `work` is not a Work of a pccl group.

    Example:
        >>> work = pccl.all_reduce(delta, op="avg", on_loss="keep")
        >>> [(part.start, part.stop, len(part.peers)) for part in pccl.contributors(work)]
        [(0, 245366784, 4), (245366784, 268435456, 3)]
    """
    if not isinstance(work, dist.Work):
        raise TypeError(
            f"contributors() is for the Work of a pccl group, not {type(work).__name__}"
        )
    parts = _C.parts(work)
    if not parts:
        raise ValueError('contributors() needs a finished all_reduce with on_loss="keep"')
    starts = [0, *(stop for stop, _ in parts)]
    return tuple(
        Contribution(start=start, stop=stop, peers=tuple(peers))
        for start, (stop, peers) in zip(starts, parts, strict=False)
    )


def last_error(group: dist.ProcessGroup | None = None) -> Exception | None:
    """Return the error with which the latest failed operation of the group ended. Not joint.

    The result is None if no operation has failed since this process last called `update_topology`.
    An error usually arrives with its own class. But if it passes through a Python callback of a
    future, such as `Future.then` in a communication hook, torch makes a RuntimeError of it. This
    call tells what it was.

    Example:
        >>> try:
        ...     loss.backward()
        ... except RuntimeError:
        ...     if not isinstance(pccl.last_error(), pccl.PeerLostError):
        ...         raise
        ...     pccl.update_topology()
    """
    pccl_group = world.resolve(group)
    try:
        pccl_group.raise_last_error()
    except Exception as error:  # noqa: BLE001
        return error.with_traceback(None)
    return None


def run_info(group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """Return what this process knows about its run, for people and logs. Not joint.

    Keys: `run`, `master`, `encrypted` (all traffic is), `peer_group`, `peer` (this peer's name),
    `epoch`, `rank`, `world_size`, `min_peers`, `members` (peer and address, in rank order), `ring`
    (ranks), `shares` (of the ranks in direct all-reduces, in 256ths; [] if all-reduces go around
    the ring), `direct` (a tuple: large all-reduces are direct from so many bytes on, and below so
    many bytes, or None for no limit; None in its place if all go around the ring),
    `one_shot_bytes` (operations on parts of up to this size take one message, and are not
    quantized), `joined`, `left`, `broken_by` (the loss that broke the epoch, until
    `update_topology`; else None), `peer_timeout`, `master_timeout`, `first_call_timeout` and
    `call_timeout` (seconds; the last one is None if there is no such limit), `bytes_sent` and
    `bytes_received` (on the wire), `tensor_bytes_sent` and `tensor_bytes_received` (of the tensors
    that these stand for: more if they were quantized), `bytes_held` (scratch and saved bytes of all
    groups of this process), `operations_open`, `links` (per peer: lanes, active lanes, RTT in
    seconds, bytes, system calls, and `rate`: bytes per second that it carried from here while only
    the network limited it, or None if that was never so for some round trips), `history` (the last
    operations: name, outcome, bytes of one rank's tensor, seconds, and `commit_seconds`: those of
    them that a success spent after the data was here, until all members were known to have theirs),
    `plan` (the result of the last `optimize_topology` as a dict, or None if there was none),
    `measured_seconds_per_gib` (the median of the all-reduces in `history` with 1 MiB or more:
    compare it with `plan["predicted"]`; None if there are none).

    Raises:
        InvalidStateError: this process has left the group, or is a fork of a process in the group.

    Example:
        >>> pccl.run_info()["world_size"]
        3
    """
    info = world.resolve(group).run_info()
    info["measured_seconds_per_gib"] = _seconds_per_gib(info["history"])
    return info


def _seconds_per_gib(history: list[dict[str, Any]]) -> float | None:
    rates = [
        operation["seconds"] / operation["bytes"]
        for operation in history
        if operation["operation"].startswith("all_reduce(")
        and operation["outcome"] == "ok"
        and operation["bytes"] >= 1 << 20
    ]
    return statistics.median(rates) * (1 << 30) if rates else None


def cuda_library() -> str:
    """Return the state of libpccl_cuda.so, the library with the CUDA kernels. Not joint.

    The first call in a process loads the library. Everything works without it, too: the host then
    does the work of the kernels.

    Returns:
        "loaded"; "absent" if this installation was built without nvcc; otherwise why the library
        cannot be used, such as a driver that is too old.

    Example:
        >>> pccl.cuda_library()
        'loaded'
    """
    return _C.cuda_library()


def _check_tag(tag: object) -> None:
    """Refuse what is no text; other bad tags are refused where all calls set theirs."""
    if not isinstance(tag, str):
        raise TypeError(f"a tag must be a str, not {type(tag).__name__}")
    try:
        tag.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the tag {tag[:40]!a} is no valid text: it has lone surrogates") from None


@contextmanager
def _call_options(
    tag: str | None = None,
    keep: bool | None = None,
    quantize: quantization.Numbers | None = None,
) -> Iterator[None]:
    """Set this thread's options for a block of code; None leaves one as it is. Blocks nest."""
    tag_before, keep_before, quantize_before = _C.set_call_options(
        tag=tag, keep=keep, quantize=quantize
    )
    try:
        yield
    finally:
        _C.set_call_options(tag=tag_before, keep=keep_before, quantize=quantize_before)
