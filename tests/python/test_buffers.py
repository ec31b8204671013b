"""Buffers of every dtype and layout: a newcomer gets the others' buffers, and members agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from threaded_group import threads
from torch import Tensor

from pccl_backend.trainers import DDP, DiLoCo

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]

ROUNDS = 6
CHANGES_AT, ADMITTED_AT = 1, 3
TRAINERS: dict[str, Callable[..., Any]] = {
    "ddp": DDP,
    "diloco": partial(DiLoCo, every=1),
    "overlapped": partial(DiLoCo, every=2, overlap=1),
    "streaming": partial(DiLoCo, every=2, fragments=2, overlap="auto"),
}
EVERY_DTYPE = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
SERVED = re.compile(
    r"torch\.(b?float16|float(32|64)|float8_\w+|b?complex\d+|bool|u?int(8|16|32|64))"
)
START = [2, 1, 4, 1]
CHANGED = ([2, 2, 4, 1], [4, 2, 1, 2])  # by the members, one each
NEWCOMERS = [1, 4, 2, 4]
MEAN = [3.0, 2.0, 2.5, 1.5]
GREATEST = [4, 2, 4, 2]


def of_dtype(dtype: torch.dtype, numbers: list[Any]) -> Tensor:
    """Return numbers from 1 in a dtype, at the ends of its range and sign."""
    if dtype is torch.bool:
        return torch.tensor(numbers) % 2 == 0
    if dtype is torch.uint64:  # both sides of an int64's range
        return torch.tensor([number << 61 for number in numbers], dtype=dtype)
    if dtype.is_complex:
        pairs = torch.tensor([[number, -number] for number in numbers]).to(dtype.to_real())
        return pairs.view(dtype).squeeze(-1)
    return torch.tensor(numbers).to(dtype)


def together(dtype: torch.dtype) -> Tensor:
    """Return the values that the members agree on after their changes."""
    if dtype is torch.bool:
        return of_dtype(dtype, CHANGED[0]) | of_dtype(dtype, CHANGED[1])
    return of_dtype(dtype, MEAN if dtype.is_floating_point or dtype.is_complex else GREATEST)


def bits(tensor: Tensor) -> list[int]:
    values: list[int] = tensor.contiguous().reshape(-1).view(torch.uint8).tolist()
    return values


class Net(torch.nn.Module):
    def __init__(self, buffer: Tensor, *, persistent: bool = True) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.line = torch.nn.Linear(3, 2)
        self.register_buffer("odd", buffer, persistent=persistent)


def sgd(net: Net) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1)


def train(kind: str, net: Net, change: Callable[[], object]) -> list[int]:
    """Train until the run has had ROUNDS; return the bits of the buffer."""
    optimizer = sgd(net)
    with TRAINERS[kind](net, optimizer) as trainer:
        changes = False
        while trainer.last is None or trainer.last.revision < ROUNDS:
            if trainer.revision == CHANGES_AT and not changes:
                changes = True
                change()
            net.line(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return bits(net.odd)


def run(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    make: Callable[[list[Any]], Net],
    changed: tuple[list[Any], list[Any]] = CHANGED,
) -> list[list[int]]:
    """Train two members and a newcomer; return the bits that each has in the end."""
    nets = [make(START), make(CHANGED[1]), make(NEWCOMERS)]
    group = threads(monkeypatch, "ab", admit={"c": ADMITTED_AT})

    def change(number: int) -> None:
        nets[number].odd.copy_(make(changed[number]).odd)

    changes: list[Callable[[], object]] = [partial(change, 0), partial(change, 1), int]
    peers = {n: partial(train, kind, nets[i], changes[i]) for i, n in enumerate("abc")}
    results = group.run(peers)
    assert group.corrected == [], "a sync has hidden that members differed"
    return [results[name] for name in "abc"]


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
@pytest.mark.parametrize("kind", TRAINERS)
def test_a_buffer_of_every_dtype(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype
) -> None:
    if SERVED.fullmatch(str(dtype)) is None:
        net = Net(torch.empty(4, dtype=dtype))
        with pytest.raises(ValueError, match=rf"buffer 'odd' is {dtype}.* before the trainer"):
            TRAINERS[kind](net, sgd(net))
        DiLoCo(net, buffers="own").close()
        return
    want = bits(together(dtype))
    assert want not in (bits(of_dtype(dtype, n)) for n in (*CHANGED, START, NEWCOMERS)), "a test"
    got = run(monkeypatch, kind, lambda numbers: Net(of_dtype(dtype, numbers)))
    assert got == [want] * 3


@pytest.mark.parametrize("dtype", [d for d in EVERY_DTYPE if SERVED.fullmatch(str(d))], ids=str)
@pytest.mark.parametrize("kind", ["ddp", "diloco"])
def test_bits_that_nobody_changes(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype
) -> None:
    """All numbers of a dtype of one byte, and some of a wider one; a NaN may change its bits."""
    real = dtype.to_real() if dtype.is_complex else dtype
    numbers = torch.arange(256, dtype=torch.uint8).repeat_interleave(real.itemsize)
    if dtype is torch.bool:
        numbers %= 2
    if real.is_floating_point:
        numbers.view(256, -1)[numbers.view(real).float().isnan()] = 0
    buffer = numbers.view(dtype)
    other = torch.ones_like(numbers).view(dtype)
    got = run(
        monkeypatch,
        kind,
        lambda chosen: Net((buffer if chosen is START else other).clone()),
        changed=(START, START),
    )
    assert got == [bits(buffer)] * 3


# --- Layouts in memory ----------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t.view(2, 2).t(),
    "column": lambda t: t.view(2, 2)[:, 1],
    "every other": lambda t: t[::2],
    "reversed strides": lambda t: t.view(1, 2, 2, 1).to(memory_format=torch.channels_last),
    "0 elements": lambda t: t[:0],
    "0 elements of 2 dimensions": lambda t: t[:0].view(0, 3),
    "0 dimensions": lambda t: t[0],
    "expanded by 1": lambda t: t.expand(1, -1),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex64, torch.uint64], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda name: name.replace(" ", "_"))
@pytest.mark.parametrize("kind", ["ddp", "diloco"])
def test_a_buffer_of_every_layout(
    monkeypatch: pytest.MonkeyPatch, kind: str, layout: str, dtype: torch.dtype
) -> None:
    place = LAYOUTS[layout]
    want = bits(place(together(dtype)))
    got = run(monkeypatch, kind, lambda numbers: Net(place(of_dtype(dtype, numbers))))
    assert got == [want] * 3


def test_a_buffer_that_no_checkpoint_has(monkeypatch: pytest.MonkeyPatch) -> None:
    make = partial(Net, persistent=False)
    for kind in ("ddp", "diloco"):
        got = run(monkeypatch, kind, lambda numbers: make(of_dtype(torch.int32, numbers)))
        assert got == [bits(together(torch.int32))] * 3


def test_a_buffer_with_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(numbers: list[Any]) -> Net:
        net = Net(of_dtype(torch.float32, numbers))
        net.line.register_buffer("also", net.odd)
        return net

    for kind in ("ddp", "diloco"):
        assert run(monkeypatch, kind, make) == [bits(together(torch.float32))] * 3


@pytest.mark.parametrize("kind", TRAINERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_elements_that_share_memory_are_refused(kind: str, dtype: torch.dtype) -> None:
    for buffer in (of_dtype(dtype, [1]).expand(4), of_dtype(dtype, START).unfold(0, 2, 1)):
        net = Net(buffer)
        with pytest.raises(ValueError, match=r"elements of buffer 'odd' share memory .*\.clone"):
            TRAINERS[kind](net, sgd(net))
        net = Net(buffer.clone())
        TRAINERS[kind](net, sgd(net)).close()
    nested = Net(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    with pytest.raises(ValueError, match=r"buffer 'odd' is nested torch\.float32"):
        TRAINERS[kind](nested, sgd(nested))


def test_frozen_elements_that_share_memory() -> None:
    """DDP shares frozen parameters, and DiLoCo does not touch them."""
    net = Net(torch.ones(1))
    net.frozen = torch.nn.Parameter(torch.ones(1).expand(4), requires_grad=False)
    optimizer = torch.optim.SGD(net.line.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"elements of parameter 'frozen' share memory"):
        DDP(net, optimizer)
    DiLoCo(net, optimizer).close()
