"""A peer is killed in the middle of each kind of collective, at a random moment.

PCCL_TEST_KILLS_EACH=200 in the environment makes 200 kills of each, which takes minutes for each:

    PCCL_TEST_KILLS_EACH=200 .venv/bin/pytest -n0 -s tests/python/test_kills.py -k "bits"

kills peers in quantized all-reduces.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from every_collective import COLLECTIVES, TRANSFERS
from fleet import Fleet, Remote
from test_churn import shrink

WORLD = 4
COUNT = 1 << 20  # 4 MiB of float32
KILLS = int(os.environ.get("PCCL_TEST_KILLS_EACH", "1"))
LONGEST_S = 0.02  # until the kill: before, during or after the call of the victim


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.close()


def begin(peers: list[Remote], kind: str) -> None:
    for peer in peers:
        peer.tell("collective", kind=kind, count=COUNT)


def end(peer: Remote) -> dict[str, Any]:
    """Return how its call has ended. It may say before that it has posted it."""
    answer = peer.answer(timeout=20)
    return answer if "ok" in answer else peer.answer(timeout=20)


def kill_one(peers: list[Remote], kind: str, chance: random.Random) -> tuple[Remote, bool]:
    """Kill one during the call. Return it, and whether the call failed."""
    begin(peers, kind)
    ended: dict[Remote, dict[str, Any]] = {}
    if chance.random() < 0.5:  # from now, or after the answer of a peer
        answer = peers[0].answer(timeout=20)
        if "ok" in answer:
            ended[peers[0]] = answer
    time.sleep(chance.uniform(0, LONGEST_S))  # each moment has to end alike
    victim = chance.choice(peers)
    victim.kill()
    survivors = [peer for peer in peers if peer is not victim]
    outcomes = [ended.get(peer) or end(peer) for peer in survivors]
    for outcome in outcomes:
        assert outcome["read"], outcome
        assert outcome["right"] if outcome["ok"] else outcome["error"] == "PeerLostError", outcome
    if kind in COLLECTIVES:
        assert len({outcome["ok"] for outcome in outcomes}) == 1, outcomes
        assert len({outcome.get("message") for outcome in outcomes}) == 1, outcomes
        assert outcomes[0]["ok"] or all(outcome["untouched"] for outcome in outcomes), outcomes
    return victim, not all(outcome["ok"] for outcome in outcomes)


def check(peers: list[Remote], kind: str) -> None:
    begin(peers, kind)
    outcomes = [end(peer) for peer in peers]
    assert all(outcome["ok"] and outcome["right"] for outcome in outcomes), outcomes


@pytest.mark.timeout(60 + 10 * KILLS)
@pytest.mark.parametrize("kind", [*COLLECTIVES, *TRANSFERS])
def test_a_kill_in_the_middle(fleet: Fleet, kind: str) -> None:
    chance = random.Random(kind)
    peers = fleet.found(WORLD, run=kind)
    failed = 0
    for _ in range(KILLS):
        check(peers, kind)
        victim, call_failed = kill_one(peers, kind, chance)
        failed += call_failed
        peers.remove(victim)
        fleet.forget(victim)
        shrink(peers)
        check(peers, kind)
        newcomer = fleet.spawn()
        newcomer.tell("join", url=fleet.url(kind, min_peers=2))
        peers = fleet.admit(peers, [newcomer])
    print(f"{kind}: {failed} of {KILLS} kills ended the call")
    for peer in peers:
        fleet.forget(peer)
