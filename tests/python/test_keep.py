"""on_loss="keep": elements that all survivors had finished at the loss of a member keep their
result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fleet import Fleet, Remote

COUNT = 8 << 20  # elements: 32 MiB of float32


@pytest.fixture(params=[("raise", "ring"), ("retry", "ring"), ("retry", "direct")])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    policy, pattern = request.param
    fleet = Fleet(environment={"PCCL_ON_PEER_LOSS": policy, "PCCL_PATTERN": pattern})
    yield fleet
    fleet.close()


def reduce_with_a_death(peers: list[Remote], **arguments: Any) -> list[dict[str, Any]]:
    """All peers call it, and the last one dies half-way; return the others' answers."""
    for seed, peer in enumerate(peers):
        dies = {"dies_at": 0.5} if peer is peers[-1] else {}
        peer.tell("all_reduce", count=COUNT, seed=seed, on_loss="keep", **arguments, **dies)
    for peer in peers:
        assert "posted" in peer.answer()
    return [peer.answer() for peer in peers[:-1]]


@pytest.mark.parametrize(
    ("op", "stride", "dtype"),
    [("sum", 1, "float32"), ("avg", 1, "float32"), ("avg", 2, "float32"), ("avg", 1, "int32")],
)
def test_the_rest_is_reduced_over_those_who_are_left(
    fleet: Fleet, op: str, stride: int, dtype: str
) -> None:
    peers = fleet.found(3)
    names = {peer.call("info")["peer"]: seed for seed, peer in enumerate(peers)}
    first, second = reduce_with_a_death(peers, op=op, stride=stride, dtype=dtype)
    assert first["ok"], first
    assert first["digest"] == second["digest"]
    assert first["parts"] == second["parts"]
    (start, middle, all_three), (_, end, survivors) = first["parts"]
    assert (start, end) == (0, COUNT)
    assert 0 < middle < COUNT
    assert (len(all_three), len(survivors)) == (3, 2)
    assert set(survivors) < set(all_three) == set(names)
    for sample, value in enumerate(first["values"]):
        element = sample * (COUNT // 1000)
        over = all_three if element < middle else survivors
        total = sum(element % 64 + names[peer] for peer in over)
        average = total // len(over) if dtype == "int32" else total / len(over)
        assert value == pytest.approx(total if op == "sum" else average)


def test_under_raise_the_group_needs_an_update_all_the_same() -> None:
    fleet = Fleet()
    try:
        peers = fleet.found(3)
        assert all(answer["ok"] for answer in reduce_with_a_death(peers))
        for seed, peer in enumerate(peers[:2]):
            failed = peer.call("all_reduce", count=10, seed=seed)
            failed = peer.answer() if "posted" in failed else failed
            assert failed["error"] == "PeerLostError", failed
        for peer in peers[:2]:
            peer.tell("update_topology")
        assert [peer.answer()["world"] for peer in peers[:2]] == [2, 2]
        for seed, peer in enumerate(peers[:2]):
            peer.tell("all_reduce", count=10, seed=seed)
        for peer in peers[:2]:
            assert "posted" in peer.answer()
            assert peer.answer()["ok"]
    finally:
        fleet.close()


def test_what_cannot_be_kept_is_refused(fleet: Fleet) -> None:
    (peer,) = fleet.found(1)
    for wrong, message in (
        ({"on_loss": "drop"}, "on_loss is 'drop'; it can be \"keep\", or None"),
        ({"on_loss": "keep", "op": "max"}, "is for sums and averages, not for MAX"),
    ):
        answer = peer.call("all_reduce", count=10, seed=0, **wrong)
        answer = peer.answer() if "posted" in answer else answer
        assert answer["error"] == "ValueError"
        assert message in answer["message"]
