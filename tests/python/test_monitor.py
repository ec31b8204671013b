"""Scalars: the numbers of a run in TensorBoard and in Weights & Biases."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import work_monitor as work
from blocks import ROOT
from conftest import MakeWorld

from pccl_backend import monitor
from pccl_backend.info import Link, Member, PastOperation, RunInfo, TimeSpent
from pccl_backend.monitor import Scalars, scalars_between

MIB = 1 << 20
ALWAYS = {
    *("pccl/group/world_size", "pccl/group/rank", "pccl/operations/failed", "pccl/ring/rtt_ms"),
    *("pccl/network/sent_gbps", "pccl/network/received_gbps"),
    *(f"pccl/time/{use}" for use in monitor.USES),
}
REDUCED = {"pccl/allreduce/busbw_gbps", "pccl/allreduce/seconds"}


def reduced(number: int, *, size: int = MIB, seconds: float = 0.5, ok: bool = True) -> Any:
    return PastOperation(
        operation=f"all_reduce(sum, float32, 262144 elements, world size 4) (#{number})",
        outcome="ok" if ok else "peer lost",
        bytes=size,
        seconds=seconds,
        commit_seconds=0.0,
    )


def info(*history: PastOperation, all_s: float = 10.0, **changes: Any) -> RunInfo:
    """Return a record of rank 1 of four, whose next one in the ring is rank 3."""
    fields: dict[str, Any] = dict.fromkeys(RunInfo.__dataclass_fields__)
    fields |= {"rank": 1, "world_size": 4, "peer": "1", "ring": (0, 2, 1, 3), "history": history}
    fields["members"] = tuple(Member(peer=str(r), name="", address="") for r in range(4))
    none = dict.fromkeys(Link.__dataclass_fields__, 0)
    fields["links"] = tuple(Link(**none | {"peer": str(r), "rtt": r / 10}) for r in (0, 2, 3))
    fields |= {"bytes_sent": 0, "bytes_received": 0}
    fields["time"] = TimeSpent(all=all_s, computing=all_s)
    return RunInfo(**fields | changes)


def of(before: RunInfo | None, now: RunInfo) -> dict[str, float]:
    return {name.removeprefix("pccl/"): v for name, v in scalars_between(before, now).items()}


def test_the_rate_is_the_median_of_the_large_all_reduces_that_succeeded() -> None:
    history = [reduced(n, seconds=seconds) for n, seconds in enumerate((0.1, 0.2, 0.4))]
    others = (reduced(3, size=MIB - 1), reduced(4, seconds=9.0, ok=False))
    scalars = of(None, info(*history, *others))
    assert scalars["allreduce/seconds"] == 0.2
    # each of four ranks sends and receives 2 * 3/4 of the tensor
    assert scalars["allreduce/busbw_gbps"] == pytest.approx(1.5 * 8 * MIB / 1e9 / 0.2)
    assert scalars["operations/failed"] == 1


def test_a_rate_needs_a_large_all_reduce() -> None:
    names = set(of(None, info(reduced(0, size=4))))
    assert names == {name.removeprefix("pccl/") for name in ALWAYS}


def test_an_operation_counts_once() -> None:
    before = info(reduced(0, ok=False), reduced(1))
    after = info(reduced(0, ok=False), reduced(1), reduced(2, seconds=0.7), all_s=20.0)
    scalars = of(before, after)
    assert scalars["operations/failed"] == 0
    assert scalars["allreduce/seconds"] == 0.7
    assert "allreduce/seconds" not in of(after, after)


def test_a_history_without_the_last_operation_is_all_new() -> None:
    assert of(info(reduced(0)), info(reduced(200, ok=False)))["operations/failed"] == 1


def test_rates_and_shares_are_of_the_time_between_two_records() -> None:
    before = info(all_s=10.0, bytes_sent=10**9, bytes_received=2 * 10**9)
    time = TimeSpent(all=14.0, computing=11.0, waiting=2.0, joint=1.0)
    now = info(bytes_sent=2 * 10**9, bytes_received=2 * 10**9, time=time)
    scalars = of(before, now)
    assert scalars["network/sent_gbps"] == pytest.approx(2.0)  # 10^9 bytes in 4 s
    assert scalars["network/received_gbps"] == 0
    shares = {use: scalars[f"time/{use}"] for use in monitor.USES}
    assert shares == {"computing": 0.25, "waiting": 0.5, "joint": 0.25, "transferring": 0,
                      "saving": 0, "failing": 0}  # fmt: skip


def test_the_round_trip_is_to_the_next_member_of_the_ring() -> None:
    assert of(None, info())["ring/rtt_ms"] == pytest.approx(300)
    alone = info(ring=(0,), rank=0, world_size=1, members=info().members[:1], links=())
    assert "ring/rtt_ms" not in of(None, alone)


def test_a_new_membership_begins_at_its_join() -> None:
    before = info(all_s=100.0, bytes_sent=10**12)
    now = replace(info(all_s=1.0, bytes_sent=10**9), peer="7")
    assert of(before, now)["network/sent_gbps"] == pytest.approx(8.0)


class Run:
    """A run as W&B has it."""

    def __init__(self) -> None:
        self.lines: list[tuple[dict[str, float], int]] = []

    def log(self, data: dict[str, float], *, step: int) -> None:
        self.lines.append((data, step))


class Both(work.Board, Run):
    def __init__(self) -> None:
        work.Board.__init__(self)


def test_a_run_of_wandb_has_one_line_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "run_info", lambda group: info(reduced(0)))
    run = Run()
    scalars = Scalars(run, every=2)
    for step in (10, 11, 12, 13, 14):
        scalars.write(step)
    assert [step for _, step in run.lines] == [10, 12, 14]
    assert set(run.lines[0][0]) == ALWAYS | REDUCED


def test_add_scalar_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "run_info", lambda group: info())
    both = Both()
    Scalars(both).write(3)
    assert {name for name, _, step in both.lines if step == 3} == ALWAYS


def test_a_wrong_argument_is_refused() -> None:
    with pytest.raises(TypeError, match=r"writer is a str, which has neither add_scalar"):
        Scalars("runs/night")
    with pytest.raises(ValueError, match="every is 0, and must be at least 1"):
        Scalars(work.Board(), every=0)


def test_the_page_lists_every_scalar() -> None:
    page = (ROOT / "docs" / "watching.md").read_text()
    assert {*re.findall(r"`(pccl/[a-z_]+/[a-z_]+)`", page)} == ALWAYS | REDUCED


# --- In a group -----------------------------------------------------------------------------------


def test_a_group_has_scalars(make_world: MakeWorld) -> None:
    for rank, lines in enumerate(make_world(2).run(work.scalars_of_steps, 2, 4)):
        assert sorted({step for _, _, step in lines}) == [0, 2]
        for step in (0, 2):
            scalars = {name: value for name, value, at in lines if at == step}
            assert set(scalars) == ALWAYS | REDUCED
            assert (scalars["pccl/group/rank"], scalars["pccl/group/world_size"]) == (rank, 2)
            assert scalars["pccl/allreduce/busbw_gbps"] > 0
            assert scalars["pccl/network/sent_gbps"] > 0
            shares = sum(scalars[f"pccl/time/{use}"] for use in monitor.USES)
            assert shares == pytest.approx(1)


def test_tensorboard_reads_them(make_world: MakeWorld, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="SKIPPED: needs tensorboard: pip install tensorboard")
    for names in make_world(2).run(work.scalars_in_files, tmp_path / "runs"):
        assert names == ALWAYS | REDUCED


def test_a_process_that_has_left_has_no_scalars(make_world: MakeWorld) -> None:
    for error in make_world(2).run(work.scalars_after_a_leave):
        assert error != ""
