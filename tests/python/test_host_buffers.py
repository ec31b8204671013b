"""The buffers of a leader: their orders to the other processes of the host."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest
import torch

from pccl_backend.trainers.flat import Buffers
from pccl_backend.trainers.host.arena import Arena
from pccl_backend.trainers.host.buffers import HostBuffers
from pccl_backend.trainers.host.orders import Do
from pccl_backend.trainers.layout import Layout
from pccl_backend.trainers.settings import Settings

HERE = {"read_counters", "flip_counters"}  # the leader counts for the host
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "check": ((), {}),
    "fill": ((), {}),
    "adopt": ((), {}),
    "write_counters": ((), {}),
    "measure": ((0,), {}),
    "load": ((0,), {}),
    "remember": ((0,), {}),
    "measure_since": ((0,), {}),
    "keep": ((0,), {}),
    "carry": ((0,), {}),
    "mix": ((0, 0.5), {}),
    "swap_out": ((0, 0, 1), {"kept": False}),
    "swap_in": ((0, 0, 1), {"alpha": 0.5}),
}


@pytest.fixture
def orders() -> list[Do]:
    return []


@pytest.fixture
def buffers(orders: list[Do]) -> HostBuffers:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizers = [torch.optim.SGD(model.parameters())]
    layout = Layout(model, optimizers, buffers=True, frozen=False)

    def everywhere(buffers: Buffers, order: Do) -> None:
        orders.append(order)
        order.carry_out(buffers)

    return HostBuffers(
        layout,
        Settings(
            every=1,
            outer_lr=0.7,
            outer_momentum=0.9,
            outer_optimizer=None,
            fragments=1,
            overlap=1,
            mix="carry",
            weight="equal",
            buffers="average",
            counts=True,
        ),
        make=lambda plan, pinned: Arena.create(plan).tensors(pinned=pinned),
        everywhere=everywhere,
    )


def test_what_touches_the_model_is_one_order(buffers: HostBuffers, orders: list[Do]) -> None:
    """A public method that returns nothing touches the model."""
    methods = dict(inspect.getmembers(Buffers, inspect.isfunction))
    returns = {
        name: inspect.signature(method).return_annotation for name, method in methods.items()
    }
    public = {name for name, what in returns.items() if what == "None" and name[0] != "_"}
    assert public - HERE == CALLS.keys()
    for name, (arguments, options) in CALLS.items():
        with torch.no_grad():
            getattr(buffers, name)(*arguments, **options)
        (order,) = orders
        orders.clear()
        assert order.method is methods[name]
        assert pickle.loads(pickle.dumps(order)) == order
