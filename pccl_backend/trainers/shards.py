"""Shards: the elements of each parameter in this process, if a host's processes share the model.

FSDP2 cuts a parameter into shards, one for each process of a host. The outer state has the names
and shapes of the whole model. Therefore hosts may have different numbers of processes, and a
checkpoint does not depend on these numbers.

A program with such a model has already imported torch's modules for it. This module does not import
them for other programs, because the import takes a second.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from typing import TypeGuard

    from torch.distributed.tensor import DTensor

__all__ = [
    "Shard",
    "check_whole",
    "is_dtensor",
    "local_of",
    "reshard",
    "shard_of",
]


def is_dtensor(tensor: torch.Tensor) -> TypeGuard[DTensor]:
    """Return whether a tensor is cut, or copied, by a mesh of processes."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


@dataclass(frozen=True)
class Shard:
    """The elements of a whole tensor that this process has.

    Attributes:
        slices: one for each dimension.
        writes: whether this process writes the shard into the memory of the host. If several
            processes have the same shard, only the first of them writes it.
    """

    slices: tuple[slice, ...]
    writes: bool

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this shard of a tensor of the whole shape, as a view."""
        return whole[self.slices]


def shard_of(tensor: torch.Tensor, *, leads: bool) -> Shard:
    """Return this process's shard of a parameter or buffer of the model.

    Args:
        tensor: the parameter or buffer.
        leads: whether this process is the first of its host, which writes the uncut tensors.
    """
    if not is_dtensor(tensor):
        return Shard((slice(None),) * tensor.dim(), writes=leads)
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh: Any = tensor.device_mesh
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, tensor.placements)
    slices = tuple(slice(at, at + count) for at, count in zip(offset, shape, strict=True))
    place = mesh.get_coordinate()
    assert place is not None, "the trainer has seen this process in the mesh"
    copies = [at for at, how in zip(place, tensor.placements, strict=True) if how.is_replicate()]
    return Shard(slices, writes=not any(copies))


def reshard(model: torch.nn.Module) -> None:
    """Replace the whole parameters that a model has within a pass by its shards.

    FSDP2 leaves the root of a model whole after a forward pass, until a backward pass. The whole
    parameters are copies: writes to them are lost, and the next pass would not see writes to the
    shards.
    """
    if (fsdp := sys.modules.get("torch.distributed.fsdp")) is None:
        return
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.reshard()


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's shard of a parameter or buffer, to read or to write."""
    tensor = tensor.detach()
    if not is_dtensor(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def check_whole(model: torch.nn.Module) -> None:
    """Check that no parameter is cut between processes.

    Raises:
        ValueError: a parameter is cut.
    """
    for name, tensor in model.named_parameters():
        if is_dtensor(tensor) and tensor.device_mesh.size() > 1:
            raise ValueError(
                f"{name!r} is a DTensor over {tensor.device_mesh.size()} processes, and this "
                "trainer moves whole models: take DiLoCo with host_group=, or set_all_reduce_hook "
                "of FSDP2"
            )
