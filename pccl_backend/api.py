"""Public calls that torch.distributed does not have: `join`, and `all_reduce` with its options.

The joint calls are in topology.py and state_sync.py. `group` is the process group of a call;
without it, the call uses the default group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, overload

import torch
import torch.distributed as dist

from pccl_backend import _C, quantization
from pccl_backend._torch import open_run, world

__all__ = ["Contribution", "all_reduce", "contributors", "join", "tag"]

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


# These options never change, so they are created once, and a call does not pay for them.
_OPTIONS = {name: _options_for(op) for name, op in REDUCE_OPS.items()}


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
        PcclError: the master refused this peer; the message has the reason.

    Example:
        >>> group = pccl.join("pccl://host:48148/tokyo", peer_group=local_rank)
        >>> dist.all_reduce(tensor, group=group)
    """
    run = open_run.read_url(url, peer_group=peer_group, min_peers=min_peers)
    group = open_run.join_open_run(run, timeout)
    world.add_beside_default(group)
    return group


@contextmanager
def tag(text: str, *, priority: int | None = None) -> Iterator[None]:
    """Put this thread's collectives under a tag, and give them a priority.

    Operations with the same tag are matched between ranks by the order of the calls. Operations
    with different tags are independent of each other's order, so threads may interleave them
    freely.

    Args:
        text: up to 256 bytes without control and formatting characters, which do not begin with
            "pccl:"; "" is the default tag.
        priority: from -8 to 7; None keeps the surrounding one, which is 0 at first. On each link,
            data of a higher priority leaves first, and otherwise in the order of the calls. Data
            that is ready waits for at most 15 pieces of higher priorities in a row. A priority
            decides only when an operation moves. So members may give different ones, but the
            operation is as fast as its slowest member.

    Raises:
        ValueError: the tag is longer, or has such characters or such a beginning; the priority is
            out of range.
        TypeError: the tag is no text, or the priority no integer.

    Example:
        >>> with pccl.tag("layer.3", priority=1):
        ...     work = dist.all_reduce(gradient, async_op=True)
    """
    _check_tag(text)
    _check_priority(priority)
    with _call_options(tag=text, priority=priority):
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
    priority: int | None = None,
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
    priority: int | None = None,
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
    priority: int | None = None,
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
    priority: int | None = None,
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
            average of finite numbers is finite. An average of integers is rounded towards zero.
        tag: see `tag`; "" keeps the surrounding one.
        group: the process group.
        quantize: `MinMax(...)` or `BFloat16()`, the same on all members (see `quantize`); for sums
            and averages of float32, float16 and bfloat16. None keeps a surrounding format.
        on_loss: None: the group's policy applies (PCCL_ON_PEER_LOSS). "keep" (sums and averages):
            if a member is lost during the operation, elements that all other members have already
            finished keep their result, over all members that began. Only the others are reduced
            again, over the survivors (`contributors`). Under the policy "raise", the group still
            needs `update_topology` after a loss.
        priority: see `tag`; None keeps the surrounding one.
        async_op: return at once, with a Work whose `wait()` returns the outcome.

    Returns:
        The Work if `async_op` is set. A finished Work if `on_loss` is "keep". Otherwise None.

    Raises:
        ValueError: an argument is invalid, for example a conjugated or negated view.
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
    if tag == "" and on_loss is None and quantize is None and priority is None:
        work = call([tensor], options)
    else:
        _check_tag(tag)
        _check_priority(priority)
        keep = True if on_loss else None  # None, and an empty tag, keep the value around this call
        with _call_options(tag=tag or None, keep=keep, quantize=numbers, priority=priority):
            work = call([tensor], options)
    if async_op:
        return work
    work.wait()
    return None if on_loss is None else work


def _unfit(tensor: torch.Tensor) -> Exception:
    """Return the error for a tensor on meta, or a view that torch conjugates or negates."""
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
    except TypeError:  # torch does not accept PREMUL_SUM without a factor
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
        peers: ids of the peers whose tensors are in the result, as in `run_info().members`. A peer
            that was fetching the shared state is not among them (`StateSync`).
    """

    start: int
    stop: int
    peers: tuple[str, ...]


def contributors(work: dist.Work) -> tuple[Contribution, ...]:
    """Return whose tensors are in the result of an all-reduce with `on_loss="keep"`. Not joint.

    All members get the same answer: one entry after an undisturbed operation, and one more entry
    for each loss that made the members reduce a part again. An average divides by the number of
    `peers`.

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


def _check_tag(tag: object) -> None:
    """Refuse a tag that is no text; the common code of all calls refuses other bad tags."""
    if not isinstance(tag, str):
        raise TypeError(f"a tag must be a str, not {type(tag).__name__}")
    try:
        tag.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the tag {tag[:40]!a} is no valid text: it has lone surrogates") from None


def _check_priority(priority: object) -> None:
    """Refuse a priority that is no integer; the module refuses numbers out of range."""
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise TypeError(f"a priority must be an int, not {type(priority).__name__}")


@contextmanager
def _call_options(
    tag: str | None = None,
    keep: bool | None = None,
    quantize: quantization.Numbers | None = None,
    priority: int | None = None,
) -> Iterator[None]:
    """Set this thread's options for a block of code; None leaves one as it is. Blocks nest."""
    before = _C.set_call_options(tag=tag, keep=keep, quantize=quantize, priority=priority)
    tag_before, keep_before, quantize_before, priority_before = before
    try:
        yield
    finally:
        _C.set_call_options(
            tag=tag_before,
            keep=keep_before,
            quantize=quantize_before,
            priority=priority_before,
        )
