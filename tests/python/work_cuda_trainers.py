"""Run by test_cuda_trainers.py: trainers of models that say they are on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from fake_cuda import FakeCuda
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from work_cuda import cuda, fake, settle

from pccl_backend.trainers import DDP, DiLoCo

STEPS = 20


class Computes(TorchFunctionMode):
    """Carries out torch's functions on the fake device, on the CPU.

    Every tensor on CUDA has its elements in the memory of the host. A function gets tensors of the
    CPU with the same memory, and its results are put back onto the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0  # calls that had a tensor on the device
        self._alive: list[torch.Tensor] = []  # a view does not keep the memory of its base

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        options = dict(options or {})
        options.pop("pin_memory", None)  # there is no driver that pins
        if function.__name__ in ("__get__", "__set__"):
            return function(*arguments, **options)
        of: dict[int, torch.Tensor] = {}

        def on_host(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_cuda:
                return value
            self._alive.append(value)
            host = FakeCuda.on_host(value)
            of[id(host)] = value
            return host

        mapped = tree_map(on_host, (arguments, options))
        result = function(*mapped[0], **mapped[1])
        self.count += bool(of)
        ours = {id(each) for each in tree_leaves(mapped)}
        stays = of and not goes_to_host(function.__name__, arguments, options)

        def back(value: Any) -> Any:
            if id(value) in of:
                return of[id(value)]
            if stays and isinstance(value, torch.Tensor) and id(value) not in ours:
                return cuda(value)
            return value

        return tree_map(back, result)


def goes_to_host(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Return whether a function moves a tensor of the device to the CPU."""
    if name == "cpu":
        return True
    devices = [options.get("device"), *arguments[1:]] if name == "to" else [options.get("device")]
    return any(str(each) == "cpu" for each in devices if isinstance(each, str | torch.device))


def model_of(put: Callable[[torch.Tensor], torch.Tensor], last: int) -> torch.nn.Module:
    """Return a model of several dtypes and `last` outputs, whose tensors `put` places."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, last).bfloat16()
    )
    for module in model:
        for name, parameter in list(module.named_parameters()):
            setattr(module, name, torch.nn.Parameter(put(parameter.detach().clone())))
        for name, buffer in list(module.named_buffers()):
            setattr(module, name, put(buffer.clone()))
    return model


def trained(
    put: Callable[[torch.Tensor], torch.Tensor], options: dict[str, Any]
) -> tuple[dict[int, int], bytes]:
    """Train with gradients from a seed; return the hashes and the bytes of the parameters.

    `options` are of DiLoCo; "wide" asks for a model that is not too small to be quantized, "moves"
    for one that begins on the CPU.
    """
    options = dict(options)
    moves = options.pop("moves", False)
    model = model_of(stay if moves else put, 5000 if options.pop("wide", False) else 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    outer: Any
    if "ddp" in options:
        outer = DDP(model, optimizer)
    else:
        outer = DiLoCo(model, optimizer, every=4, **options)
    chance = torch.Generator().manual_seed(dist.get_rank())
    hashes, sent = {}, {}
    with outer:
        for step in range(STEPS):
            if moves and step == STEPS // 2:
                move(model, optimizer, put)
                moves = False
            place = stay if moves else put
            for parameter in model.parameters():
                gradient = torch.randn(parameter.shape, generator=chance).to(parameter.dtype)
                parameter.grad = place(gradient)
            with torch.no_grad():
                model[1].running_mean.add_(place(torch.randn(7, generator=chance)))
                model[1].num_batches_tracked.add_(1)
            optimizer.step()
            if outer.last is not None:
                hashes[outer.last.revision] = outer.last.synced.hash
                sent[outer.last.revision] = outer.last.sent_bytes
    if "quantize" in options:
        elements = sum(parameter.numel() for parameter in model.parameters())
        assert 0 < max(sent.values()) < 2 * elements, "something was not quantized"
    values = [value.detach().to("cpu") for value in model.state_dict().values()]
    return hashes, b"".join(
        v.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for v in values
    )


def stay(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def move(model: torch.nn.Module, optimizer: torch.optim.Optimizer, put: Any) -> None:
    """Bring a model and its optimizer to another device, as `model.to` does."""
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            parameter.grad, parameter.data = None, put(parameter.data)
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, put(buffer))
    for state in optimizer.state.values():
        state["momentum_buffer"] = put(state["momentum_buffer"])


def on_the_host(options: dict[str, Any]) -> tuple[dict[int, int], bytes]:
    return trained(stay, options)


def on_a_device(options: dict[str, Any]) -> tuple[dict[int, int], bytes]:
    device = fake()
    with Computes() as computes:
        results = trained(cuda, options)
    assert computes.count > 10 * STEPS, "the model was on the device"
    settle(device)
    dist.barrier()  # rank 0 hosts the master
    return results
