"""Fixed worlds with a rank that is done before the others, and the end of rank 0, their host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import work_leaving as work
from conftest import MakeWorld
from programs import Program
from world import Lost, World, free_port, wait_until

SIZE = 3


@pytest.fixture
def signs(tmp_path: Path) -> str:
    return str(tmp_path / "signs")


def logs(world: World) -> str:
    return "\n".join(process.log.read_text() for process in world.processes)


def test_a_pipeline_ends_stage_by_stage(make_world: MakeWorld, signs: str) -> None:
    first = 1 + 2 + 3 + 4
    assert make_world(SIZE).run(work.pipeline, signs) == [first, first + 4, first + 8]


def test_calls_that_need_a_leaver_fail_for_all_alike(make_world: MakeWorld, signs: str) -> None:
    _, one, other = make_world(SIZE).run(work.calls_after_a_leave, signs)
    assert len(one) == 5
    assert one == other


def test_a_call_under_way_fails_for_the_others_alike(make_world: MakeWorld, signs: str) -> None:
    _, one, other = make_world(SIZE).run(work.all_reduce_under_way, signs)
    assert one == other


def test_a_receive_from_any_rank_ends_with_the_last_sender(
    make_world: MakeWorld, signs: str
) -> None:
    make_world(SIZE).run(work.receive_from_any, signs)


def test_under_retry_a_leave_is_a_loss(make_world: MakeWorld, signs: str) -> None:
    world = make_world(SIZE, environment={"PCCL_ON_PEER_LOSS": "retry"})
    assert world.run(work.with_retry, signs) == [0, 2, 2]


def test_a_further_group_outlives_its_rank_0(make_world: MakeWorld, signs: str) -> None:
    make_world(SIZE).run(work.group_that_rank_0_leaves, signs)


# --- The end of the process of rank 0 -------------------------------------------------------------


def test_rank_0_waits_at_its_exit_for_those_who_need_its_master(make_world: MakeWorld) -> None:
    world = make_world(SIZE)
    world.start(work.rank_0_ends_well, 4, 0.5, setup="program")
    assert world.outcomes(60, expect_success=False) == [Lost(0)] * SIZE, world.tails()
    assert "hosts the master that other ranks still need" in world.processes[0].log.read_text()
    assert "MasterLostError" not in logs(world)


def test_rank_0_does_not_wait_for_ranks_that_make_no_call(make_world: MakeWorld) -> None:
    world = make_world(SIZE, environment={"PCCL_MASTER_TIMEOUT": "1"})
    world.start(work.rank_0_ends_well, 1, 5.0, setup="program")
    assert world.outcomes(60, expect_success=False) == [Lost(0)] * SIZE, world.tails()
    for process in world.processes[1:]:
        assert "MasterLostError: " in process.log.read_text()


def test_ctrl_c_ends_the_wait_of_rank_0(make_world: MakeWorld) -> None:
    world = make_world(SIZE)
    world.start(work.rank_0_ends_well, -1, 0.1, setup="program")
    first = world.processes[0]

    def tells() -> bool:
        return first.log.exists() and "Ctrl-C ends the wait" in first.log.read_text()

    assert wait_until(tells, timeout_s=60), world.tails()
    os.kill(first.pid, signal.SIGINT)
    assert world.outcomes(60, expect_success=False) == [Lost(0)] * SIZE, world.tails()
    for process in world.processes[1:]:
        assert "MasterLostError: " in process.log.read_text()


def test_a_kill_of_rank_0_is_noticed_by_its_closed_port(make_world: MakeWorld) -> None:
    world = make_world(
        SIZE, environment={"PCCL_MASTER_TIMEOUT": "3600", "PCCL_PEER_TIMEOUT": "600"}
    )
    world.start(work.rank_0_is_killed, setup="program")
    outcomes = world.outcomes(60, expect_success=False)
    assert outcomes == [Lost(-signal.SIGKILL), Lost(0), Lost(0)], world.tails()
    for process in world.processes[1:]:
        text = process.log.read_text()
        assert "MasterLostError: " in text, text
        assert "connection refused" in text


RANK_0_RAISES = """
import torch, torch.distributed as dist
import pccl_backend as pccl

dist.init_process_group("pccl")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    raise RuntimeError("my own")
try:
    dist.all_reduce(torch.ones(1))
except pccl.PcclError as error:
    print(type(error).__name__, error, flush=True)
"""


def test_an_exception_of_rank_0_ends_the_run_at_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(RANK_0_RAISES)
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    world = {**os.environ, **variables}
    command = [sys.executable, str(script)]
    with (
        Program(command, env={**world, "RANK": "0"}, stderr=subprocess.PIPE) as first,
        Program(command, env={**world, "RANK": "1"}, stderr=subprocess.PIPE) as other,
    ):
        stdout, _ = other.communicate()
        _, stderr = first.communicate()
    assert "RuntimeError: my own" in stderr
    assert "still need" not in stderr, "it has waited"
    assert "MasterLostError" in stdout
    assert "the master ended together with the process that hosted it" in stdout
