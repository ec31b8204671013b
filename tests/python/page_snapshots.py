"""Snapshots for the tests of the page: recorded ones, and larger ones that are made up.

record_snapshots.py records those of tests/page. The others are made of them here: the members of a
run of 18 or 128, and the history of an hour, which no recording has.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "page"
SITUATIONS = sorted(path.stem for path in FOLDER.glob("*.json"))
CITIES = ["tokyo", "paris", "osaka", "lima", "oslo", "rome", "kyoto", "quito", "delhi"]
CITIES += ["cairo", "accra", "sofia", "riga", "bern", "turin", "porto", "lyon", "graz"]
HOUR_STEPS = 720
STEP_S = 5

Snapshot = dict[str, Any]


def recorded(situation: str) -> Snapshot:
    snapshot: Snapshot = json.loads((FOLDER / f"{situation}.json").read_text())
    return snapshot


def crowd(members: int, *, slow: int = 2, missing: int | None = None) -> Snapshot:
    """Return a made-up run: its ring has `slow` slow links, and rank `missing` has not called."""
    snapshot = recorded("healthy")
    group = snapshot["groups"][0]
    model = group["peers"][0]
    incarnation = snapshot["master"]["incarnation"]
    group["peers"] = [_member(model, incarnation, rank, members) for rank in range(members)]
    group["ring"] = [
        {
            "from": rank,
            "to": (rank + 1) % members,
            "bytes_per_s": 3.1e6 if rank % 11 == 4 and rank // 11 < slow else 4.1e7 + rank * 3e4,
            "round_trip_s": 0.02 + 0.001 * (rank % 13),
        }
        for rank in range(members)
    ]
    group["members"] = members
    group["history"], group["scalars_history"] = hour(), curves()
    text = (
        f"nothing stands still: the run has {members} members, which have committed 12 operations/s"
    )
    snapshot["findings"] = [{**snapshot["findings"][0], "text": text}]
    return snapshot if missing is None else _without(snapshot, missing)


def _without(snapshot: Snapshot, rank: int) -> Snapshot:
    """Let all members wait for the one with this rank."""
    model = recorded("not_called")
    (call,) = model["groups"][0]["calls"]
    group = snapshot["groups"][0]
    peers = group["peers"]
    others = [number for number in range(len(peers)) if number != rank]
    group["calls"] = [{**call, "waiting": others, "missing": [rank]}]
    group["operations_open"] = 1
    name = f"{peers[rank]['name']} (peer {peers[rank]['peer']})"
    finding = json.dumps(model["findings"][0])
    finding = finding.replace("osaka", peers[rank]["name"]).replace("rank 2", f"rank {rank}")
    snapshot["findings"] = [{**json.loads(finding), "whom": [name]}]
    return snapshot


def _member(model: dict[str, Any], incarnation: str, rank: int, members: int) -> dict[str, Any]:
    peer = copy.deepcopy(model)
    name = CITIES[rank % len(CITIES)] + (f"-{rank // len(CITIES)}" if members > len(CITIES) else "")
    peer |= {"peer": f"{incarnation}.{rank + 1}", "rank": rank, "name": name}
    peer["address"] = f"10.0.{rank // 250}.{rank % 250 + 1}:48201"
    waiting = 0.05 + 0.25 * (rank * 7 % 10) / 10
    transferring = 0.08 + 0.002 * (rank % 9)
    peer["telemetry"] |= {
        "computing": 1 - waiting - transferring,
        "waiting": waiting,
        "transferring": transferring,
        "waits_for": f"{CITIES[7]} (peer {incarnation}.8)",
        "sent_per_s": 1.2e7 + 1e5 * rank,
        "links": [],
    }
    return peer


def hour() -> dict[str, Any]:
    """Return the history of an hour, with two losses, and a minute without the master."""
    operations: list[int | None] = [
        int(60 + 6 * math.sin(step / 40) + step * 7 % 5) for step in range(HOUR_STEPS)
    ]
    operations[300:312] = [None] * 12
    operations[500:509] = [0] * 9
    bytes_ = [None if one is None else one * 4_194_304 for one in operations]
    at = {100: 1, 500: 1}
    later = {130: 1, 508: 1, 0: 3}
    return {
        "since": HOUR_STEPS * STEP_S,
        "step_s": STEP_S,
        "operations": operations,
        "bytes": bytes_,
        "losses": [at.get(step, 0) for step in range(HOUR_STEPS)],
        "joins": [later.get(step, 0) for step in range(HOUR_STEPS)],
    }


def curves() -> dict[str, list[list[float]]]:
    """Return a falling loss and a learning rate that warms up."""
    ago = [3600 * (1 - point / 511) for point in range(512)]
    loss = [2.2 + 3 / math.sqrt(1 + point) + 0.03 * math.sin(point * 2.4) for point in range(512)]
    speed = [3e-4 * min(1, point / 60) for point in range(512)]
    return {
        "loss": [[a, b] for a, b in zip(ago, loss, strict=True)],
        "lr": [[a, b] for a, b in zip(ago, speed, strict=True)],
    }
