"""Frozen parameters and buffers that each peer has of its own: a difference is a warning, once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from threaded_group import ThreadedGroup, threads

import pccl_backend as pccl
from pccl_backend.trainers import DDP, DiLoCo, bases
from pccl_backend.trainers.bases import NUMBER_MAX, Bases

pytestmark = pytest.mark.usefixtures("one_thread")

ROUNDS = 6
EVERY_DTYPE = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
SETTINGS: dict[str, dict[str, Any]] = {
    "blocking": {"every": 1},
    "overlapped": {"every": 2, "overlap": 1},
    "streaming": {"every": 2, "fragments": 2, "overlap": "auto"},
    "quantized": {"every": 1, "quantize": pccl.quantization.MinMax(bits=8)},
}


class Adapted(torch.nn.Module):
    """An adapter on a frozen base."""

    def __init__(self, base: float = 1.0, seen: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.base = torch.nn.Linear(3, 3)
        self.same = torch.nn.Linear(3, 3)
        self.adapter = torch.nn.Linear(3, 2)
        self.register_buffer("seen", torch.full((2,), seen))
        for part in (self.base, self.same):
            part.requires_grad_(False)
        self.base.weight.mul_(base)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.numel())
        result: torch.Tensor = self.adapter(self.base(x) + self.same(x))
        return result


Change = Callable[[Adapted], object]


def train(model: Adapted, change: Change = id, kind: Any = DiLoCo, **settings: Any) -> int:
    """Return the hash of the data that the peers share."""
    trained = model.adapter.parameters()
    optimizer = torch.optim.SGD(trained, lr=0.01)
    with kind(model, optimizer, **settings) as trainer:
        while trainer.last is None or trainer.last.revision < ROUNDS:
            model(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            change(model)
    return int(trainer.last.synced.hash)


def run(group: ThreadedGroup, models: list[Adapted], **options: Any) -> None:
    """Train them as peers, which end with the same shared state."""
    peers = {"abc"[i]: partial(train, model, **options) for i, model in enumerate(models)}
    assert len(set(group.run(peers).values())) == 1
    assert group.corrected == []


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.name == "pccl"]
    return sorted(text for text in texts if "different bases" in text)


@pytest.mark.parametrize("settings", SETTINGS)
def test_founders_with_different_bases(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: str
) -> None:
    """Each names the tensor and the other peer, once."""
    group = threads(monkeypatch, "ab")
    run(group, [Adapted(), Adapted(2.0)], **SETTINGS[settings])
    first, second = warnings_in(caplog)
    assert first.startswith("a: not the same parameter 'base.weight' as here")
    assert second.startswith("b: not the same parameter 'base.weight' as here")


@pytest.mark.parametrize("settings", SETTINGS)
def test_peers_with_the_same_base_send_no_more_than_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: str
) -> None:
    group = threads(monkeypatch, "ab", admit={"c": 2})
    models = [Adapted(), Adapted(), Adapted()]
    run(group, models, **SETTINGS[settings])
    assert warnings_in(caplog) == []
    assert not any(count > bases.SLOTS for _, _, count in group.reduced)


def test_a_newcomer_with_another_base(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    group = threads(monkeypatch, "ab", admit={"c": 2})
    run(group, [Adapted(), Adapted(), Adapted(2.0)], every=1)
    same = "not the same parameter 'base.weight' as here"
    assert [text.partition(". ")[0] for text in warnings_in(caplog)] == [
        f"a, b: {same}",
        f"c: {same}",
        f"c: {same}",
    ]


def test_a_peer_that_differs_leaves_and_another_one_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that were told of one another are not told again."""
    group = threads(monkeypatch, "abc", lose={"b": 2}, admit={"d": 3})
    models = [Adapted(), Adapted(2.0), Adapted(2.0), Adapted()]
    group.run({"abcd"[i]: partial(train, model, every=1) for i, model in enumerate(models)})
    told = [text.partition(":")[0] for text in warnings_in(caplog)]
    assert sorted(told) == sorted(["b, c", "a", "a", "d", "c"])


def test_a_base_that_changes_in_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a teacher that follows the model does: a newcomer has another one."""

    def follow(model: Adapted) -> None:
        with torch.no_grad():
            model.same.bias.lerp_(torch.ones(3), 0.1)

    group = threads(monkeypatch, "ab")
    run(group, [Adapted(), Adapted()], change=follow, every=1)
    assert warnings_in(caplog) == []
    group = threads(monkeypatch, "ab", admit={"c": 2})
    run(group, [Adapted(), Adapted(), Adapted()], change=follow, every=1)
    assert any("parameter 'same.bias' as here" in text for text in warnings_in(caplog))


def test_buffers_of_each_peers_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are compared as they were at the start: they are there to change."""
    group = threads(monkeypatch, "ab", admit={"c": 2})
    run(group, [Adapted(), Adapted(), Adapted()], every=1, buffers="own")
    assert warnings_in(caplog) == []
    group = threads(monkeypatch, "ab")
    run(group, [Adapted(), Adapted(seen=3.0)], every=1, buffers="own")
    assert [text.partition(" as")[0] for text in warnings_in(caplog)] == [
        "a: not the same buffer 'seen'",
        "b: not the same buffer 'seen'",
    ]
    caplog.clear()
    group = threads(monkeypatch, "ab")
    run(group, [Adapted(), Adapted(seen=3.0)], every=1)
    assert warnings_in(caplog) == [], "they are averaged"


def test_ddp_shares_the_base(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    models = [Adapted(), Adapted(2.0)]
    run(threads(monkeypatch, "ab"), models, kind=DDP)
    assert torch.equal(models[0].base.weight, models[1].base.weight)
    assert warnings_in(caplog) == []


def test_a_peer_without_a_base(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has nothing to compare, and the others go on comparing."""
    models = [Adapted(), Adapted(2.0), Adapted()]
    models[2].base = models[2].same = torch.nn.Identity()
    run(threads(monkeypatch, "abc"), models, every=1)
    assert [text.partition(":")[0] for text in warnings_in(caplog)] == ["a", "b"]


def test_many_names_are_cut_short(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    models = [Adapted(), Adapted()]
    for number, model in enumerate(models):
        many = [torch.full((1,), float(number)) for _ in range(9)]
        model.many = torch.nn.ParameterList(torch.nn.Parameter(each, False) for each in many)
    run(threads(monkeypatch, "ab"), models, every=1)
    names = ", ".join(f"parameter 'many.{number}'" for number in range(4))
    for text in warnings_in(caplog):
        assert f"not the same {names} and 5 more as here" in text


def test_a_loss_while_they_compare(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on, and the others compare in their next round."""
    group = threads(monkeypatch, "abc")
    reduce, rounds = group.all_reduce, []

    def lose(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if len(tensor) > bases.SLOTS:
            rounds.append(1)
            if len(rounds) <= 3:
                raise pccl.PeerLostError("c lost")
        return reduce(tensor, *arguments, **options)

    monkeypatch.setattr(pccl, "all_reduce", lose)
    ends = iter([False, False])

    def leave(model: Adapted) -> None:
        if next(ends, True):
            raise ZeroDivisionError

    models = [Adapted(), Adapted(2.0), Adapted()]
    changes: list[Change] = [id, id, leave]
    peers = {n: partial(train, models[i], changes[i], every=1) for i, n in enumerate("abc")}
    outcomes = group.outcomes(peers)
    assert isinstance(outcomes["c"], ZeroDivisionError)
    assert outcomes["a"] == outcomes["b"]
    assert [text.partition(":")[0] for text in warnings_in(caplog)] == ["a", "b"]


# --- Hashes ---------------------------------------------------------------------------------------


class Own(torch.nn.Module):
    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self.own = torch.nn.Parameter(tensor, requires_grad=False)


def number_of(tensor: torch.Tensor) -> int:
    made = Bases(Own(tensor), buffers=False)
    made.read()
    return made.number


def test_a_hash_is_of_values_and_not_of_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    number = number_of(matrix)
    assert 0 < number <= NUMBER_MAX
    for other in (matrix.clone(), matrix.t().contiguous().t(), torch.cat([matrix, matrix])[6:]):
        assert number_of(other) == number
    for other in (matrix.t(), matrix.double(), matrix.view(5, 6), matrix + 0.001, -matrix):
        assert number_of(other) != number
    turned = torch.randn(3, dtype=torch.complex64)
    assert number_of(turned.conj()) == number_of(turned.conj().resolve_conj())
    assert number_of(turned.conj().imag) == number_of(-turned.imag)
    many = [torch.randn(shape) for shape in [(7, 300), (300,), (2, 3, 50), (1, 1, 999), ()]]
    monkeypatch.setattr(bases, "PIECE_BYTES", 400)
    for tensor in many:
        assert number_of(tensor) == number_of(tensor.clone())
        changed = tensor.clone()
        changed.view(-1)[-1] += 1
        assert number_of(tensor) != number_of(changed)


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_a_frozen_tensor_of_every_dtype(dtype: torch.dtype) -> None:
    """It is compared, or left out if torch has no bytes of it."""
    if str(dtype).startswith(("torch.q", "torch.quint")):
        assert number_of(torch.empty(4, dtype=dtype)) == 0
        return
    one = torch.ones(4 * dtype.itemsize, dtype=torch.uint8)
    other = one.clone()
    other[-1] = 0
    assert number_of(one.view(dtype)) == number_of(one.clone().view(dtype)) > 0
    assert number_of(one.view(dtype)) != number_of(other.view(dtype))


def test_what_has_no_bytes_is_left_out() -> None:
    freed = torch.ones(1000)
    freed.untyped_storage().resize_(0)
    for tensor in (torch.empty(3, device="meta"), torch.eye(3).to_sparse(), freed):
        assert number_of(tensor) == 0
    assert number_of(torch.empty(0)) > 0


def test_only_what_has_changed_is_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Adapted()
    made = Bases(model, buffers=True)
    hashed: list[str] = []
    hash_of = bases._hash_of

    def note(name: str, tensor: torch.Tensor) -> int:
        hashed.append(name)
        return hash_of(name, tensor)

    monkeypatch.setattr(bases, "_hash_of", note)
    made.read()
    before = made.number
    assert len(hashed) == 5
    made.read()
    made.read_again()
    assert (len(hashed), made.number) == (5, before)
    with torch.no_grad():
        model.base.bias.add_(1)
        model.seen.add_(1)
    made.read_again()
    assert hashed[5:] == ["parameter 'base.bias'"]
    assert made.number != before
    made.read()
    assert hashed[6:] == ["buffer 'seen'"]
