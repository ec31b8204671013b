"""Communication hooks for DistributedDataParallel, whose gradients a loss does not make smaller.

torch looks at the hook's annotations, and they must be the classes themselves. Therefore this
module does not import `annotations` from __future__.
"""

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from pccl_backend import _C, api
from pccl_backend.feedback import ErrorFeedback
from pccl_backend.quantization import Format

__all__ = ["QuantizeState", "ddp_hook", "quantize_hook"]


def ddp_hook(
    group: dist.ProcessGroup | None, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients over the members that take part.

    Without a hook, DistributedDataParallel divides the gradients by the world size, and then adds
    them. If a member is lost in between, and the survivors repeat the sum
    (PCCL_ON_PEER_LOSS=retry), the divisor is too large. This hook divides after the sum, by the
    number of members in it.

    An error of the run comes out of `backward()` with its own class, such as `PeerLostError`.

    Args:
        group: the process group of the model; None is the default group.
        bucket: the gradients, from torch.

    Returns:
        A future of the averaged gradients.

    Example:
        >>> model = DistributedDataParallel(net)
        >>> model.register_comm_hook(None, pccl.ddp_hook)
    """
    gradients = bucket.buffer()
    work = api.all_reduce(gradients, "avg", group=group, async_op=True)
    return _C.gradient_work(work, gradients).get_future()


class QuantizeState:
    """The state of `quantize_hook`: one for each model.

    Args:
        format: `MinMax(...)` or `BFloat16()`.
        error_feedback: what the format loses of a bucket is added to the same bucket in the next
            step (`pccl.ErrorFeedback`). It costs a float32 for each gradient.
        group: the process group of the model; None is the default group.

    Raises:
        TypeError: it is no format, or `error_feedback` is no bool.

    Example:
        >>> state = pccl.QuantizeState(pccl.MinMax(bits=4))
        >>> model.register_comm_hook(state, pccl.quantize_hook)
    """

    def __init__(
        self,
        format: Format,
        *,
        error_feedback: bool = True,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        ErrorFeedback(format)  # checks the format
        if not isinstance(error_feedback, bool):
            raise TypeError(f"error_feedback must be a bool, not {type(error_feedback).__name__}")
        self.format = format
        self.error_feedback = error_feedback
        self.group = group
        self._buckets: dict[int, tuple[torch.Size, ErrorFeedback]] = {}

    def compensate(self, index: int, gradients: torch.Tensor) -> None:
        """Apply the error feedback of a bucket. After its first step torch cuts other buckets."""
        if not self.error_feedback:
            return
        shape, feedback = self._buckets.get(index, (None, None))
        if feedback is None or shape != gradients.shape:
            feedback = ErrorFeedback(self.format, group=self.group)
            self._buckets[index] = (gradients.shape, feedback)
        feedback.compensate(gradients)


def quantize_hook(state: QuantizeState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients like `ddp_hook`, but quantized.

    Args:
        state: the format, and what it has lost so far.
        bucket: the gradients, from torch.

    Returns:
        A future of the averaged gradients.

    Example:
        >>> model = DistributedDataParallel(net)
        >>> state = pccl.QuantizeState(pccl.MinMax(bits=8))
        >>> model.register_comm_hook(state, pccl.quantize_hook)
    """
    gradients = bucket.buffer()
    state.compensate(bucket.index(), gradients)
    work = api.all_reduce(gradients, "avg", group=state.group, quantize=state.format, async_op=True)
    return _C.gradient_work(work, gradients).get_future()
