"""torch's flight recorder, hooks, health check and shrink_group, with groups of pccl.

Each test is skipped if the running torch lacks its subject.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import work_seams as work
from conftest import MakeWorld
from reconfigurable import make_group, needs_reconfigure
from world import Lost, Returned, World, wait_until

torch_c: Any = torch._C._distributed_c10d

needs_recorder = pytest.mark.skipif(
    not hasattr(torch_c, "FlightRecorderHook"),
    reason="this torch is older than 2.15, which brought the flight recorder for other backends",
)
needs_hooks = pytest.mark.skipif(
    not hasattr(dist.ProcessGroup, "register_abort_hook"),
    reason="this torch is older than 2.14, which brought hooks",
)

LIMIT_S = 60.0
STEPS = 60  # of each thread in a test of several threads


def quietly(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment in which torch writes its files at a failure to this folder."""
    return {"TORCH_FR_DUMP_TEMP_FILE": str(folder / "failure_"), **variables}


def returned(world: World, lost: int) -> list[Any]:
    """Wait for the processes; return the values of all but the `lost` ones."""
    outcomes = world.outcomes(LIMIT_S, expect_success=False)
    values = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert len(values) == len(outcomes) - lost, world.tails()
    assert sum(isinstance(outcome, Lost) for outcome in outcomes) == lost, world.tails()
    return values


# --- The flight recorder --------------------------------------------------------------------------


def analyse(folder: Path) -> list[Any]:
    """Let torch's analyser compare the records of all ranks; return the collectives it finds."""
    from torch.distributed.flight_recorder import fr_trace

    found = folder / "found"
    fr_trace.main([str(folder), "-p", work.PREFIX, "-o", str(found)])
    _, database = pickle.loads(found.read_bytes())
    collectives = list(database.collectives)
    for collective in collectives:
        assert collective.type_of_mismatch is None, collective
        assert not collective.missing_ranks, collective
    return collectives


@needs_recorder
def test_each_call_is_recorded(make_world: MakeWorld, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    make_world(2).run(work.records_each_call, folder, timeout=LIMIT_S)
    names = [one.collective_name for one in analyse(folder)]
    assert names.count("pccl:all_reduce") == 4
    assert {"pccl:barrier", "pccl:all_gather"} <= set(names)


@needs_recorder
def test_a_failed_call_is_never_completed(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world(2, environment=quietly(tmp_path))
    world.run(work.records_a_failure, tmp_path, timeout=LIMIT_S)
    assert (tmp_path / "failure_0").exists(), "torch has written the records at the failure"


@needs_recorder
def test_records_follow_the_members(make_open_world: MakeWorld, tmp_path: Path) -> None:
    world = make_open_world(3, min_peers=2, environment=quietly(tmp_path))
    world.start(work.records_members, tmp_path)
    returned(world, lost=1)
    assert [one.expected_ranks for one in analyse(tmp_path / "three")] == [{0, 1, 2}] * 3
    assert {tuple(one.expected_ranks) for one in analyse(tmp_path / "two")} == {(0, 1)}


def test_threads_that_call_and_ask_for_the_rank_during_a_loss(
    make_open_world: MakeWorld, tmp_path: Path
) -> None:
    """A hook on the peer loop would wait for a lock of a thread that waits for the loop."""
    environment = quietly(tmp_path, PCCL_ON_PEER_LOSS="retry")
    world = make_open_world(3, min_peers=2, environment=environment)
    world.start(work.asks_for_its_rank_all_the_time, STEPS)
    assert returned(world, lost=1) == [2, 2]


# --- Hooks ----------------------------------------------------------------------------------------


@needs_hooks
def test_hooks_around_calls(make_world: MakeWorld) -> None:
    make_world(2).run(work.runs_hooks_around_calls, timeout=LIMIT_S)


@needs_hooks
def test_hooks_around_calls_change_during_calls(make_world: MakeWorld) -> None:
    make_world(2).run(work.changes_hooks_during_calls, 10 * STEPS, timeout=LIMIT_S)


@needs_hooks
def test_a_timeout_runs_the_abort_hooks(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world(2, environment=quietly(tmp_path))
    world.run(work.runs_abort_hooks, tmp_path, timeout=LIMIT_S)


@needs_hooks
def test_a_loss_runs_no_abort_hook(make_open_world: MakeWorld, tmp_path: Path) -> None:
    parameters = {"founders": 2}
    environment = quietly(tmp_path)
    world = make_open_world(2, min_peers=1, parameters=parameters, environment=environment)
    world.start(work.survives_a_loss, tmp_path)
    assert returned(world, lost=1) == [0]


@needs_hooks
def test_the_end_of_a_group_runs_no_abort_hook(make_world: MakeWorld, tmp_path: Path) -> None:
    counts = make_world(2).run(work.runs_no_hook_at_the_end, tmp_path, timeout=LIMIT_S)
    assert counts == [0, 0]


@needs_hooks
def test_a_change_of_the_members_runs_no_abort_hook(make_open_world: MakeWorld) -> None:
    world = make_open_world(3, min_peers=2)
    assert world.run(work.ends_calls_by_a_new_topology, timeout=LIMIT_S) == [0, 0, 0]


@needs_hooks
def test_an_abort_of_the_application_runs_the_abort_hooks(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(2, environment=quietly(tmp_path))
    assert all(count >= 1 for count in world.run(work.aborts, timeout=LIMIT_S))


@needs_hooks
def test_the_error_of_a_hook_is_logged(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world(2, environment=quietly(tmp_path))
    world.start(work.survives_a_hook_that_raises, tmp_path)
    world.outcomes(LIMIT_S)
    logged = "an abort hook has raised an error: RuntimeError: on purpose"
    log = world.processes[0].log  # another thread writes it, until the process has ended
    assert wait_until(lambda: logged in log.read_text(), timeout_s=LIMIT_S), world.tails()


@needs_hooks
def test_a_hook_that_is_removed_while_it_runs(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world(2, environment=quietly(tmp_path))
    world.run(work.unregisters_a_running_hook, tmp_path, timeout=LIMIT_S)


@needs_hooks
def test_a_hook_destroys_its_group(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world(2, environment=quietly(tmp_path))
    world.run(work.destroys_the_group_in_a_hook, tmp_path, timeout=LIMIT_S)


@needs_recorder
def test_the_worker_server_reports_records_and_health(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(2, environment=quietly(tmp_path))
    world.run(work.reports_its_health, tmp_path, timeout=LIMIT_S)


# --- Smaller groups -------------------------------------------------------------------------------


def test_shrink_without_a_silent_rank(make_world: MakeWorld, tmp_path: Path) -> None:
    make_world(3).run(work.shrinks_without_a_silent_rank, tmp_path, timeout=LIMIT_S)


@pytest.mark.parametrize("killed", [0, 2])
def test_shrink_without_a_killed_rank(make_world: MakeWorld, tmp_path: Path, killed: int) -> None:
    """Rank 0 hosts the run of the group that is shrunk."""
    world = make_world(3, environment=quietly(tmp_path))
    world.start(work.shrinks_without_a_killed_rank, tmp_path, killed)
    returned(world, lost=1)


def test_shrink_with_an_abort(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world(3, environment=quietly(tmp_path))
    world.run(work.shrinks_with_an_abort, tmp_path, timeout=LIMIT_S)


def test_shrink_of_an_open_run(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.shrink_of_an_open_run, timeout=LIMIT_S)


def test_other_shrinks_that_are_refused(make_world: MakeWorld) -> None:
    world = make_world(2)
    world.run(work.other_shrinks_that_are_refused, setup="nothing", timeout=LIMIT_S)


def test_twenty_shrinks_keep_no_descriptors(make_world: MakeWorld) -> None:
    make_world(3).run(work.shrinks_twenty_times, timeout=LIMIT_S)


@needs_reconfigure
def test_smaller_groups_of_a_reconfigurable_group_are_refused() -> None:
    group = make_group(0, 2)
    with pytest.raises(NotImplementedError, match=r"call dist\._reconfigure with the handles"):
        group.backend.shrink([1])
    with pytest.raises(NotImplementedError, match=r"call dist\._reconfigure with the handles"):
        group.split_group([0])
    group.shutdown()


def test_a_new_group_of_a_default_group_with_a_device(make_world: MakeWorld) -> None:
    make_world(2).run(work.leaves_a_rank_out, setup="nothing", timeout=LIMIT_S)
