"""The settings of a run: its first peer decides them, and later peers take them or are refused."""

from __future__ import annotations

from pathlib import Path

import work_run_settings as work
from conftest import MakeWorld
from world import Master, Returned


def test_a_peer_that_sets_nothing_inherits(
    make_world: MakeWorld, master: Master, tmp_path: Path
) -> None:
    world = make_world(2)
    url = master.url()
    for function in (work.is_first, work.is_second):
        world.spawn(function, url, tmp_path / "there", setup="nothing")
    outcomes = world.outcomes(60, expect_success=True)
    found = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert found == [work.OF_THE_RUN, work.OF_THE_RUN]


def test_a_peer_that_sets_other_values_is_refused(make_world: MakeWorld, master: Master) -> None:
    (text,) = make_world(1).run(work.gives_others, master.url(), setup="nothing")
    assert text == (
        "pattern is ring here and not set in this run, call_timeout is 2.5 s here and not set in "
        "this run. A run has the settings of its first peer: leave out PCCL_PATTERN, "
        "PCCL_CALL_TIMEOUT (or the parameter of the URL), and this peer takes them from the run"
    )
