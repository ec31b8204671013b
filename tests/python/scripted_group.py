"""ScriptedGroup: a group that follows a test's script, for trainers in one process.

It also enforces the order of calls that holds everywhere: one all-reduce at a time, whose buffer
stays untouched while it runs, and sync_shared_state after every update_topology.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
import torch

import pccl_backend as pccl
from pccl_backend.info import Member, RunInfo, TimeSpent
from pccl_backend.trainers import trainer

HEAD = 8  # four rows of two ranks travel before the pseudo-gradient
SHARED_STATE = pccl.SharedState
LOST = pccl.PeerLostError("peer 7f3a lost in (diloco, #3)")


@dataclass
class Topology:
    world_size: int
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    epoch: str = "1.1"


@dataclass
class SyncInfo:
    rx_bytes: int = 0
    hash: int = 0xAB
    drifted: bool = False


@dataclass
class StateSync:
    """A sync that goes on in the background, because others fetch the state."""

    group: ScriptedGroup
    revision: int
    receives: bool = False
    hash: int = 0xAB

    def __post_init__(self) -> None:
        self._bits = [tensor.clone() for tensor in self.group.state.values()]

    def wait(self) -> SyncInfo:
        self.group.calls.append("settle")
        same = map(same_bits, self.group.state.values(), self._bits)
        assert all(same), "what is lent was written"
        try:
            fail(self.group.settle_errors)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.group.lent = None
            raise
        self.group.lent = None
        return SyncInfo()


class Work:
    """An all-reduce. Like a real one, it may be waited for again, and then ends the same way."""

    def __init__(self, group: ScriptedGroup, tensor: torch.Tensor) -> None:
        self._group = group
        self._tensor = tensor
        self._bits = tensor.clone()
        self._error: pccl.PcclError | None = None
        self.committed = False
        self.known = False  # its end is known to a waiter

    def wait(self) -> None:
        if not self.known:
            assert same_bits(self._tensor, self._bits), "the buffer was touched while it was lent"
            try:
                fail(self._group.reduce_errors)
            except pccl.PcclError as error:
                assert not self.committed, "a test's mistake: it has committed already"
                self._error = error
            except BaseException:
                self._commit()
                raise
            else:
                self._commit()
            self.known = True
        if self._error is not None:
            raise self._error

    def is_completed(self) -> bool:
        return self.committed

    def _commit(self) -> None:
        if self.committed:
            return
        self.committed = True
        self._group.commits += 1
        # Before the pseudo-gradient travel the weights: this peer's at 0, the other's at 1.
        self._tensor[1] = 1.0
        self._tensor[7] = self._group.other_settings
        mine = self._tensor[HEAD:]
        mine.add_(mine.clone() if self._group.other is None else self._group.other)
        self._bits = self._tensor.clone()


class Counted:
    """The all-reduce of the integer buffers, which are equal on both peers."""

    def wait(self) -> None:
        pass


class Membership:
    """The result of pccl.join: a process group; only its identity matters."""


@dataclass
class ScriptedGroup:
    """Two peers, one of them this process; `other`: the other's pseudo-gradient (default: ours).

    Errors are raised by the next calls of their kind, one each; None lets a call pass. An
    all-reduce whose wait raises an error other than PcclError continues without the waiter, as a
    real one does.
    """

    other: torch.Tensor | None = None
    post_errors: list[BaseException | None] = field(default_factory=list)
    reduce_errors: list[BaseException | None] = field(default_factory=list)
    topology_errors: list[BaseException | None] = field(default_factory=list)
    sync_errors: list[BaseException | None] = field(default_factory=list)
    settle_errors: list[BaseException | None] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)
    other_settings: int = 0  # a number that stands for the other's settings; 0: any
    settings: list[float] = field(default_factory=list)  # our own such numbers, by all-reduce
    agreed: float | None = None  # value of the others' state, in all elements, at sync_shared_state
    revision: int = 0
    then: int = 0  # the others' action after that sync: 0, inner steps
    peer: str = "a"
    calls: list[str] = field(default_factory=list)
    reduced: list[torch.Tensor] = field(default_factory=list)  # inputs of all-reduces
    commits: int = 0
    state: Any = None
    lent: StateSync | None = None
    running: Work | None = None
    _sync_due: bool = False

    def all_reduce(
        self, tensor: torch.Tensor, *, op: str, async_op: bool, **_: object
    ) -> Work | Counted:
        if op == "max":
            return Counted()
        assert (op, async_op) == ("sum", True)
        assert not self.under_way, "an all-reduce runs already"
        assert not self._sync_due, "sync_shared_state comes after update_topology"
        self.calls.append("all_reduce")
        fail(self.post_errors)
        self.reduced.append(tensor[HEAD:].clone())
        self.settings.append(float(tensor[6]))
        self.running = Work(self, tensor)
        return self.running

    @property
    def under_way(self) -> bool:
        return self.running is not None and not self.running.known

    def update_topology(self, **_: object) -> Topology:
        assert self.lent is None, "a sync goes on in the background"
        assert not self.under_way, "an all-reduce runs, whose result others have applied"
        assert not self._sync_due, "sync_shared_state comes after update_topology"
        self.calls.append("update_topology")
        fail(self.topology_errors)
        self._sync_due = True
        return self.topologies.pop(0) if self.topologies else Topology(2)

    def run_info(self, group: object = None) -> RunInfo:
        return known_info(peer=self.peer, rank=0, members=members_of("ab"), bytes_sent=0)

    def sync_shared_state(
        self, state: Any, *, strategy: str, async_op: bool = False, **_: object
    ) -> SyncInfo | StateSync:
        assert not self.under_way, "an all-reduce runs, whose result others have applied"
        self._sync_due = False
        self.calls.append(f"sync {strategy}")
        fail(self.sync_errors)
        if async_op:
            assert self.agreed is None, "a test's mistake: it fetches nothing in the background"
            self.lent = StateSync(self, state.revision)
            return self.lent
        if self.agreed is None:
            return SyncInfo()
        for tensor in self.state.values():
            tensor.fill_(self.agreed)
        self.state["progress"].copy_(torch.tensor([self.revision, self.then, 0, 0]))
        state.revision, self.agreed = self.revision, None
        return SyncInfo(rx_bytes=1000)

    def shared_state(self, tensors: dict[str, torch.Tensor], *, revision: int) -> Any:
        self.state = tensors
        return SHARED_STATE(tensors, revision=revision)


def contributors(work: Work) -> tuple[pccl.api.Contribution, ...]:
    return (pccl.api.Contribution(start=0, stop=len(work._tensor), peers=("a", "b")),)


def known_info(**known: Any) -> RunInfo:
    """Return a run_info that has these attributes, and None for the others."""
    unknown = dict.fromkeys(each.name for each in fields(RunInfo))
    return RunInfo(**{**unknown, "time": TimeSpent(), **known})


def members_of(peers: Iterable[str]) -> tuple[Member, ...]:
    return tuple(Member(peer=peer, name="", address="") for peer in peers)


def fail(errors: list[BaseException | None]) -> None:
    if errors and (error := errors.pop(0)):
        raise error


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether they are equal, where 0.0 differs from -0.0 and NaN equals NaN."""
    return a.dtype == b.dtype and torch.equal(
        a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8)
    )


def script(monkeypatch: pytest.MonkeyPatch) -> ScriptedGroup:
    """Replace the real group by a ScriptedGroup until the test ends."""
    scripted = ScriptedGroup()
    monkeypatch.setattr(pccl, "all_reduce", scripted.all_reduce)
    monkeypatch.setattr(pccl, "update_topology", scripted.update_topology)
    monkeypatch.setattr(pccl, "run_info", scripted.run_info)
    monkeypatch.setattr(pccl, "contributors", contributors)
    monkeypatch.setattr(pccl, "sync_shared_state", scripted.sync_shared_state)
    monkeypatch.setattr(pccl, "SharedState", scripted.shared_state)
    monkeypatch.setattr(trainer, "count_saving", lambda *_: None)
    return scripted


def small_model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2, bias=False))


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def wander(model: torch.nn.Module, seed: int) -> None:
    """Simulate inner steps: change every parameter a little."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
