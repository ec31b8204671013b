"""The ThreadedGroup, by trainers: means, a newcomer, losses, and threads that fail or wait."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from scripted_group import flat, same_bits, small_model
from threaded_group import PeersFailedError, VanishedError, threads

import pccl_backend as pccl
from pccl_backend.trainers import DDP

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS = 5


class Peer:
    """Trains until the run has had STEPS steps; a part of the peers' data is its own."""

    def __init__(self, number: int, *, accumulates: int = 1, fails_at: int = -1) -> None:
        self.model = small_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self._number = number
        self._accumulates = accumulates
        self._fails_at = fails_at
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(number)  # the lowest rank's parameters count

    def __call__(self) -> torch.Tensor:
        with DDP(self.model, self.optimizer) as trainer:
            while trainer.revision < STEPS:
                if trainer.revision == self._fails_at:
                    raise ZeroDivisionError
                for part in range(self._accumulates):
                    loss(self.model, trainer.revision, self._number, part).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
        return flat(self.model)


def loss(model: torch.nn.Module, step: int, number: int, part: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + 10 * part + number)
    value: torch.Tensor = (model(torch.randn(4, 3, generator=generator)) - number).square().mean()
    return value


def alone(numbers: list[int], late: dict[int, int], accumulates: int = 1) -> torch.Tensor:
    """Train one process on the mean loss of peers; `late`: others, by the step of their first."""
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        here = numbers + [number for number, first in late.items() if step >= first]
        losses = [loss(model, step, n, p) for n in here for p in range(accumulates)]
        (sum(losses, torch.zeros(())) / len(here)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return flat(model)


@pytest.mark.parametrize("accumulates", [1, 3])
def test_peers_train_on_the_mean_of_their_losses(
    monkeypatch: pytest.MonkeyPatch, accumulates: int
) -> None:
    group = threads(monkeypatch, "ab", admit={"c": 2})
    names = {name: Peer(n, accumulates=accumulates) for n, name in enumerate("abc")}
    got = group.run(names)
    assert same_bits(got["a"], got["b"])
    assert same_bits(got["a"], got["c"])
    assert (group.meetings, group.corrected) == (STEPS, [])
    torch.testing.assert_close(got["a"], alone([0, 1], {2: 3}, accumulates))


def test_survivors_go_on_and_admit_a_newcomer_in_the_repair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = threads(monkeypatch, "abc", lose={"b": 2}, admit={"d": 2})
    got = group.run({name: Peer(n) for n, name in enumerate("abcd")})
    assert got.keys() == set("acd")
    assert same_bits(got["a"], got["c"])
    assert same_bits(got["a"], got["d"])
    assert group.meetings == STEPS + 1, "one repairs"


def test_a_thread_that_raises_is_lost_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    group = threads(monkeypatch, "ab")
    outcomes = group.outcomes({"a": Peer(0), "b": Peer(1, fails_at=2)})
    assert isinstance(outcomes["a"], torch.Tensor), "it goes on alone"
    assert isinstance(outcomes["b"], ZeroDivisionError)
    group = threads(monkeypatch, "ab")
    with pytest.raises(PeersFailedError, match=r"(?s)b: Traceback.*ZeroDivisionError"):
        group.run({"a": Peer(0), "b": Peer(1, fails_at=2)})


def test_peers_that_wait_for_each_other_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    group = threads(monkeypatch, "ab")

    def reduces() -> Any:
        return pccl.all_reduce(torch.ones(1), tag="x")

    outcomes = group.outcomes({"a": pccl.update_topology, "b": reduces})
    stuck = [o for o in outcomes.values() if isinstance(o, TimeoutError)]
    assert len(stuck) == 1, outcomes
    assert all(part in str(stuck[0]) for part in ("update_topology #0", "all_reduce 'x' #0"))


def test_what_differs_between_members_is_an_error_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    group = threads(monkeypatch, "ab")
    outcomes = group.outcomes(
        {
            "a": lambda: pccl.all_reduce(torch.ones(1)),
            "b": lambda: pccl.all_reduce(torch.ones(2)),
        }
    )
    assert {type(error) for error in outcomes.values()} == {pccl.CollectiveMismatchError}


def test_a_peer_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    group = threads(monkeypatch, "ab", lose={"b": 0})
    outcomes = group.outcomes(dict.fromkeys("ab", lambda: pccl.all_reduce(torch.ones(1))))
    assert isinstance(outcomes["a"], pccl.PeerLostError)
    assert isinstance(outcomes["b"], VanishedError)


def test_sparse_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    group = threads(monkeypatch, "ab")

    def reduces(row: int) -> torch.Tensor:
        index = torch.tensor([[row, row, 3]])
        tensor = torch.sparse_coo_tensor(index, torch.ones(3, 2), (5, 2), check_invariants=True)
        pccl.all_reduce(tensor)
        return tensor

    got = group.run({"a": partial(reduces, 1), "b": partial(reduces, 2)})
    for tensor in got.values():
        assert tensor.is_coalesced()
        assert tensor.indices().tolist() == [[1, 2, 3]]
        assert tensor.values().tolist() == [[2.0, 2.0]] * 3


def test_a_newcomer_that_no_member_is_left_to_admit(monkeypatch: pytest.MonkeyPatch) -> None:
    group = threads(monkeypatch, "a")
    outcomes = group.outcomes({"a": int, "b": Peer(1)})
    assert outcomes["a"] == 0
    assert isinstance(outcomes["b"], TimeoutError)
    assert "to be admitted" in str(outcomes["b"])


def test_a_newcomer_with_other_tensors_is_kicked(monkeypatch: pytest.MonkeyPatch) -> None:
    group = threads(monkeypatch, "ab", admit={"c": 2})
    peers = {name: Peer(number) for number, name in enumerate("abc")}
    peers["c"].model.register_buffer("more", torch.zeros(1))
    outcomes = group.outcomes(peers)
    assert isinstance(outcomes["c"], pccl.KickedError)
    assert "buffer/more" in str(outcomes["c"])
    torch.testing.assert_close(outcomes["a"], alone([0, 1], {}))
    assert same_bits(outcomes["a"], outcomes["b"])
