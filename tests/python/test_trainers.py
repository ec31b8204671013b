"""The trainers between real peers: joins, losses, weights, checkpoints, memory."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import loop_diloco
import loop_plain
import pytest
import work_trainers as work
from conftest import MakeWorld
from world import Lost, Master, Returned

import pccl_backend as pccl

KINDS: dict[str, dict[str, Any]] = {
    "blocking": {},
    "overlap": {"overlap": 1},
    "carry": {"overlap": 4, "mix": "carry"},
    "auto": {"overlap": "auto"},
    "streaming": {"fragments": 2, "overlap": 1},
    "outer optimizer": {"outer_optimizer": work.adam},
    "ddp": {"ddp": True},
}


def all_equal(results: list[Any]) -> None:
    """Check that all peers had the same hash at each revision that they have in common."""
    for revision in set().union(*(hashes for _, hashes, _, _ in results)):
        seen = {hashes[revision] for _, hashes, _, _ in results if revision in hashes}
        assert len(seen) == 1, f"hashes differ at revision {revision}"


@pytest.mark.parametrize("kind", KINDS)
def test_one_peer_is_lost_and_one_joins(make_open_world: MakeWorld, kind: str) -> None:
    world = make_open_world(3, min_peers=2, parameters={"founders": 3})
    for seed, dies_at in enumerate([None, None, 4]):
        world.spawn(work.train, KINDS[kind], seed, dies_at, False)
    while world.processes[2].poll() is None:
        world.processes[2].handle.join(0.1)
    world.spawn(work.train, KINDS[kind], 3, None, True)
    outcomes = world.outcomes(60, expect_success=False)
    assert isinstance(outcomes.pop(2), Lost)
    results = [o.value for o in outcomes if isinstance(o, Returned)]
    assert len(results) == 3, world.tails()
    all_equal(results)
    assert results[2][0] > 0, "the newcomer came late"
    assert results[2][2] == 3, "the newcomer took part"
    if kind == "ddp":
        assert len({parameters for _, _, _, parameters in results}) == 1


@pytest.mark.parametrize("kind", ["blocking", "overlap", "carry", "auto", "streaming"])
def test_nothing_moves_where_nobody_learns(make_world: MakeWorld, kind: str) -> None:
    make_world(2).run(work.stays_where_nobody_learns, KINDS[kind])


def test_a_momentum_that_one_peer_has_forgotten_is_corrected(make_world: MakeWorld) -> None:
    results = make_world(3).run(work.forgets_its_momentum)
    assert len({tuple(hashes.items()) for hashes, _ in results}) == 1
    assert [received > 1000 for _, received in results] == [False, True, False]


@pytest.mark.parametrize("trainer", ["diloco", "ddp"])
def test_an_optimizer_that_has_stepped_on_one_peer_only(
    make_world: MakeWorld, trainer: str
) -> None:
    hashes = make_world(3).run(work.optimizer_has_stepped, trainer)
    assert len(set(hashes)) == 1
    assert len(set(hashes[0])) == 2, "nothing was trained"


def test_another_outer_optimizer_is_refused_with_the_key(make_world: MakeWorld) -> None:
    make_world(3).run(work.other_optimizer)


@pytest.mark.parametrize("by", ["equal", "steps", "tokens"])
def test_weights_are_those_asked_for(make_world: MakeWorld, by: str) -> None:
    make_world(2).run(work.weighted, by)


@pytest.mark.parametrize("overlap", [0, 2])
def test_a_peer_whose_numbers_are_not_finite_costs_only_itself(
    make_world: MakeWorld, overlap: int
) -> None:
    make_world(3).run(work.a_sick_peer_is_named, overlap)


def test_leaving_by_an_exception_ends_only_that_peer(make_open_world: MakeWorld) -> None:
    world = make_open_world(
        3, min_peers=2, parameters={"founders": 3}
    )  # ranks 0 to 2 from the start
    sizes = world.run(work.leaves_by_an_exception, setup="group")
    assert sorted(sizes) == [-1, 2, 2]


@pytest.mark.parametrize("trainer", ["diloco", "ddp"])
def test_buffers_are_averaged(make_world: MakeWorld, trainer: str) -> None:
    first, second = make_world(2).run(work.buffers_are_averaged, trainer)
    assert first == second


@pytest.mark.parametrize(("mix", "most"), [(None, 16), ("carry", 20)])
def test_memory_for_each_parameter(make_world: MakeWorld, mix: Any, most: int) -> None:
    """Beyond it are 24 MiB: temporaries of the size of one parameter, and the all-reduce's."""
    for peak in make_world(2).run(work.peak_bytes, mix):
        assert peak <= most * work.PARAMETERS + (24 << 20), f"{peak / work.PARAMETERS:.2f} bytes"


def test_a_run_resumes_from_its_checkpoint_and_from_no_older_one(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """The master remembers; the right checkpoint may be taken up by another number of peers."""
    master = Master(tmp_path / "log.txt")
    try:
        url = master.url(min_peers=2)
        folder = str(tmp_path)
        make_world(2, init_method=url).run(work.resumes, folder, "", 3)
        make_world(2, init_method=url).run(work.resumes, folder, "3", 6)
        url = url.replace("min_peers=2", "min_peers=3")
        world = make_world(3, init_method=url)
        world.start(work.resumes, folder, "3", 9)
        refused = [o.error for o in world.outcomes(60, expect_success=False)]
        assert {type(error) for error in refused} == {pccl.SharedStateError}
        old, last = ((tmp_path / f"{n}.txt").read_text().split() for n in (3, 6))
        for part in (*old, *last):
            assert part in str(refused[0]), f"{part} is missing in {refused[0]}"
        world.close()
        assert make_world(3, init_method=url).run(work.resumes, folder, "6", 9) == [10, 10, 10]
    finally:
        master.stop()


def test_a_plain_loop_becomes_a_diloco_run_by_two_lines(make_open_world: MakeWorld) -> None:
    plain, ours = (
        [line.strip() for line in Path(module.__file__).read_text().splitlines()]
        for module in (loop_plain, loop_diloco)
    )
    changes = [line for line in difflib.ndiff(plain, ours) if line[0] in "+-"]
    code = [line for line in changes if line[2:].strip()]
    assert [line[0] for line in code] == ["+", "+"], code
    loop_plain.train("")
    losses = make_open_world(2).run(loop_diloco.train_there, setup="nothing")
    assert losses[0] < 0.5 > losses[1]
