"""run_info: its records have the attributes that they declare, each with a type and a line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import work_info as work
from conftest import MakeWorld

from pccl_backend.info import Link, Member, PastOperation, RunInfo, TimeSpent
from pccl_backend.topology import TopologyPlan

RECORDS = (Link, Member, PastOperation, RunInfo, TimeSpent, TopologyPlan)


@pytest.mark.parametrize("kind", RECORDS)
def test_each_attribute_has_its_line(kind: type[Any]) -> None:
    _, _, attributes = str(kind.__doc__).partition("Attributes:\n")
    named = re.findall(r"^        (\w+): ", attributes, re.MULTILINE)
    assert named == [field.name for field in dataclasses.fields(kind)]


def test_records_have_what_they_declare(make_world: MakeWorld) -> None:
    infos = make_world(2).run(work.info_of_two)
    for rank, info in enumerate(infos):
        for record in (info, *info.members, *info.links, *info.history, info.plan, info.time):
            check(record)
        assert (info.rank, info.world_size) == (rank, 2)
        assert [member.peer for member in info.members] == [one.peer for one in infos]
        assert [link.peer for link in info.links] == [infos[1 - rank].peer]
        (past,) = (past for past in info.history if "(layer.3, #0)" in past.operation)
        assert (past.outcome, past.bytes) == ("ok", 1 << 20)
        assert past.commit_seconds <= past.seconds
        assert info.last_error is None
        assert info.measured_seconds_per_gib == pytest.approx(past.seconds * 1024)
        with pytest.raises(dataclasses.FrozenInstanceError):
            info.rank = 7


def parts_of(time: TimeSpent) -> float:
    return time.computing + time.waited + time.saving


def test_a_wait_is_for_the_last_caller(make_world: MakeWorld) -> None:
    (first, late), (second, _) = make_world(2).run(work.time_with_a_late_rank, 0.5)
    assert first.waiting > 0.3
    assert first.waiting_for.keys() == {late}
    assert first.waiting_for[late] == pytest.approx(first.waiting)
    assert second.computing > 0.45
    assert second.waiting < 0.2
    for time in (first, second):
        assert parts_of(time) == pytest.approx(time.all)
        assert time.joint == time.failing == time.saving == 0


def test_a_joint_call_counts_apart(make_world: MakeWorld) -> None:
    for time in make_world(2).run(work.time_of_a_joint_call):
        assert 0 < time.joint < time.all
        assert time.waiting == time.transferring == 0


def test_a_trainer_has_the_time_of_each_outer_step(make_world: MakeWorld) -> None:
    (steps, lines), (other, _) = make_world(2).run(work.time_of_outer_steps, 0.5)
    assert len(steps) == len(lines) == 2
    for step in (*steps, *other):
        assert parts_of(step.time) == pytest.approx(step.time.all)
        assert step.time.saving > 0
        assert step.time.joint > 0
    assert steps[1].time.waiting > 0.3
    assert other[1].time.computing > 0.45
    assert "outer step 2: 2 peers" in lines[1]
    assert " waiting (" in lines[1]
    assert "% of the time not training" in lines[1]


def check(record: Any) -> None:
    """Check that each attribute has its type, and that there are no others."""
    kinds = get_type_hints(type(record))
    assert set(vars(record)) == set(kinds), type(record)
    for name, kind in kinds.items():
        assert fits(getattr(record, name), kind), (type(record).__name__, name, record)


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value has a type of those that the records declare."""
    arguments = get_args(kind)
    if not arguments:
        return isinstance(value, kind)
    if isinstance(kind, type(int | None)):
        return any(fits(value, each) for each in arguments)
    if get_origin(kind) is Mapping:
        names, numbers = arguments
        return all(fits(n, names) and fits(v, numbers) for n, v in value.items())
    if not isinstance(value, tuple):
        return False
    if arguments[-1] is ...:
        return all(fits(each, arguments[0]) for each in value)
    return len(value) == len(arguments) and all(map(fits, value, arguments))
