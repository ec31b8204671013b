"""A peer later than `call_timeout` costs only itself, and a trainer with `url` comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import work_late as work
from conftest import MakeWorld
from scripted_group import Membership, ScriptedGroup, script, small_model
from world import Master, Returned

import pccl_backend as pccl
from pccl_backend.info import RunInfo
from pccl_backend.trainers import DDP, DiLoCo

# The other peers wait this long. A healthy peer on a busy machine makes no such pause.
CALL_TIMEOUT = {"founders": 3, "call_timeout": 3}
REMOVED = pccl.KickedError("it was late")

# --- With processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", work.KINDS)
def test_the_others_go_on_and_the_late_peer_comes_back(
    make_open_world: MakeWorld, tmp_path: Path, kind: str
) -> None:
    world = make_open_world(3, min_peers=1, parameters=CALL_TIMEOUT)
    for is_late in (False, False, True):
        world.spawn(work.train, kind, tmp_path / "ahead", is_late, setup="nothing")
    results: list[dict[str, Any]] = [
        outcome.value for outcome in world.outcomes(90) if isinstance(outcome, Returned)
    ]
    assert len({result["hash"] for result in results}) == 1, results
    others, late = results[:2], results[2]
    assert all(other["back"] == [] for other in others), results
    assert len(late["back"]) == 1
    assert "within 3 s (PCCL_CALL_TIMEOUT)" in late["back"][0]
    alone = [revision for revision, contributors in others[0]["steps"] if contributors == 2]
    assert len(alone) >= 2, "they made two steps before the late one went on"
    assert not set(alone[:2]) & {revision for revision, _ in late["steps"]}, results
    assert late["steps"][-1] == others[0]["steps"][-1] == others[1]["steps"][-1]


def test_a_late_host_of_several_processes_comes_back(
    make_world: MakeWorld, master: Master, tmp_path: Path
) -> None:
    url = master.url(min_peers=1, founders=2, call_timeout=3)
    world = make_world(2)
    world.start(work.train_in_host, url, tmp_path / "ahead", setup="nothing")
    world.spawn(work.train_beside_host, url, tmp_path / "ahead", setup="nothing")
    results: list[dict[str, Any]] = [
        outcome.value for outcome in world.outcomes(90) if isinstance(outcome, Returned)
    ]
    assert len({result["hash"] for result in results}) == 1, results
    assert [len(result["back"]) for result in results] == [1, 0, 0], "the leader's observer"
    assert len({result["steps"][-1] for result in results}) == 1, results


def test_without_url_the_caller_hears_of_it(make_open_world: MakeWorld, tmp_path: Path) -> None:
    world = make_open_world(3, min_peers=1, parameters=CALL_TIMEOUT)
    for function in (work.goes_on, work.goes_on, work.is_kicked):
        world.spawn(function, tmp_path / "ahead")
    outcomes = world.outcomes(60)
    assert isinstance(outcomes[2], Returned)
    assert "it was late, and the others go on without it: it did not call" in outcomes[2].value
    assert "join again" in outcomes[2].value


# --- With a script --------------------------------------------------------------------------------


class Run:
    """A run that a trainer joins by `url`; each membership has another name."""

    def __init__(self, group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch) -> None:
        self.group = group
        self.joins: list[object] = []
        self.left: list[object] = []
        self.errors: list[BaseException] = []
        monkeypatch.setattr(pccl, "join", self.join)
        monkeypatch.setattr(torch.distributed, "destroy_process_group", self.left.append)
        self._info = group.run_info
        monkeypatch.setattr(pccl, "run_info", self.run_info)

    def join(self, url: str) -> object:
        assert url == "pccl://host:48148/run"
        if self.errors:
            raise self.errors.pop(0)
        self.joins.append(Membership())
        self.group.peer = f"a{len(self.joins)}"
        self.group.calls.append("join")
        return self.joins[-1]

    def run_info(self, group: object = None) -> RunInfo:
        assert group is self.joins[-1], "a group that was left"
        return replace(self._info(), epoch="1.7", world_size=2)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ScriptedGroup:
    return script(monkeypatch)


@pytest.fixture
def run(group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(group, monkeypatch)


def removed_in(group: ScriptedGroup, call: str) -> None:
    """Let the next call of this kind say that the peer was removed; the others are at step 5."""
    errors: list[BaseException | None] = getattr(group, f"{call}_errors")
    errors.append(REMOVED)
    group.agreed, group.revision = 0.5, 5


def trained(group: ScriptedGroup, **options: Any) -> tuple[DiLoCo, Any, work.Diary]:
    model, diary = small_model(), work.Diary()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    outer = DiLoCo(
        model, optimizer, url="pccl://host:48148/run", observer=diary, every=2, **options
    )

    def learn(steps: int) -> None:
        for _ in range(steps):
            model(torch.ones(4, 3)).sum().backward()
            optimizer.step()

    return outer, learn, diary


@pytest.mark.parametrize("call", ["post", "reduce", "topology", "sync"])
def test_an_inner_step_that_hears_of_it_joins_again(
    group: ScriptedGroup, run: Run, call: str
) -> None:
    outer, learn, diary = trained(group)
    with outer:
        learn(2)
        removed_in(group, call)
        group.calls.clear()
        learn(2)
        assert group.calls[-2:] == ["join", "sync enforce_popular"]
        assert (outer.revision, len(diary.steps)) == (5, 1), "the missed step is not its own"
        assert diary.back == ["it was late"]
        group.calls.clear()
        learn(2)
        assert group.calls == ["all_reduce", "update_topology", "sync enforce_popular"]
    assert (outer.revision, diary.steps[-1][0]) == (6, 6)
    assert run.left == run.joins, "it leaves each membership once"


def test_a_step_that_hears_of_it_ends_with_the_next_one(group: ScriptedGroup, run: Run) -> None:
    outer = DiLoCo(small_model(), url="pccl://host:48148/run")
    with outer:
        outer.step()
        removed_in(group, "reduce")
        assert outer.step().revision == 6
    assert len(run.joins) == 2


def test_a_meeting_that_hears_of_it_is_the_one_that_has_admitted_it(
    group: ScriptedGroup, run: Run
) -> None:
    outer = DiLoCo(small_model(), url="pccl://host:48148/run")
    with outer:
        removed_in(group, "topology")
        group.calls.clear()
        topology, _ = outer.meet()
        assert group.calls == ["update_topology", "join", "sync enforce_popular"]
        assert (topology.epoch, topology.joined, topology.world_size) == ("1.7", ("a2",), 2)


def test_if_the_run_cannot_be_joined_the_next_call_tries_again(
    group: ScriptedGroup, run: Run
) -> None:
    outer, learn, diary = trained(group)
    with outer:
        removed_in(group, "reduce")
        run.errors = [pccl.MasterLostError("no master"), KeyboardInterrupt()]
        with pytest.raises(pccl.MasterLostError):
            learn(2)
        with pytest.raises(KeyboardInterrupt):
            learn(1)
        assert diary.back == []
        learn(1)
        assert diary.back == ["it was late"]
        assert outer.revision == 5
    assert run.left == run.joins


def test_a_newcomer_that_the_run_removes_does_not_come_back(group: ScriptedGroup, run: Run) -> None:
    outer = DiLoCo(small_model(), url="pccl://host:48148/run")
    group.sync_errors = [REMOVED]
    with pytest.raises(pccl.KickedError), outer:
        pass
    assert len(run.joins) == 1


def test_at_the_end_of_the_block_it_is_too_late_to_come_back(
    group: ScriptedGroup, run: Run
) -> None:
    outer, learn, _ = trained(group, overlap=1)

    def train() -> None:
        with outer:
            learn(2)
            removed_in(group, "reduce")

    with pytest.raises(pccl.KickedError):
        train()
    assert len(run.joins) == 1


@pytest.mark.parametrize("call", ["reduce", "sync"])
def test_ddp_takes_the_next_step_without_a_gradient(
    group: ScriptedGroup, run: Run, call: str
) -> None:
    model, diary = small_model(), work.Diary()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with DDP(model, optimizer, url="pccl://host:48148/run", observer=diary) as outer:
        for _ in range(2):
            model(torch.ones(4, 3)).sum().backward()
            if outer.revision == 1:
                removed_in(group, call)
            optimizer.step()
            optimizer.zero_grad()
    assert diary.back == ["it was late"]
    if call == "sync":  # the step was its own, and the others have gone on
        assert outer.revision == 5
        return
    assert not group.reduced[-1].any()
    assert (outer.revision, diary.steps[-1][0]) == (6, 6)


def test_ddp_that_comes_back_late_gives_no_gradient_of_older_parameters(
    group: ScriptedGroup, run: Run
) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with DDP(model, optimizer, url="pccl://host:48148/run"):
        model(torch.ones(4, 3)).sum().backward()
        removed_in(group, "sync")
        run.errors = [pccl.MasterLostError("no master")]
        with pytest.raises(pccl.MasterLostError):
            optimizer.step()
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        assert not group.reduced[-1].any()
