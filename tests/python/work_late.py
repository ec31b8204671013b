"""Run by test_late.py: a peer that is late, and its trainer, which comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import world
from work_host_group import cut, enter, sgd
from world import expected, wait_until

import pccl_backend as pccl
from pccl_backend.trainers import DDP, DiLoCo, Observer, OuterStep

KINDS: dict[str, dict[str, Any]] = {
    "blocking": {"every": 2},
    "overlapped": {"every": 4, "overlap": 2},
    "streaming": {"every": 4, "overlap": 1, "fragments": 2},
    "quantized": {"every": 2, "quantize": pccl.quantization.MinMax(bits=4), "error_feedback": True},
    "DDP": {},
}
WAIT_MAX_S = 60.0
STEPS_MAX = 100_000  # a bound for a test that fails


class Diary(Observer):
    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []  # revision, contributors
        self.back: list[str] = []

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        self.steps.append((done.revision, done.contributors))

    def came_back(self, trainer: Any, why: pccl.KickedError) -> None:
        self.back.append(str(why))


def make(kind: str, **options: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
    hidden = 5000 if kind == "quantized" else 50  # small tensors are not quantized
    layers = torch.nn.Linear(4, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trainer = DDP if kind == "DDP" else DiLoCo
    return model, optimizer, trainer(model, optimizer, **KINDS[kind], **options)


def learn(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.rand(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def be_late(there: Path) -> None:
    """Make no call until the others have continued, as this file shows: the lateness under test."""
    assert wait_until(there.exists, timeout_s=WAIT_MAX_S), "the others did not go on"


def train(kind: str, ahead: Path, is_late: bool) -> dict[str, Any]:
    """Train with two others; one may be late."""
    diary = Diary()
    parts = make(kind, url=world.current.init_method, observer=diary)
    return run(*parts, diary, ahead, is_late=is_late, peers=3)


def train_in_host(url: str, ahead: Path) -> dict[str, Any]:
    """Be a process of a host that is late, beside one other peer."""
    enter()
    diary, model, host = Diary(), cut(), dist.group.WORLD
    optimizer = sgd(model)
    outer = DiLoCo(model, optimizer, every=2, url=url, host_group=host, observer=diary)
    return run(model, optimizer, outer, diary, ahead, is_late=True, peers=2)


def train_beside_host(url: str, ahead: Path) -> dict[str, Any]:
    """Train the same model in one process."""
    diary, model = Diary(), torch.nn.Linear(4, 4)
    optimizer = sgd(model)
    outer = DiLoCo(model, optimizer, every=2, url=url, observer=diary)
    return run(model, optimizer, outer, diary, ahead, is_late=False, peers=2)


def run(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    outer: Any,
    diary: Diary,
    ahead: Path,
    *,
    is_late: bool,
    peers: int,
) -> dict[str, Any]:
    """Train until all peers contribute again, after one of them was late.

    The late one waits before its third step until the others have made two without it.
    """
    with outer:
        for _ in range(STEPS_MAX):
            if is_late and len(diary.steps) == 2:
                be_late(ahead)
            learn(model, optimizer)
            if any(contributors == peers - 1 for _, contributors in diary.steps[-2:-1]):
                ahead.touch()
            last = outer.last
            if last is not None and last.revision > 3 and last.contributors == peers:
                break
    assert outer.last is not None
    return {"hash": outer.last.synced.hash, "steps": diary.steps, "back": diary.back}


def is_kicked(ahead: Path) -> str:
    """Be late without `url`: the call raises, and nothing comes back."""
    model, optimizer, outer = make("blocking")
    with expected(pccl.KickedError) as caught, outer:
        for _ in range(2):
            learn(model, optimizer)
        be_late(ahead)
        for _ in range(2):
            learn(model, optimizer)
    return str(caught[0])


def goes_on(ahead: Path) -> None:
    """Train until the late peer was removed."""
    model, optimizer, outer = make("blocking")
    with outer:
        while outer.last is None or not outer.last.left:
            learn(model, optimizer)
        assert pccl.run_info().call_timeout == 3.0
        ahead.touch()
