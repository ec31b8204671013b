"""Bad arguments of host_group, and calls that differ within a host, are refused by name."""

from __future__ import annotations

import pytest
import work_host_group as work
from conftest import MakeWorld
from world import Failed, Lost, Master, Returned

import pccl_backend as pccl


def test_bad_arguments_are_refused_at_the_call(make_world: MakeWorld, master: Master) -> None:
    make_world(3).run(work.refusals, master.url(), setup="nothing")


@pytest.mark.parametrize("what", ["every", "model"])
def test_processes_of_a_host_that_make_other_trainers_are_told(
    make_world: MakeWorld, master: Master, what: str
) -> None:
    make_world(2).run(work.trainers_differ, master.url(), what, setup="nothing")


def test_processes_of_a_host_that_make_other_calls_are_told(
    make_world: MakeWorld, master: Master
) -> None:
    world = make_world(2)
    world.start(work.calls_differ, master.url(), setup="nothing")
    errors = [o.error for o in world.outcomes(60, expect_success=False) if isinstance(o, Failed)]
    assert [type(error) for error in errors] == [pccl.HostLostError, pccl.InvalidStateError]
    assert "local rank 1 calls meet(), and the leader of this host calls step()" in str(errors[1])


def test_an_error_of_the_leader_is_that_of_all(make_world: MakeWorld) -> None:
    make_world(2).run(work.nobody_answers, setup="nothing")


def test_an_error_of_another_process_is_that_of_all(make_world: MakeWorld, master: Master) -> None:
    make_world(2).run(work.thaws, master.url(), setup="nothing")


def test_ctrl_c_in_the_leader_ends_the_call_for_all(make_world: MakeWorld, master: Master) -> None:
    make_world(2).run(work.is_interrupted, master.url(min_peers=1), setup="nothing")


def test_the_group_of_a_leader_outlives_its_trainer(make_world: MakeWorld, master: Master) -> None:
    world = make_world(2)
    world.start(work.has_joined_by_itself, master.url(min_peers=1), setup="nothing")
    leader, other = world.outcomes(60, expect_success=False)
    assert isinstance(leader, Returned), world.tails()
    assert other == Lost(0), world.tails()
