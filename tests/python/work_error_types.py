"""Run by test_error_types.py: the class of an error, in each way that it can arrive."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from work_membership import assemble
from world import expected

import pccl_backend as pccl

Way = Callable[[], object]


def ones() -> torch.Tensor:
    return torch.ones(4)


def posted() -> Any:
    work = dist.all_reduce(ones(), async_op=True)
    assert work is not None
    return work


def point_to_point() -> None:
    other = 1 - dist.get_rank()
    sends = [dist.P2POp(dist.isend, ones(), other), dist.P2POp(dist.irecv, ones(), other)]
    for work in dist.batch_isend_irecv(sends):
        work.wait()


def coalesced() -> None:
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(ones())
        dist.all_reduce(ones())
    manager.wait()


def gradient_hook() -> None:
    layer = nn.Linear(4, 4)
    layer.weight.register_post_accumulate_grad_hook(lambda weight: dist.all_reduce(weight.grad))
    layer(ones()).sum().backward()


def backward_of_a_collective() -> None:
    scaled = ones().requires_grad_()
    differentiable.all_reduce(scaled).sum().backward()


def reduced(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor + 1


def functionally_reduced(tensor: torch.Tensor) -> torch.Tensor:
    return functional.all_reduce(tensor, "sum", dist.group.WORLD) + 1


def backward_with(hook: Any) -> Way:
    """Return a backward pass of DistributedDataParallel, made once, with this hook."""
    model = DistributedDataParallel(nn.Linear(4, 4), init_sync=False, find_unused_parameters=True)
    if hook is not None:
        model.register_comm_hook(None, hook)
    return lambda: model(ones()).sum().backward()


def keeping() -> dict[str, Way]:
    """Return the ways of arrival that keep the class of an error."""
    compiled = torch.compile(reduced, backend="aot_eager", fullgraph=True)
    compiled_functional = torch.compile(functionally_reduced, backend="aot_eager", fullgraph=True)
    return {
        "synchronous": lambda: dist.all_reduce(ones()),
        "wait": lambda: posted().wait(),
        "pccl.all_reduce": lambda: pccl.all_reduce(ones(), tag="t"),
        "barrier": dist.barrier,
        "objects": lambda: dist.all_gather_object([None, None], 1),
        "point to point": point_to_point,
        "coalescing manager": coalesced,
        "future.wait": lambda: posted().get_future().wait(),
        "wait_all": lambda: torch.futures.wait_all([posted().get_future()]),
        "collect_all": lambda: torch.futures.collect_all([posted().get_future()]).wait(),
        "functional": lambda: functional.wait_tensor(
            functional.all_reduce(ones(), "sum", dist.group.WORLD)
        ),
        "functional, waits by itself": lambda: functionally_reduced(ones()),
        "differentiable": backward_of_a_collective,
        "compiled": lambda: compiled(ones()),
        "compiled functional": lambda: compiled_functional(ones()),
        "gradient hook": gradient_hook,
        "DDP": backward_with(None),
        "DDP with pccl.hooks.ddp_hook": backward_with(pccl.hooks.ddp_hook),
    }


def losing() -> dict[str, Way]:
    """Return the ways of arrival that turn an error into text: Python callbacks of a future."""
    return {
        "then": lambda: posted().get_future().then(lambda future: future.value()).wait(),
        "DDP with a hook of torch": backward_with(default_hooks.allreduce_hook),
        "DDP with fp16_compress_hook": backward_with(default_hooks.fp16_compress_hook),
    }


def after_a_loss(folder: Path) -> None:
    """Each way works with two ranks; the same way then reports the loss of one."""
    assemble(2)
    kept, lost = keeping(), losing()
    for way in [*kept.values(), *lost.values()]:
        way()
    assert pccl.run_info().last_error is None
    if dist.get_rank() == 1:
        deadline = time.monotonic() + 20
        while not (folder / "posted").exists():
            assert time.monotonic() < deadline
            time.sleep(0.001)  # it asks again at once
        os._exit(9)
    work = posted()
    future, collected = work.get_future(), torch.futures.collect_all([work.get_future()])
    chained = future.then(lambda future: future.value())
    (folder / "posted").touch()
    # Posted before the loss: the error arrives while they wait.
    kept |= {
        "waiting": work.wait,
        "waiting future": future.wait,
        "value": future.value,
        "waiting collect_all": collected.wait,
        "an element of collect_all": lambda: torch.futures.wait_all(collected.value()),
    }
    for name, way in kept.items():
        try:
            with expected(pccl.PcclError, "lost") as raised:
                way()
        except BaseException as error:
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
        assert type(raised[0]) is pccl.PeerLostError, name
    for name, way in {**lost, "waiting then": chained.wait}.items():
        with expected(RuntimeError, "PeerLostError", "lost") as raised:
            way()
        assert type(raised[0]) is RuntimeError, f"{name}: torch now keeps it: see docs/errors.md"
        assert type(pccl.run_info().last_error) is pccl.PeerLostError, name
    # Some of these ways leave a second operation alone when the first one fails. This one ends
    # after all of those.
    with expected(pccl.PeerLostError, "lost"):
        dist.all_reduce(ones())
    pccl.update_topology()
    assert pccl.run_info().last_error is None
    dist.all_reduce(ones())


def after_mismatches() -> None:
    """The last error is the latest one, and stays until the topology is updated."""
    assemble(2)
    for size in (10, 20):
        work = dist.all_reduce(torch.ones(size + dist.get_rank()), async_op=True)
        assert work is not None
        with expected(RuntimeError, "CollectiveMismatchError") as raised:
            work.get_future().then(lambda future: future.value()).wait()
        error = pccl.run_info(dist.group.WORLD).last_error
        assert type(error) is pccl.CollectiveMismatchError, error
        assert str(error) in str(raised[0])
        assert f"{size} elements" in str(error)
        dist.all_reduce(ones())
        assert str(pccl.run_info().last_error) == str(error), "a success does not change it"
    dist.barrier()
    pccl.update_topology()
    assert pccl.run_info().last_error is None
