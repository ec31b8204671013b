"""Run by test_drift.py: one peer computes other bits than the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from reference import make_model

import pccl_backend as pccl
from pccl_backend.state_sync import SyncInfo
from pccl_backend.trainers import DDP, DiLoCo, Observer, OuterStep

FAULTY = 1  # the rank of the faulty peer
STEPS = 9  # outer steps
EVERY = 3


class Faulty(torch.optim.Optimizer):
    """Plain gradient descent. With `flips`, each step ends with the lowest bit of one value wrong.

    All peers have this class, because the trainers compare optimizers by their names.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], *, lr: float, flips: bool) -> None:
        super().__init__(parameters, {"lr": lr})
        self._flips = flips

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        if closure is not None:
            with torch.enable_grad():
                closure()
        (group,) = self.param_groups
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=group["lr"])
        if self._flips:
            group["params"][0].view(torch.int32).view(-1)[0] ^= 1


class Witness(Observer):
    """Keeps the records of all outer steps, and the outcomes of all syncs."""

    def __init__(self) -> None:
        self.steps: list[OuterStep] = []
        self.infos: list[SyncInfo] = []

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        self.steps.append(done)

    def state_synced(self, trainer: Any, info: SyncInfo) -> None:
        self.infos.append(info)


def train(kind: str, faulty: bool) -> dict[str, Any]:
    """Train for some outer steps; return losses, corrections by outer step, and drifts."""
    flips = faulty and dist.get_rank() == FAULTY
    model, witness = make_model(), Witness()
    data = torch.Generator().manual_seed(dist.get_rank())
    if kind == "ddp":
        optimizer: torch.optim.Optimizer = Faulty(model.parameters(), lr=0.05, flips=flips)
        outer: Any = DDP(model, optimizer, observer=witness)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        outer = DiLoCo(
            model,
            optimizer,
            every=EVERY,
            outer_optimizer=lambda flats: Faulty(flats, lr=0.7, flips=flips),
            observer=witness,
        )
    losses: list[float] = []
    with outer:
        while outer.last is None or outer.last.revision < STEPS:
            x = torch.randn(16, 8, generator=data)
            loss = (model(x) - torch.sin(2 * x)).square().mean()
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return {
        "losses": losses,
        "corrections": [done.corrections for done in witness.steps],
        "drifts": [info.corrected for info in witness.infos if info.drifted],
    }


def shares_a_state() -> None:
    """Go through all cases of a correction with a state of the program's own."""
    last = dist.get_rank() == 2
    weight, bias = torch.zeros(4), torch.zeros(2)
    progress = torch.zeros(4, dtype=torch.int64)
    state = pccl.SharedState({"weight": weight, "bias": bias, "progress": progress})

    def sync(*, step: bool = True, wrong: Iterable[torch.Tensor] = (), **options: Any) -> Any:
        """Take a step; on the last rank these tensors get a wrong value."""
        state.revision += step
        for tensor in (weight, bias, progress):
            tensor.add_(1)
        for tensor in wrong if last else ():
            tensor.add_(5)
        result = pccl.sync_shared_state(state, **options)
        info = result.wait() if options.get("async_op") else result
        assert info.revision == state.revision
        return info.corrected, info.drifted

    nothing = (), False
    assert sync(step=False, wrong=[weight]) == ((("weight",), False) if last else nothing)
    assert sync() == nothing
    assert sync(wrong=[weight, bias]) == ((("bias", "weight"), True) if last else nothing)
    assert sync(wrong=[bias], async_op=True) == ((("bias",), True) if last else nothing)
    assert sync(wrong=[progress]) == ((("progress",), False) if last else nothing)
    strategy = "receive_only" if last else "enforce_popular"
    expected = (("weight",), False) if last else nothing
    assert sync(wrong=[weight], strategy=strategy) == expected
    missed = not last
    assert sync(step=missed, wrong=[bias]) == ((("bias",), False) if last else nothing)
    assert sync() == nothing
