"""ThreadedGroup: peers of one group as threads of one process, for trainers that really meet.

It replaces those calls of pccl that a trainer makes, and behaves like a group with the policy
"raise". A thread that ends is a lost member: others' operations with it fail with PeerLostError,
until they meet. A thread that is no member joins with its first sync_shared_state.

    group = threads(monkeypatch, "ab", admit={"c": 3})        # c joins in meeting 3
    results = group.run({"a": train, "b": train, "c": train})  # by name

Meetings (calls of update_topology) count from 0, so a run without losses has had as many as its
revision. A peer's wait ends at once if all peers wait, and else after LIMIT_S.
"""

from __future__ import annotations

import functools
import threading
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from scripted_group import known_info, members_of

import pccl_backend as pccl
from pccl_backend.info import RunInfo
from pccl_backend.state_sync import StateHash, SyncInfo
from pccl_backend.topology import Topology
from pccl_backend.trainers import trainer

LIMIT_S = 30.0
OPS = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}


class VanishedError(BaseException):
    """The test has ended this peer: no code of a trainer handles it."""


class PeersFailedError(Exception):
    """Peers raised; the message has their tracebacks."""


@dataclass
class Call:
    """A call that all members make together; `settle` makes each one's result of the arguments."""

    what: str
    members: list[str]
    settle: Callable[[dict[str, Any]], dict[str, Any]]
    arguments: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] | None = None
    error: Callable[[], Exception] | None = None

    @property
    def over(self) -> bool:
        return self.results is not None or self.error is not None

    def end(self) -> None:
        try:
            self.results = self.settle(self.arguments)
        except pccl.PcclError as error:
            self.error = partial(type(error), str(error))


@dataclass
class Work:
    """An all-reduce of one peer."""

    group: ThreadedGroup
    call: Call
    tensor: torch.Tensor

    def wait(self) -> None:
        self.group.result_of(self.call)

    def is_completed(self) -> bool:
        return self.call.over


@dataclass
class Synced:
    """A sync with `async_op`, which ends at once: the threads of this process fetch no bytes."""

    info: SyncInfo

    @property
    def revision(self) -> int:
        return self.info.revision

    @property
    def hash(self) -> StateHash:
        return self.info.hash

    @property
    def receives(self) -> bool:
        return self.info.rx_bytes > 0

    def wait(self) -> SyncInfo:
        return self.info


class ThreadedGroup:
    """See the head of this file.

    Args:
        founders: names of the first members, in the order of their ranks.
        admit: the meeting that waits for each newcomer and admits it.
        lose: the number of meetings of a peer before it vanishes, in its next all_reduce.

    Attributes:
        meetings: number of meetings so far.
        corrected: member and names of tensors, where a sync found other bits than the elected ones,
            in a state that might have been elected.
        reduced: tag, op and number of elements of each all-reduce that has ended well.
    """

    def __init__(
        self, founders: Iterable[str], admit: Mapping[str, int], lose: Mapping[str, int]
    ) -> None:
        self._ready = threading.Condition()
        self._here = threading.local()
        self._members = list(founders)
        self._admit, self._lose = dict(admit), dict(lose)
        self._pending: list[str] = []
        self._trained: set[str] = set()  # those that an earlier sync has served
        self._lost: list[str] = []  # members that this epoch has lost
        self._calls: dict[tuple[str, int], Call] = {}  # of this epoch
        self._counts: Counter[tuple[str, str]] = Counter()
        self._running: set[str] = set()
        self._waits: dict[str, tuple[str, Callable[[], bool]]] = {}
        self.meetings = 0
        self.corrected: list[tuple[str, list[str]]] = []
        self.reduced: list[tuple[str, str, int]] = []

    # --- The peers ------------------------------------------------------------------------------

    def run(self, peers: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Run each function as the peer of its name; return the results of those not vanished."""
        outcomes = self.outcomes(peers)
        raised = {n: o for n, o in outcomes.items() if isinstance(o, BaseException)}
        errors = {n: o for n, o in raised.items() if not isinstance(o, VanishedError)}
        if errors:
            texts = [f"{n}: {''.join(traceback.format_exception(o))}" for n, o in errors.items()]
            raise PeersFailedError("\n".join(texts)) from next(iter(errors.values()))
        return {name: outcome for name, outcome in outcomes.items() if name not in raised}

    def outcomes(self, peers: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Run each function as the peer of its name; return results and exceptions, by name."""
        outcomes: dict[str, Any] = {}

        def live(name: str, function: Callable[[], Any]) -> None:
            self._here.name = name
            try:
                outcomes[name] = function()
            except BaseException as error:  # noqa: BLE001 - it is the outcome
                outcomes[name] = error
            finally:
                self._end(name)

        self._running = set(peers)
        started = [
            threading.Thread(target=live, args=each, daemon=True, name=each[0])
            for each in peers.items()
        ]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(2 * LIMIT_S)
            assert not thread.is_alive(), f"{thread.name} hangs; the others: {outcomes}"
        return outcomes

    def _end(self, name: str) -> None:
        """A thread ends: as a member, it is lost."""
        with self._ready:
            self._running.discard(name)
            self._pending = [other for other in self._pending if other != name]
            self._admit.pop(name, None)
            if name in self._members:
                self._lost.append(name)
                for (what, _), call in self._calls.items():
                    if what != "update_topology" and not call.over:
                        call.error = self._loss(call.what)
            self._settle()

    def _loss(self, what: str) -> Callable[[], Exception]:
        return partial(pccl.PeerLostError, f"{', '.join(self._lost)} lost in {what}")

    # --- Calls of all members -------------------------------------------------------------------

    def _begin(self, what: str, argument: Any, settle: Callable[[dict[str, Any]], Any]) -> Call:
        """Take part in a call, which is known by its name and its number in this epoch."""
        with self._ready:
            name = self._here.name
            number = self._counts[name, what]
            self._counts[name, what] += 1
            call = self._calls.setdefault(
                (what, number), Call(f"{what} #{number}", list(self._members), settle)
            )
            call.arguments[name] = argument
            if self._lost and what != "update_topology" and not call.over:
                call.error = self._loss(call.what)
            self._settle()
            return call

    def _settle(self) -> None:
        """End the calls that all members are in."""
        for (what, _), call in list(self._calls.items()):
            meets = what == "update_topology"
            due = [name for name, at in self._admit.items() if at <= self.meetings]
            missing = set(self._alive) - call.arguments.keys()
            if not call.over and not missing and (not meets or set(due) <= set(self._pending)):
                call.end()
        self._ready.notify_all()

    @property
    def _alive(self) -> list[str]:
        return [name for name in self._members if name not in self._lost]

    def result_of(self, call: Call) -> Any:
        """Wait for the end of a call, and return this peer's result."""
        with self._ready:
            self._wait(call.what, lambda: call.over)
            if call.error is not None:
                raise call.error()
            assert call.results is not None, "it is over"
            result = call.results[self._here.name]
            if isinstance(result, Exception):
                raise result
            return result

    def _wait(self, what: str, ends: Callable[[], bool]) -> None:
        name = self._here.name
        self._waits[name] = (what, ends)
        try:
            self._ready.wait_for(lambda: ends() or self._stuck, LIMIT_S)
            if not ends():
                where = {other: where for other, (where, _) in self._waits.items()}
                idle = sorted(self._running - where.keys())
                raise TimeoutError(f"{name} waits in vain: peers wait in {where}, {idle} in none")
        finally:
            del self._waits[name]

    @property
    def _stuck(self) -> bool:
        """Whether all peers wait, and nothing of it has happened."""
        all_wait = self._waits.keys() >= self._running
        return all_wait and not any(ends() for _, ends in self._waits.values())

    # --- The calls of pccl ------------------------------------------------------------------------

    def all_reduce(
        self,
        tensor: torch.Tensor,
        op: str = "sum",
        tag: str = "",
        group: object = None,
        *,
        async_op: bool = False,
        on_loss: str | None = None,
        quantize: object = None,
    ) -> Work | None:
        if self._lose.get(self._here.name, self.meetings + 1) <= self.meetings:
            raise VanishedError(self._here.name)
        settle = partial(self._reduce, tag=tag, op=op)
        work = Work(self, self._begin(f"all_reduce {tag!r}", (op, tensor), settle), tensor)
        if not async_op:
            work.wait()
        return work if async_op or on_loss else None

    def _reduce(self, given: dict[str, Any], *, tag: str, op: str) -> dict[str, None]:
        kinds = {n: (o, t.dtype, tuple(t.shape), t.layout) for n, (o, t) in given.items()}
        if len(set(kinds.values())) > 1:
            raise pccl.CollectiveMismatchError(f"all_reduce {tag!r} differs: {kinds}")
        tensors = [given[name][1] for name in self._members]
        with torch.no_grad():
            total = functools.reduce(OPS[op], tensors[1:], tensors[0].clone())
            for tensor in tensors:
                tensor.copy_(total.coalesce() if total.is_sparse else total)
        self.reduced.append((tag, op, total.numel()))
        return dict.fromkeys(given)

    def contributors(self, work: Work) -> tuple[pccl.api.Contribution, ...]:
        peers = tuple(work.call.members)
        return (pccl.api.Contribution(start=0, stop=work.tensor.numel(), peers=peers),)

    def update_topology(self, group: object = None) -> Topology:
        topology: Topology = self.result_of(self._begin("update_topology", None, self._meet))
        return topology

    def _meet(self, given: dict[str, Any]) -> dict[str, Topology]:
        due = [name for name, at in self._admit.items() if at <= self.meetings]
        joined = [name for name in self._pending if name in due]
        for name in joined:
            del self._admit[name]
        self._pending = [name for name in self._pending if name not in joined]
        left, self._lost = tuple(self._lost), []
        self._members = [name for name in self._members if name not in left] + joined
        self.meetings += 1
        self._calls.clear()
        self._counts.clear()
        return {
            name: Topology(
                epoch=str(self.meetings),
                rank=self._members.index(name),
                world_size=len(self._members),
                joined=tuple(joined),
                left=left,
            )
            for name in given
        }

    def sync_shared_state(
        self,
        state: pccl.SharedState,
        strategy: str = "enforce_popular",
        group: object = None,
        *,
        async_op: bool = False,
    ) -> SyncInfo | Synced:
        name = self._here.name
        with self._ready:
            if name not in self._members:
                self._pending.append(name)
                self._settle()
                self._wait("sync_shared_state, to be admitted", lambda: name in self._members)
        call = self._begin("sync_shared_state", (state, strategy), self._sync)
        info: SyncInfo = self.result_of(call)
        return Synced(info) if async_op else info

    def _sync(self, given: dict[str, tuple[pccl.SharedState, str]]) -> dict[str, Any]:
        kicked = self._kicked({name: state for name, (state, _) in given.items()})
        given = {name: each for name, each in given.items() if name not in kicked}
        bits = {n: {key: _bits(t) for key, t in state.items()} for n, (state, _) in given.items()}
        able = [n for n in self._members if n in given and given[n][1] != "receive_only"]
        able = [name for name in able if name in self._trained] or able
        if not able:
            raise pccl.SharedStateError("no state can win")
        popular = Counter(str(bits[name]) for name in able)
        chosen = max(able, key=lambda n: (given[n][0].revision, popular[str(bits[n])]))
        winner, revision = given[chosen][0], given[chosen][0].revision
        infos: dict[str, Any] = dict(kicked)
        for name, (state, _) in given.items():
            unlike = [key for key in state if bits[name][key] != bits[chosen][key]]
            if unlike and name in self._trained and given[name][1] != "receive_only":
                self.corrected.append((name, unlike))
            for key in unlike:
                state[key].detach().copy_(winner[key])
            state.revision = revision
            infos[name] = SyncInfo(
                revision=revision,
                hash=StateHash(zlib.crc32(str(bits[chosen]).encode())),
                tx_bytes=0,
                rx_bytes=sum(state[key].nbytes for key in unlike),
            )
        self._trained = set(given)
        return infos

    def _kicked(self, states: Mapping[str, pccl.SharedState]) -> dict[str, pccl.KickedError]:
        """Return the errors of newcomers with other tensors than the members."""
        kinds = {n: {(k, t.dtype, t.shape) for k, t in s.items()} for n, s in states.items()}
        one = kinds[self._members[0]]
        unlike = {name: [k for k, *_ in kind ^ one] for name, kind in kinds.items() if kind != one}
        if not unlike.keys().isdisjoint(self._trained) or (unlike and not self._trained):
            raise pccl.SharedStateError(f"tensors of the shared states differ: {unlike}")
        return {n: pccl.KickedError(f"{n} has other tensors: {keys}") for n, keys in unlike.items()}

    def run_info(self, group: object = None) -> RunInfo:
        with self._ready:
            name, members = self._here.name, self._members
            return known_info(
                peer=name,
                rank=members.index(name) if name in members else None,
                world_size=len(members),
                members=members_of(members),
                epoch=str(self.meetings),
                one_shot_bytes=0,
                bytes_sent=0,
            )


def _bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().resolve_conj().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy())


def threads(
    monkeypatch: pytest.MonkeyPatch,
    founders: Iterable[str],
    *,
    admit: Mapping[str, int] | None = None,
    lose: Mapping[str, int] | None = None,
) -> ThreadedGroup:
    """Replace the real group by a ThreadedGroup until the test ends."""
    group = ThreadedGroup(founders, admit or {}, lose or {})
    names = "all_reduce contributors update_topology sync_shared_state run_info"
    for name in names.split():
        monkeypatch.setattr(pccl, name, getattr(group, name))
    monkeypatch.setattr(trainer, "count_saving", lambda *_: None)
    return group
