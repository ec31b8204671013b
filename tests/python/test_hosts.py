"""Hosts of several processes as peers of DiLoCo: as one process each, and lost as one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import work_hosts as work
from conftest import MakeWorld
from world import Failed, Lost, Master, Returned, World, wait_until

import pccl_backend as pccl

KINDS: dict[str, dict[str, Any]] = {
    "blocking": {},
    "overlap": {"overlap": 2},
    "carry": {"overlap": 4, "mix": "carry"},
    "delay": {"mix": "delay", "outer_lr": 0.5, "outer_momentum": 0.5},
    "streaming": {"fragments": 2, "overlap": 1},
    "by hand": {"every": None},
    "quantized": {"hidden": 6001, "quantize": pccl.quantization.MinMax(bits=8)},
    "with feedback": {
        "hidden": 6001,
        "quantize": pccl.quantization.MinMax(bits=4),
        "error_feedback": True,
        "fragments": 2,
        "overlap": 1,
    },
}
SIZES = {"A": 2, "B": 3}


def spawn_host(
    world: World, function: Any, url: str, folder: Path, host: str, *rest: Any, size: int = 0
) -> None:
    """Start the processes of a host."""
    seed, size = "AB".index(host) + 1, size or SIZES[host]
    for rank in range(size):
        place = (host, seed, rank, size)
        world.spawn(function, url, str(folder), place, *rest, setup="nothing")


@pytest.mark.parametrize(
    ("kind", "sizes"), [*((kind, (2, 3)) for kind in KINDS), ("overlap", (1, 2))]
)
def test_hosts_have_the_bits_of_whole_models(
    make_world: MakeWorld, master: Master, tmp_path: Path, kind: str, sizes: tuple[int, int]
) -> None:
    cut, alone = make_world(0), make_world(0)
    url = master.url(founders=2, min_peers=1)
    for host, size in zip("AB", sizes, strict=True):
        spawn_host(cut, work.train, url, tmp_path, host, KINDS[kind], size=size)
    results = [o.value for o in cut.outcomes(60) if isinstance(o, Returned)]
    url = master.url(founders=2, min_peers=1)
    for seed in (1, 2):
        alone.spawn(work.train, url, "", ("", seed, 0, 0), KINDS[kind], setup="nothing")
    wanted = [o.value for o in alone.outcomes(60) if isinstance(o, Returned)]
    assert wanted[0][0] == wanted[1][0], "the hashes of peers"
    assert results == [wanted[0]] * sizes[0] + [wanted[1]] * sizes[1]


def test_the_processes_of_a_host_apply_an_average_at_the_same_inner_step(
    make_world: MakeWorld, master: Master, tmp_path: Path
) -> None:
    """With overlap="auto", only the leader knows when it has arrived."""
    world = make_world(0)
    url = master.url(founders=2, min_peers=1)
    for host in SIZES:
        spawn_host(world, work.train, url, tmp_path, host, {"overlap": "auto"})
    results = [o.value for o in world.outcomes(60) if isinstance(o, Returned)]
    assert results == [results[0]] * 2 + [results[2]] * 3
    assert len(results[0][3]) >= work.STEPS - 1, "inner steps at which it was applied"
    assert results[0][0] == results[2][0], "the hashes of the two hosts"


@pytest.mark.parametrize("dies", ["leader", "other", "in the reduce", "stuck", "leaves"])
def test_a_host_is_lost_as_one(
    make_world: MakeWorld, master: Master, tmp_path: Path, dies: str
) -> None:
    """The peer timeout is far beyond the time limit of the test: silence does not tell host A."""
    world = make_world(0, environment={"PCCL_PEER_TIMEOUT": "200"})
    url = master.url(founders=2, min_peers=1)
    for host in SIZES:
        spawn_host(world, work.survives, url, tmp_path, host, dies)
    survivors, lost = world.processes[:2], world.processes[2:]
    for process in survivors:
        assert wait_until(lambda p=process: p.poll() is not None, timeout_s=60), world.tails()
    assert [p.outcome.value[1] for p in survivors] == [True, True], world.tails()
    if dies == "stuck":
        for process in lost:
            process.kill()
    outcomes = world.outcomes(60, expect_success=False)[2:]
    assert not any(isinstance(outcome, Returned) for outcome in outcomes)
    errors = [o.error for o in outcomes if isinstance(o, Failed)]
    if dies in ("in the reduce", "leaves"):
        assert [type(error) for error in errors[:2]] == [pccl.HostLostError] * 2, errors
        assert "local rank 2" in str(errors[0])


def test_nobody_waits_for_a_host_whose_processes_come_one_by_one(
    make_world: MakeWorld, master: Master, tmp_path: Path
) -> None:
    world = make_world(0)
    url = master.url(founders=1, min_peers=1)
    for host in SIZES:
        spawn_host(world, work.joins_one_by_one, url, tmp_path, host)
    results = [o.value for o in world.outcomes(60) if isinstance(o, Returned)]
    assert len({hash_ for _, _, hash_ in results}) == 1
    steps = {alone for _, alone, _ in results[:2]}
    assert min(steps) >= 20, "host A steps until the last process of host B is there, and beyond"
    assert min(first for first, _, _ in results[2:]) >= 20


def test_a_checkpoint_of_two_processes_loads_in_three(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    server = Master(tmp_path / "log.txt")
    try:
        results = []
        for host, steps in (("A", 3), ("B", 2)):
            world = make_world(0)
            spawn_host(world, work.saves, server.url("run"), tmp_path, host, steps)
            results += [o.value for o in world.outcomes(60) if isinstance(o, Returned)]
    finally:
        server.stop()
    saved, loaded = results[:2], results[2:]
    assert {first for first, _, _, _ in saved} == {0}
    assert {first for first, _, _, _ in loaded} == {3}
    assert {got for _, got, _, _ in loaded} == {now for _, _, now, _ in saved}


def test_the_memory_is_gone_with_the_processes(
    make_world: MakeWorld, master: Master, tmp_path: Path
) -> None:
    world = make_world(0)
    spawn_host(world, work.holds_memory, master.url(min_peers=1), tmp_path, "B")
    notes = [tmp_path / f"maps-{rank}" for rank in range(SIZES["B"])]
    assert wait_until(lambda: all(n.exists() for n in notes), timeout_s=60), world.tails()
    inodes = {each.read_text() for each in notes}
    assert len(inodes) == 1, "all of them map one file"
    assert inodes != {""}
    for process in world.processes:
        process.kill()
    assert all(isinstance(o, Lost) for o in world.outcomes(30, expect_success=False))
    everybody = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    assert not any(inodes <= work.maps(pid) for pid in everybody)
