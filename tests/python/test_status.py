"""`pccl status` with a real master and real peers, and with simulated answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet
from world import run_program

from pccl_backend.command.status_page import page

PCCL = [sys.executable, "-m", "pccl_backend.cli"]


def status(*words: str | Path) -> tuple[int, str, str]:
    done = run_program([*PCCL, "status", *map(str, words)])
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    started = Fleet(journal=tmp_path / "journal")
    try:
        yield started
    finally:
        started.close()


# --- Real runs: test_situations.py has those that stand still -------------------------------------


def test_a_run_that_trains(fleet: Fleet, tmp_path: Path) -> None:
    peers = fleet.found(2, run="night", name="tokyo")
    for peer in peers:
        peer.tell("all_reduce", count=1000, seed=1)
    for peer in peers:
        assert "posted" in peer.answer()
        assert peer.answer()["ok"]
    code, shown, errors = status("--journal", tmp_path / "journal")
    assert (code, errors) == (0, ""), shown
    lines = shown.splitlines()
    assert lines[0].startswith("run night: active, epoch "), shown
    assert "note nothing_wrong" in lines
    assert any("operations/s" in line for line in lines[1:3])
    assert sum("tokyo" in line for line in lines) >= 2
    _, said, _ = status("night", "--json", "--journal", tmp_path / "journal")
    snapshot = json.loads(said)
    assert snapshot["schema"] == 1
    assert [one["code"] for one in snapshot["findings"]] == ["nothing_wrong"]
    assert [peer["rank"] for peer in snapshot["groups"][0]["peers"]] == [0, 1]


def test_two_runs_need_a_name(fleet: Fleet, tmp_path: Path) -> None:
    fleet.found(1, run="day")
    fleet.found(1, run="night")
    code, shown, errors = status("--journal", tmp_path / "journal")
    assert (code, shown) == (2, "")
    assert 'name one run, because these runs are under way: "day", "night"' in errors
    assert status("night", "--journal", tmp_path / "journal")[0] == 0


def test_a_run_that_is_not_there(fleet: Fleet, tmp_path: Path) -> None:
    code, shown, errors = status("week", "--journal", tmp_path / "journal")
    assert (code, shown) == (2, "")
    assert 'run "week" is not known to this master; this master has no run under way' in errors


# --- No master, and wrong usage -------------------------------------------------------------------


def test_without_a_master(tmp_path: Path) -> None:
    code, shown, errors = status("--journal", tmp_path / "journal")
    assert (code, shown) == (2, "")
    assert errors.startswith("pccl status: there is no ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a", "b"], "unrecognized arguments: b"),
        ([""], "the name is empty"),
        (["--port", "70000"], "port is '70000', must be a number from 1 to 65535"),
        (["--journal", "x", "--port", "1"], "not allowed with"),
    ],
)
def test_mistakes(words: list[str], says: str) -> None:
    code, shown, errors = status(*words)
    assert (code, shown) == (2, "")
    assert says in errors


def test_torch_is_not_imported() -> None:
    program = "import sys; import pccl_backend.command.status; print('torch' in sys.modules)"
    assert run_program([sys.executable, "-c", program]).stdout == "False\n"


# --- The page -------------------------------------------------------------------------------------


def peer(rank: int, name: str = "", doing: str = "") -> dict[str, Any]:
    return {
        "peer": f"692b5a3f.{rank + 1}",
        "rank": rank,
        "name": name or f"tokyo-{rank}",
        "address": f"10.0.0.{rank}:48201",
        "state": "member",
        "since_s": 12.0,
        "doing": doing or "has been in all_reduce (layer.3, #6) for 12 s",
    }


def snapshot_of(members: int, findings: int) -> dict[str, Any]:
    text = "ranks 0 (tokyo-0) and 1 (tokyo-1) wait: all_reduce(sum, float32) has waited " * 4
    return {
        "schema": 1,
        "run": "night",
        "up_s": 7200.5,
        "findings": [
            {
                "code": "rank_has_not_called",
                "severity": "error",
                "whom": [f"tokyo-{number}"],
                "text": text,
                "next": "look at the process of tokyo, for example with py-spy",
            }
            for number in range(findings)
        ],
        "groups": [
            {
                "group": 0,
                "phase": "active",
                "epoch": "692b5a3f.2",
                "members": members,
                "min_peers": 2,
                "shared_state": {"revision": 120, "hash": "00c0ffee00c0ffee"},
                "rate": {"operations_per_s": 12.5, "bytes_per_s": 4.5e7, "over_s": 59.5},
                "peers": [peer(rank) for rank in range(members)],
                "ring": [
                    {
                        "from": rank,
                        "to": (rank + 1) % members,
                        "bytes_per_s": 12_345_678,
                        "round_trip_s": 0.0312,
                    }
                    for rank in range(members)
                ],
                "calls": [{"call": "all_reduce(sum, float32)", "since_s": 12.0, "missing": [2, 3]}],
            }
        ],
        "events": [
            {"at": f"2026-11-29T20:47:0{number}.123Z", "level": "info", "text": "it happened " * 9}
            for number in range(5)
        ],
    }


TELEMETRY = {
    "over_s": 2.0,
    "computing": 0.711,
    "waiting": 0.18,
    "waits_for": "osaka (peer 692b5a3f.3)",
    "transferring": 0.09,
    "joint": 0.02,
    "sent_per_s": 12_345_678.0,
    "scalars": {"step": 12.0, "loss": -2.3},
}


def with_telemetry(snapshot: dict[str, Any]) -> dict[str, Any]:
    for one in snapshot["groups"][0]["peers"]:
        one["telemetry"] = TELEMETRY
    return snapshot


def test_the_times_of_members_that_report_them() -> None:
    lines = page(with_telemetry(snapshot_of(2, 1)))
    at = lines.index("rank  computes  waits           transfers  joint  sends      reports")
    assert lines[at + 1] == (
        "0     71 %      18 % for osaka  9 %        2 %    12.3 MB/s  step 12, loss -2.3"
    )
    assert not any("computes" in line for line in page(snapshot_of(2, 1)))


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, float("nan"), -1, True, {"a\x1b": 1}])
def test_strange_telemetry(value: Any) -> None:
    for field in TELEMETRY:
        snapshot = snapshot_of(1, 1)
        snapshot["groups"][0]["peers"][0]["telemetry"] = {**TELEMETRY, field: value}
        assert "\x1b" not in "\n".join(page(snapshot))


@pytest.mark.parametrize("findings", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("reports", [False, True])
def test_a_page_for_eight_members_fits_a_screen(findings: int, reports: bool) -> None:
    snapshot = snapshot_of(8, findings)
    lines = page(with_telemetry(snapshot) if reports else snapshot)
    assert len(lines) <= 40, "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "error rank_has_not_called: tokyo-0" in lines[:5]
    assert any("20:47:04 info: it happened" in line for line in lines)
    if findings == 20:
        assert any("more findings: `pccl status --json` shows them" in line for line in lines)


def test_the_page_has_the_facts() -> None:
    lines = page(snapshot_of(2, 1))
    assert lines[0] == "run night: active, epoch 692b5a3f.2, 2 members, min_peers 2; up 120 min"
    assert lines[1:3] == [
        "  shared state 120: 00c0ffee00c0ffee",
        "  12.5 operations/s, 45 MB/s in the last 59.5 s",
    ]
    assert any(line.endswith("12 s  has been in all_reduce (layer.3,...") for line in lines)
    assert "  -> look at the process of tokyo, for example with py-spy" in lines
    assert "ring  0->1 12.3 MB/s 31.2 ms, 1->0 12.3 MB/s 31.2 ms" in lines
    assert "waits 12 s, without ranks 2, 3: all_reduce(sum, float32)" in lines
    assert "20:47:03 info: it happened it happened" in "\n".join(lines)


def test_hostile_names_are_escaped() -> None:
    snapshot = snapshot_of(2, 1)
    snapshot["run"] = "a\x1b[2Jb"
    snapshot["findings"][0]["whom"] = ["\u202eevil"]
    snapshot["groups"][0]["peers"] = [peer(0, "x\ny" * 20), peer(1, "東京" * 40)]
    lines = page(snapshot)
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "a\\x1b[2Jb" in text
    assert max(map(len, lines)) <= 80
    assert not any(line.startswith("y") for line in lines)


@pytest.mark.parametrize("value", [None, 7, "x", [], [7], {}, [{}], float("nan"), -1, True])
def test_a_master_of_another_version_is_shown_as_far_as_it_is_understood(value: Any) -> None:
    snapshot = snapshot_of(2, 1)
    for field in list(snapshot):
        assert page({**snapshot, field: value})
    for field in snapshot["groups"][0]:
        assert page({**snapshot, "groups": [{**snapshot["groups"][0], field: value}]})
    for part in ("peers", "ring", "calls"):
        for field in snapshot["groups"][0][part][0]:
            changed = {**snapshot["groups"][0][part][0], field: value}
            assert page({**snapshot, "groups": [{**snapshot["groups"][0], part: [changed]}]})
    assert page({})


def test_several_groups_have_titles() -> None:
    snapshot = snapshot_of(2, 1)
    snapshot["groups"] = [snapshot["groups"][0], {**snapshot["groups"][0], "group": 3}]
    text = "\n".join(page(snapshot))
    assert "peer group 3: active, epoch 692b5a3f.2" in text
