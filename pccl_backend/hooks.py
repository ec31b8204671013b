"""Communication hooks for torch's DistributedDataParallel.

Without one of these hooks, the loss of a peer makes the gradients of a step smaller.

torch looks at the hook's annotations, and they must be the classes themselves. Therefore this
module does not import `annotations` from __future__.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from pccl_backend import _C, api
from pccl_backend.quantization import ErrorFeedback, Format, check_feedback, required_numbers

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
        >>> model.register_comm_hook(None, ddp_hook)
    """
    gradients = _gradients(bucket)
    work = api.all_reduce(gradients, "avg", group=group, async_op=True)
    return _C.gradient_work(work, gradients).get_future()


def _gradients(bucket: GradBucket) -> torch.Tensor:
    if not isinstance(bucket, GradBucket):
        raise TypeError(
            "a hook is for model.register_comm_hook(state, hook): torch gives it a GradBucket, not "
            f"{type(bucket).__name__}"
        )
    return bucket.buffer()


@dataclass
class _Bucket:
    """A bucket of gradients, as it was in its last step.

    Attributes:
        parameters: the parameters whose gradients are in the bucket, by their identities in this
            process.
        shapes: the shapes of these parameters, in the same order.
    """

    parameters: tuple[int, ...]
    shapes: list[list[int]]
    feedback: ErrorFeedback


class QuantizeState:
    """The state of `quantize_hook`: one for each model.

    Args:
        format: `MinMax(...)` or `BFloat16()`.
        error_feedback: the loss of the format in a bucket is added to the same bucket in the next
            step (`ErrorFeedback`). It costs a float32 for each gradient.
        group: the process group of the model; None is the default group.

    Raises:
        ValueError: error feedback with a format that rounds at random.
        TypeError: it is no format, or `error_feedback` is no bool.

    Example:
        >>> state = QuantizeState(MinMax(bits=4))
        >>> model.register_comm_hook(state, quantize_hook)
        >>> torch.save(state.state_dict(), f"feedback-{name}.pt")  # a file for each member
    """

    def __init__(
        self,
        format: Format,
        *,
        error_feedback: bool = True,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        required_numbers(format)
        if not isinstance(error_feedback, bool):
            raise TypeError(f"error_feedback must be a bool, not {type(error_feedback).__name__}")
        if error_feedback:
            check_feedback(format)
        self.format = format
        self.error_feedback = error_feedback
        self.group = group
        self._buckets: dict[int, _Bucket] = {}
        self._loaded: dict[int, tuple[list[list[int]], torch.Tensor]] = {}

    def compensate(self, bucket: GradBucket) -> None:
        """Apply the error feedback of a bucket.

        After its first step, torch cuts the gradients into different buckets: they begin without
        residuals, or with loaded ones.
        """
        if not self.error_feedback:
            return
        parameters = bucket.parameters()
        identities = tuple(id(parameter) for parameter in parameters)
        index = bucket.index()
        known = self._buckets.get(index)
        if known is None or known.parameters != identities:
            shapes = [list(parameter.shape) for parameter in parameters]
            feedback = ErrorFeedback(self.format, group=self.group)
            loaded = self._loaded.get(index)
            if loaded is not None and loaded[0] == shapes:
                feedback.load_state_dict({"residual": loaded[1]})
            if known is not None or (loaded is not None and loaded[0] == shapes):
                self._loaded.pop(index, None)  # kept in the first step, which may cut others
            known = self._buckets[index] = _Bucket(identities, shapes, feedback)
        known.feedback.compensate(bucket.buffer())

    def state_dict(self) -> dict[str, Any]:
        """Return the residuals of this member, for a checkpoint of its own.

        Load each checkpoint in one member at most, because a residual must be sent only once.

        Returns:
            A dict with "format" and "buckets". Each of torch's buckets that have lost something is
            there with its "index", the "shapes" of its parameters, and its "residual", a float32
            for each gradient in it.
        """
        found = {
            index: (bucket.shapes, bucket.feedback.state_dict()["residual"])
            for index, bucket in self._buckets.items()
            if bucket.feedback.state_dict()
        }
        return {
            "format": repr(self.format),
            "buckets": [
                {"index": index, "shapes": shapes, "residual": residual}
                for index, (shapes, residual) in sorted((found | self._loaded).items())
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`; the residuals here are replaced.

        A bucket continues with its residual once its parameters have the same shapes as before.
        This can be in the second step, because torch cuts its final buckets then. The residuals of
        buckets that are different now are dropped: the rounding of one step is lost.

        Args:
            state: from a `QuantizeState` with the same format, with error feedback.

        Raises:
            ValueError: it is from another format or is damaged, or this state has no error
                feedback. Nothing has changed then.
            TypeError: it is no dict.
        """
        if not self.error_feedback:
            raise ValueError(
                "this QuantizeState has error_feedback=False, so there is nothing to load"
            )
        if not isinstance(state, Mapping):
            raise TypeError(f"the state must be a dict, not {type(state).__name__}")
        if state.get("format") != repr(self.format):
            raise ValueError(
                f"the state is of {state.get('format')}, and this QuantizeState has "
                f"{self.format!r}: a residual goes with the format that has left it"
            )
        loaded = {}
        for entry in state.get("buckets", ()):
            index, shapes, residual = _checked(entry)
            loaded[index] = (shapes, residual)
        self._loaded = loaded
        self._buckets.clear()


def _checked(entry: Mapping[str, Any]) -> tuple[int, list[list[int]], torch.Tensor]:
    """Return the parts of a bucket in a state.

    Raises:
        ValueError: it is damaged.
    """
    index, shapes, residual = (entry.get(name) for name in ("index", "shapes", "residual"))
    if type(index) is not int or index < 0 or not isinstance(shapes, list):
        raise ValueError(f"a bucket of the state has index {index!r} and shapes {shapes!r}")
    if not isinstance(residual, torch.Tensor) or residual.dtype != torch.float32:
        kind = getattr(residual, "dtype", type(residual).__name__)
        raise ValueError(f"the residual of bucket {index} must be a float32 tensor, not {kind}")
    count = sum(torch.Size(shape).numel() for shape in shapes)
    if residual.shape != (count,):
        raise ValueError(
            f"the residual of bucket {index} has the shape {tuple(residual.shape)}, and its "
            f"parameters have {count} elements"
        )
    if not bool(residual.isfinite().all()):
        raise ValueError(f"the residual of bucket {index} has numbers that are not finite")
    return index, [list(shape) for shape in shapes], residual


def quantize_hook(state: QuantizeState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients like `ddp_hook`, but quantized.

    Args:
        state: the format, and the residuals so far.
        bucket: the gradients, from torch.

    Returns:
        A future of the averaged gradients.

    Example:
        >>> model = DistributedDataParallel(net)
        >>> state = QuantizeState(MinMax(bits=8))
        >>> model.register_comm_hook(state, quantize_hook)
    """
    gradients = _gradients(bucket)
    if not isinstance(state, QuantizeState):
        raise TypeError(
            f"the state of quantize_hook is a QuantizeState, not {type(state).__name__}"
        )
    state.compensate(bucket)
    work = api.all_reduce(gradients, "avg", group=state.group, quantize=state.format, async_op=True)
    return _C.gradient_work(work, gradients).get_future()
