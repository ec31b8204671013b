"""Run by test_diloco_world.py: the DiLoCo trainer in processes, with real groups."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from world import expected

import pccl_backend as pccl
from pccl_backend.trainers import DiLoCo, Observer, OuterStep

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ATTEMPTS_MAX = 10  # for calls that raise because the other peer's call was interrupted


def untrained() -> list[bytes]:
    """Take outer steps without training, on a model in four dtypes; return the global bits."""
    torch.manual_seed(dist.get_rank())
    model = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(700, dtype=d)) for d in DTYPES)
    model.append(torch.nn.Parameter(torch.tensor([0.0, -0.0, float("inf"), float("nan")])))
    outer = DiLoCo(model, outer_momentum=0.0)
    # Loaded after the trainer was made, with values that the narrow dtypes must round.
    model.load_state_dict({name: torch.randn_like(p) for name, p in model.state_dict().items()})
    with torch.no_grad():
        model[-1].copy_(torch.tensor([0.0, -0.0, float("inf"), float("nan")]))
    outer.start()
    with torch.no_grad():
        model[0].add_(dist.get_rank() / 10)
    outer.step()  # now the globals lie between values of the narrow dtypes
    before = outer._replica.message.global_.clone()
    for _ in range(3):
        outer.step()
    words = before.view(torch.int64), outer._replica.message.global_.view(torch.int64)
    assert torch.equal(*words), "the globals moved though nobody trained"
    assert not torch.equal(before[:700], before[:700].half().double()), "nothing was rounded"
    return [before.numpy().tobytes()]


def has_settings_of_its_own() -> str:
    """Take an outer step; rank 1 has another learning rate, and leaves at the test's request."""
    lr = 0.5 if dist.get_rank() == 1 else 0.7
    outer = DiLoCo(torch.nn.Linear(3, 1), outer_lr=lr)
    outer.start()
    if lr == 0.7:
        outer.step()
        return "fine"
    with pytest.raises(ValueError, match=r"outer_lr=0\.5"):
        outer.step()
    return "refused"


class Books:
    """Like Books in test_diloco_repeat.py, but with the mean of the progress of all peers."""

    def __init__(self, observer: Observer | None = None) -> None:
        self.model = torch.nn.Linear(3, 1)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.zero_()
        self.outer = DiLoCo(self.model, outer_lr=1.0, outer_momentum=0.0, observer=observer)
        self.outer.start()

    def learn(self, amount: float) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(amount)

    def check(self, done: OuterStep, *, revision: int, applied: float) -> None:
        assert done.revision == self.outer.revision == revision
        assert self.outer._replica.message.global_.unique().tolist() == [applied]


def announce(what: str) -> None:
    distributed_c10d._get_default_store().set(what, "")


def await_(what: str) -> None:
    distributed_c10d._get_default_store().wait([what], timedelta(seconds=20))


def times_out_in_the_all_reduce() -> None:
    """It fails on both peers. Both call step again, after one of them has learned more."""
    books = Books()
    books.learn(1 + dist.get_rank())
    if dist.get_rank() == 1:
        await_("raised")
    with expected(pccl.OperationTimeoutError):
        books.outer.step()
    announce("raised")
    books.learn(10 * dist.get_rank())
    books.check(books.outer.step(), revision=1, applied=6.5)
    books.check(books.outer.step(), revision=2, applied=6.5)


def is_interrupted_in_the_all_reduce() -> None:
    """The all-reduce continues: the other peer notices nothing."""
    books = Books()
    books.learn(1 + dist.get_rank())
    if dist.get_rank() == 1:
        await_("raised")
    else:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with expected(KeyboardInterrupt):
            books.outer.step()
        books.learn(10)
        announce("raised")
    books.check(books.outer.step(), revision=1, applied=1.5)
    books.check(books.outer.step(), revision=2, applied=6.5)


def is_interrupted_in_the_meeting(event: str) -> None:
    """The meeting is then given up for all: both repeat until they meet."""
    observer = Observer()
    books = Books(observer)
    books.learn(1 + dist.get_rank())
    if dist.get_rank() == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def once(*_: object) -> None:
        setattr(observer, event, lambda *_: None)
        if dist.get_rank() == 0:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            await_("raised")

    setattr(observer, event, once)
    raised: list[str] = []
    for _ in range(ATTEMPTS_MAX):
        try:
            done = books.outer.step()
            break
        except (KeyboardInterrupt, pccl.PcclError) as error:
            raised.append(type(error).__name__)
            announce("raised")
            books.learn(10 * (len(raised) == 1))
    else:
        raise AssertionError(f"they did not find together: {raised}")
    assert dist.get_rank() == 1 or raised[0] == "KeyboardInterrupt", raised
    books.check(done, revision=1, applied=1.5)
    rest = 10 * bool(raised)
    total = torch.tensor([float(rest)])
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    books.check(books.outer.step(), revision=2, applied=1.5 + total.item() / 2)
