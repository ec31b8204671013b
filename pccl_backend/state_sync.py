"""sync_shared_state: the joint call that makes a shared state equal on all members."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, overload

import torch.distributed as dist

from pccl_backend import _C
from pccl_backend._torch import world
from pccl_backend.shared_state import SharedState

__all__ = ["StateHash", "StateSync", "SyncInfo", "sync_shared_state"]

log = logging.getLogger("pccl")

Progress = Callable[[int, int, int], object]

STRATEGIES = ("enforce_popular", "send_only", "receive_only")  # in the protocol's numbering


class StateHash(int):
    """The hash of a shared state. Its text has 16 hexadecimal digits.

    `pccl runs`, errors, checkpoints of a trainer and `--resume-from` have the same text.

    Example:
        >>> pccl.sync_shared_state(state).hash
        00c0ffee00c0ffee
    """

    def __repr__(self) -> str:
        return f"{self:016x}"

    __str__ = __repr__


@dataclass(frozen=True, kw_only=True)
class SyncInfo:
    """The outcome of `sync_shared_state`.

    Attributes:
        revision: the agreed revision.
        hash: hash of all tensors; the same on all members.
        tx_bytes: bytes of tensors that this process sent.
        rx_bytes: bytes of tensors that this process received; 0 if it was up to date.
        added: names of the tensors that this process did not have, sorted; the state has them now.
            Always empty without `SharedState(..., allow_missing=True)`.
        corrected: names of the tensors of this process that the call has overwritten, because their
            content was another one; sorted. A newcomer's are usually all; those in `added` are not
            among them.
        drifted: whether `corrected` shows that this process computes other bits than the others:
            it had their state after the last call, has taken the step to the next revision like
            them, with "enforce_popular", and a tensor differs after it. The tensor `progress`, by
            which the trainers share their counters, does not count. The log of this process has a
            warning then, and so has the log of the master: at the first time, the second, the
            fourth, the eighth and so on.

    Example:
        >>> info = pccl.sync_shared_state(state)
        >>> if info.drifted:
        ...     print(f"other bits here at revision {info.revision}: {info.corrected}")
    """

    revision: int
    hash: StateHash
    tx_bytes: int
    rx_bytes: int
    added: tuple[str, ...] = ()
    corrected: tuple[str, ...] = ()
    drifted: bool = False


class StateSync:
    """A `sync_shared_state(async_op=True)` under way.

    The tensors and the revision of the state are lent until `wait` has returned or raised: the
    program may read the tensors, and must not write them. Another joint call before that raises
    InvalidStateError. Collectives are allowed meanwhile; their data goes first.

    A member that fetches (`receives`) is absent from sums and averages that it calls before `wait`
    has returned or raised: all_reduce, reduce and reduce_scatter take zeros from it, and AVG
    divides by the number of the other members. It gets the results like everybody else, and
    `contributors` does not name it. Other collectives take its tensors as they are.

    If the object is dropped without `wait`, the transfers still continue, because other members may
    need them. The tensors stay lent until the transfers end. Then the memory is released, nothing
    is written, and a next joint call is allowed. A RuntimeWarning reports that, unless the
    transfers have already ended and this process has fetched nothing.

    Attributes:
        receives: whether this process fetches something. If so, the tensors have the agreed content
            only after `wait`. If not, they have it already.
        revision: the agreed revision.
        hash: hash of all tensors, as in SyncInfo.

    Example:
        >>> sync = pccl.sync_shared_state(state, async_op=True)
        >>> if sync.receives:
        ...     sync.wait()
        >>> for batch in inner_batches:
        ...     train(batch)
        >>> sync.wait()
    """

    def __init__(self, handle: _C.SyncCall, state: SharedState, progress: Progress | None) -> None:
        self._handle = handle
        self._progress = progress
        self._state: SharedState | None = state
        self._lock = threading.Lock()
        state.lend()

    @property
    def receives(self) -> bool:
        return self._handle.receives

    @property
    def revision(self) -> int:
        return self._handle.revision

    @property
    def hash(self) -> StateHash:
        return StateHash(self._handle.hash)

    def is_completed(self) -> bool:
        """Whether `wait` would return or raise at once."""
        return self._handle.is_completed()

    def wait(self, timeout: timedelta | None = None) -> SyncInfo:
        """Wait until all members have the state, and write the data fetched here.

        Calls after the first one give the same outcome.

        Args:
            timeout: how long to wait. If it expires, the transfers continue, and the tensors stay
                lent. Without it, the timeout of the group ends the call on all members. If only
                newcomers still fetch then, they are removed, and the others get their result.

        Raises:
            SharedStateError: as `sync_shared_state`. Or the program has written a tensor of the
                state since the call; the message names the tensor. Then the error is raised on this
                process only, and nothing is written: sync again. A write is not noticed if torch
                does not count it for this tensor: one to `x` if the state has `x.data` (give it
                `x.detach()`), and one to a tensor made under `torch.inference_mode`.
            OperationTimeoutError: the timeout of the call or of the group has expired.
            PcclError: any other error of `sync_shared_state`.
        """
        if timeout is not None and not isinstance(timeout, timedelta):
            raise TypeError(f"timeout must be a timedelta or None, not {type(timeout).__name__}")
        seconds = None if timeout is None else timeout.total_seconds()
        try:
            answer = self._handle.wait(seconds, self._progress)
        except BaseException:
            if self._handle.is_concluded():
                self._give_back(None)
            raise
        self._give_back(answer)
        return _info(answer)

    def _give_back(self, answer: Mapping[str, Any] | None) -> None:
        with self._lock:
            state, self._state = self._state, None
        if state is None:
            return
        state.give_back()
        if answer is not None:
            state.take(answer["revision"], answer["added"])

    def __del__(self) -> None:
        if getattr(self, "_state", None) is None:
            return
        self._give_back(None)
        what = ""
        if self.receives:
            what = "what this process fetches is thrown away, and its tensors stay as they are"
        elif not self.is_completed():
            what = "its tensors are lent until the transfers have ended, and must not be written"
        if what:
            warnings.warn(
                f"a StateSync was dropped without wait(): {what}", RuntimeWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        how = "completed" if self.is_completed() else "under way"
        return f"StateSync({how}, receives={self.receives})"


@overload
def sync_shared_state(
    state: SharedState,
    strategy: str = "enforce_popular",
    group: dist.ProcessGroup | None = None,
    *,
    async_op: Literal[False] = False,
    progress: Progress | None = None,
) -> SyncInfo: ...


@overload
def sync_shared_state(
    state: SharedState,
    strategy: str = "enforce_popular",
    group: dist.ProcessGroup | None = None,
    *,
    async_op: Literal[True],
    progress: Progress | None = None,
) -> StateSync: ...


@overload
def sync_shared_state(
    state: SharedState,
    strategy: str = "enforce_popular",
    group: dist.ProcessGroup | None = None,
    *,
    async_op: bool,
    progress: Progress | None = None,
) -> SyncInfo | StateSync: ...


def sync_shared_state(
    state: SharedState,
    strategy: str = "enforce_popular",
    group: dist.ProcessGroup | None = None,
    *,
    async_op: bool = False,
    progress: Progress | None = None,
) -> SyncInfo | StateSync:
    """Make the shared state bit-identical on all members. Joint.

    The state with the highest revision wins. If several states have that revision, the state that
    most members hold wins. A member with a different state fetches the differing tensors; its
    tensors and its `state.revision` are overwritten. Nothing is written before all data has arrived
    and was verified, except that "receive_only" receives large tensors in place: if the call fails,
    they may hold parts of both states.

    With `async_op=True`, which members may give or not, the call returns when all have made it. A
    member that fetches nothing continues, and sends in the background. See StateSync for the rules
    before its `wait`. Fetched data lands beside the tensors, also with "receive_only".

    The data travels in pieces of 4 MiB, from all members that have it; a member that fetches passes
    on verified pieces. If a member is lost meanwhile, the call continues, and only pieces that were
    under way travel again. The loss still breaks the group: call `update_topology` next, as always.

    A shared state never goes back: no member is overwritten by a revision lower than its own,
    unless its strategy is "receive_only". From one call to the next the revision advances by at
    most one. If a member has trained on without a call, the call is refused, and the error names
    both revisions. A member that was equal at the last call and differs at the next revision is
    reported (`SyncInfo.drifted`). As long as a member that took part in an earlier call offers its
    state, only states of such members can win. A newcomer is removed from the run (KickedError) if
    its revision is later, or if its content of the next revision, names, dtypes or shapes differ.

    Args:
        state: this peer's tensors: the same names, dtypes and shapes on all, but for allow_missing.
        strategy: "enforce_popular": the state may win and may be overwritten. "send_only": it may
            win and must not be overwritten. "receive_only": it takes the winning state, and with
            `allow_missing=True` the tensors that it lacks.
        group: the process group.
        async_op: return a StateSync instead of blocking until all members have the state.
        progress: is called with (bytes fetched, bytes to fetch, sending peers) by this call, or by
            `wait` of the StateSync. Its exceptions are logged as warnings.

    Raises:
        ValueError: an unknown strategy, or `state.allow_missing` without "receive_only".
        SharedStateError: no state can win; a transfer, a device or an allocation failed; or no
            member is left with some piece. No tensor was written, unless it is "receive_only".
        OSError: a device failed while the agreed state was written to it; on this rank only.
        PeerLostError: a member was lost before all others had called this, or too few are left
            (`min_peers`): call `update_topology`, then this again.
        KickedError: this peer is a newcomer, and its state does not fit, or its download stood
            still (PCCL_FIRST_CALL_TIMEOUT) or took longer than the timeout of the others.
        OperationTimeoutError, CollectiveMismatchError, InvalidStateError: as `update_topology`.

    Example:
        >>> state = pccl.SharedState({"weight": weight}, revision=step)
        >>> info = pccl.sync_shared_state(state)
        >>> info.rx_bytes
        0
    """
    told = _checked(state, strategy, async_op, progress)
    pccl_group = world.resolve(group)
    number, tensors = STRATEGIES.index(strategy), state.bound()
    if async_op:
        handle = pccl_group.begin_sync(revision=state.revision, strategy=number, tensors=tensors)
        return StateSync(handle, state, told)
    answer = pccl_group.sync_shared_state(
        revision=state.revision, strategy=number, tensors=tensors, progress=told
    )
    state.take(answer["revision"], answer["added"])
    return _info(answer)


def _info(answer: Mapping[str, Any]) -> SyncInfo:
    names = {
        "added": tuple(name for name, _ in answer["added"]),
        "corrected": tuple(answer["corrected"]),
    }
    return SyncInfo(**{**answer, **names, "hash": StateHash(answer["hash"])})


def _checked(
    state: object, strategy: object, async_op: object, progress: Progress | None
) -> Progress | None:
    """Check arguments, and return the function that is to be told about the progress."""
    if not isinstance(state, SharedState):
        raise TypeError(f"state must be a SharedState, not {type(state).__name__}")
    state.require_own("this state cannot be synchronized")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}; known are {', '.join(STRATEGIES)}")
    if state.allow_missing and strategy != "receive_only":
        raise ValueError(
            f"strategy is {strategy!r}, and the state has allow_missing=True: it lacks tensors, so "
            'others cannot take it. Use strategy="receive_only", or a state with all tensors'
        )
    if not isinstance(async_op, bool):
        raise TypeError(f"async_op must be a bool, not {type(async_op).__name__}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function, not {type(progress).__name__}")
    return None if progress is None else _guarded(progress)


def _guarded(progress: Progress) -> Progress:
    """Return the same function, which logs its exceptions instead of raising them."""

    def tell(done: int, total: int, peers: int) -> None:
        try:
            progress(done, total, peers)
        except Exception:
            log.warning("the progress function of sync_shared_state raised", exc_info=True)

    return tell
