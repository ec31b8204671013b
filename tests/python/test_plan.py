"""optimize_topology over real connections: its answers, and its refusals."""

from __future__ import annotations

import pytest
import work_plan as work
from conftest import MakeWorld

import pccl_backend as pccl


def test_all_members_get_the_same_plan(make_world: MakeWorld) -> None:
    by_rank = make_world(3).run(work.plans, [0, 10])
    assert by_rank[0] == by_rank[1] == by_rank[2]
    unmeasured, measured = by_rank[0]
    assert "the budget is 0, so nothing was measured" in unmeasured["note"]
    assert not unmeasured["measured"]
    assert sorted(measured["ring"]) == [0, 1, 2]
    assert len(measured["rates"]) == 3
    assert all(measured["rates"][rank][rank] is None for rank in range(3))
    assert sorted({*measured["measured"], *measured["missing"]}) == [(0, 1), (0, 2), (1, 2)]


def test_one_member_is_answered_at_once(make_world: MakeWorld) -> None:
    ((plan,),) = make_world(1).run(work.plans, [600])
    assert plan["note"] == "there is one member, so there is nothing to measure"
    assert plan["ring"] == (0,)
    assert plan["predicted"] is None
    assert not plan["adopted"]


@pytest.mark.parametrize("budget", [-1.0, float("nan"), float("inf"), 600.5])
def test_a_bad_budget_is_refused(make_world: MakeWorld, budget: float) -> None:
    (text,) = make_world(1).run(work.refusal, budget)
    assert text.startswith(f"optimize_topology(budget={budget!r}): expected seconds from 0 to 600")


@pytest.mark.parametrize("max_bytes", [0, -1, 2**21 - 1, 2**63])
def test_a_bad_limit_of_bytes_is_refused(make_world: MakeWorld, max_bytes: int) -> None:
    (text,) = make_world(1).run(work.refusal, 10.0, max_bytes)
    assert text.startswith(f"optimize_topology(max_bytes={max_bytes}): expected None, for no limit")
    assert "at least 2097152 bytes" in text


@pytest.mark.parametrize("max_bytes", [1e9, "1GB", True])
def test_a_limit_of_bytes_is_an_integer(max_bytes: object) -> None:
    with pytest.raises(TypeError, match="max_bytes must be an integer or None"):
        pccl.optimize_topology(max_bytes=max_bytes)  # type: ignore[arg-type]


def test_a_call_carries_no_more_than_its_limit_of_bytes(make_world: MakeWorld) -> None:
    limit = 12 * 2**20
    for plan, carried in make_world(3).run(work.bytes_of_a_call, limit):
        assert plan["measured"] == ((0, 1), (0, 2), (1, 2))
        assert 0 < carried < 1.1 * limit, "frames and pings are not counted"


def test_limits_of_bytes_that_differ_are_a_mismatch(make_world: MakeWorld) -> None:
    outcomes = make_world(3).run(work.limits_that_differ)
    assert len(set(outcomes)) == 1
    name, text = outcomes[0]
    assert name == "CollectiveMismatchError"
    assert "gave 3145728;" in text
    assert "All ranks must give the same max_bytes" in text


def test_budgets_that_differ_are_a_mismatch(make_world: MakeWorld) -> None:
    outcomes = make_world(3).run(work.budgets_that_differ)
    assert len(set(outcomes)) == 1
    name, text = outcomes[0]
    assert name == "CollectiveMismatchError"
    assert "rank 1 (" in text
    assert "gave 1 s;" in text
    assert "All ranks must give the same budget" in text


def test_all_reduces_in_flight_complete(make_world: MakeWorld) -> None:
    hashes = make_world(3).run(work.all_reduces_around_it, 20)
    assert hashes[0] == hashes[1] == hashes[2]


def test_run_info_has_the_plan_and_the_measured_time(make_world: MakeWorld) -> None:
    for info in make_world(2).run(work.info_after, 1):
        assert info.measured_seconds_per_gib > 0
        assert info.plan.predicted > 0
