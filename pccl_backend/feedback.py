"""Error feedback: what a format loses of a tensor in one round is added to the tensor of the next.

So the errors of many rounds do not add up. The state belongs to one member: it never travels, it
stays with its member when another one is lost, and a newcomer begins with zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from pccl_backend._torch import world
from pccl_backend.quantization import Format, check_feedback, check_tensor, quantize_dequantize

__all__ = ["ErrorFeedback", "is_quantized", "loss_of"]


def is_quantized(tensor: torch.Tensor, group: dist.ProcessGroup | None) -> bool:
    """Return whether an all-reduce of this tensor in this group can be quantized. Not joint."""
    info = world.resolve(group).run_info()
    large = tensor.numel() * tensor.element_size() > info["one_shot_bytes"]
    return bool(info["world_size"] > 1 and large)


def loss_of(tensor: torch.Tensor, format: Format) -> torch.Tensor:
    """Return what the format loses of the tensor, in float32; zero where that is not finite."""
    decoded = quantize_dequantize(tensor, format)
    lost = tensor.to(torch.float32, copy=True).sub_(decoded)
    return lost.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


class ErrorFeedback:
    """The error that quantizing one tensor has left at one member so far.

    Small tensors, and those of a member that is alone, are not quantized and lose nothing.

    Args:
        format: `MinMax(...)` or `BFloat16()`, as in the all-reduces.
        group: the process group of the all-reduces.

    Raises:
        ValueError: the format rounds at random.
        TypeError: it is no format.

    Example:
        >>> q = pccl.MinMax(bits=4)
        >>> feedback = pccl.ErrorFeedback(q)
        >>> for gradient in gradients:
        ...     feedback.compensate(gradient)
        ...     pccl.all_reduce(gradient, op="avg", quantize=q)
    """

    def __init__(self, format: Format, *, group: dist.ProcessGroup | None = None) -> None:
        check_feedback(format)
        self.format = format
        self._group = group
        self._residual: torch.Tensor | None = None

    @torch.no_grad()
    def compensate(self, tensor: torch.Tensor) -> None:
        """Add what was lost before, and remember what an all-reduce will lose now.

        Call it once before each all-reduce of the tensor. If the all-reduce fails, the tensor is as
        this call has left it, so it can be reduced again.

        Args:
            tensor: float32, float16 or bfloat16, changed in place. Each time of the same shape.

        Raises:
            ValueError: a tensor of another dtype, or of another shape than before.
            TypeError: it is no tensor.
        """
        check_tensor(tensor, self.format)
        before = self._residual
        if before is not None:
            before = before.to(tensor.device)  # a checkpoint may have been read on another one
            if before.shape != tensor.shape:
                raise ValueError(
                    f"a tensor of shape {tuple(tensor.shape)}, and before it was "
                    f"{tuple(before.shape)}: give each tensor an ErrorFeedback of its own, or call "
                    "reset()"
                )
            exact = before + tensor
            tensor.copy_(exact)
            rounded_off = exact.sub_(tensor).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        if is_quantized(tensor, self._group):
            self._residual = loss_of(tensor, self.format)
        elif before is not None:
            self._residual = torch.zeros_like(before)
        if before is not None:
            assert self._residual is not None, "it was set above"
            self._residual.add_(rounded_off)

    def reset(self) -> None:
        """Forget what was lost, for example when the tensor is another one now."""
        self._residual = None

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return what was lost, for a checkpoint of this member; empty before the first round."""
        return {} if self._residual is None else {"residual": self._residual}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from what `state_dict` has returned."""
        residual = state.get("residual")
        self._residual = None if residual is None else residual.to(torch.float32, copy=True)
