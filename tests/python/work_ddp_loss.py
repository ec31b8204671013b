"""Run by test_ddp_loss.py: the gradients of a step with the loss of a peer."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from work_ddp import Net, batches
from work_membership import assemble
from world import expected

import pccl_backend as pccl

VICTIM = 2  # the highest rank, so that the survivors keep theirs
WAIT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to use DistributedDataParallel.

    Attributes:
        hook: "pccl", "allreduce" (torch's own, in Python), "" for none.
        buckets: whether the gradients are in several buckets.
        static: static_graph.
        accumulates: each step has a second batch, under no_sync.
        reset: torch's state of the model is reset after the loss.
        first: the first step of the model is the one with the loss.
        dtype: of the model.
    """

    hook: str = "pccl"
    buckets: bool = False
    static: bool = False
    accumulates: bool = False
    reset: bool = False
    first: bool = False
    dtype: torch.dtype = torch.float32

    def model(self) -> DistributedDataParallel:
        torch.manual_seed(0)
        model = DistributedDataParallel(
            Net().to(self.dtype),
            bucket_cap_mb=0.05 if self.buckets else 25,
            static_graph=self.static,
        )
        if self.hook == "pccl":
            model.register_comm_hook(None, pccl.hooks.ddp_hook)
        elif self.hook == "allreduce":
            model.register_comm_hook(None, default_hooks.allreduce_hook)
        return model

    def batches(self, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        chosen = batches(rank)[: 2 if self.accumulates else 1]
        return [(inputs.to(self.dtype), targets.to(self.dtype)) for inputs, targets in chosen]

    def forward(self, model: nn.Module, rank: int) -> torch.Tensor:
        """Run the step up to its last backward pass."""
        model.zero_grad()
        *before, (inputs, targets) = self.batches(rank)
        for early_inputs, early_targets in before:
            if isinstance(model, DistributedDataParallel):
                with model.no_sync():
                    nn.functional.mse_loss(model(early_inputs), early_targets).backward()
            else:
                nn.functional.mse_loss(model(early_inputs), early_targets).backward()
        return nn.functional.mse_loss(model(inputs), targets)

    def mean(self, ranks: range) -> list[torch.Tensor]:
        """Return the mean gradient of these ranks, computed in this process."""
        torch.manual_seed(0)
        model = Net().to(self.dtype)
        sums = [torch.zeros_like(p, dtype=torch.float64) for p in model.parameters()]
        for rank in ranks:
            self.forward(model, rank).backward()
            for total, parameter in zip(sums, model.parameters(), strict=True):
                assert parameter.grad is not None
                total.add_(parameter.grad)
        return [(total / len(ranks)).to(self.dtype) for total in sums]

    def check(self, model: nn.Module, ranks: range, scale: float = 1.0) -> None:
        """Check that the gradients of the model are the mean over `ranks`, times `scale`."""
        tolerance = 2 * torch.finfo(self.dtype).eps
        for parameter, mean in zip(model.parameters(), self.mean(ranks), strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(
                parameter.grad, mean * scale, rtol=tolerance, atol=tolerance * mean.abs().max()
            )


def dies_when_the_others_began(folder: Path) -> None:
    """End this process once all others have called met()."""
    deadline = time.monotonic() + WAIT_S
    while not all((folder / f"rank-{rank}").exists() for rank in range(VICTIM)):
        assert time.monotonic() < deadline
        time.sleep(0.001)  # it asks again at once
    os._exit(9)


def loses_a_peer(variant: Variant, loss: torch.Tensor, model: Net, rank: int, folder: Path) -> None:
    """Run the backward pass. The victim ends when the others have divided their first gradient."""
    if rank == VICTIM:
        dies_when_the_others_began(folder)
    model.last.bias.register_post_accumulate_grad_hook(lambda _: (folder / f"rank-{rank}").touch())
    loss.backward()


def retried(variant: Variant, folder: Path, scale: float) -> None:
    """Under retry, the interrupted step ends without an error; its gradients are checked."""
    assemble(VICTIM + 1)
    rank = dist.get_rank()
    model = variant.model()
    if not variant.first:
        group = dist.group.WORLD
        for _ in range(3):  # the last one has the final buckets
            loss = variant.forward(model, rank)
            before = group._get_sequence_number_for_group()
            loss.backward()
            variant.check(model, range(VICTIM + 1))
        assert (group._get_sequence_number_for_group() - before > 1) == variant.buckets
    loses_a_peer(variant, variant.forward(model, rank), model.module, rank, folder)
    variant.check(model, range(VICTIM), scale)
    variant.forward(model, rank).backward()
    variant.check(model, range(VICTIM))
    assert dist.get_world_size() == VICTIM


def raised(variant: Variant, folder: Path, scale: float) -> None:
    """Under raise, the interrupted step fails; the gradients of its repetition are checked."""
    assemble(VICTIM + 1)
    rank = dist.get_rank()
    model = variant.model()
    if not variant.first:
        for _ in range(3):
            variant.forward(model, rank).backward()
            variant.check(model, range(VICTIM + 1))
    # torch turns an error into text if it passes through a Python callback.
    kind = RuntimeError if variant.hook == "allreduce" else pccl.PeerLostError
    loss = variant.forward(model, rank)
    with expected(kind, "lost"):
        loses_a_peer(variant, loss, model.module, rank, folder)
    assert type(pccl.run_info().last_error) is pccl.PeerLostError
    assert pccl.update_topology().world_size == VICTIM
    if variant.reset:
        model._update_process_group(model.process_group)
    variant.forward(model, rank).backward()
    variant.check(model, range(VICTIM), scale)
    for _ in range(2):
        variant.forward(model, rank).backward()
        variant.check(model, range(VICTIM))
