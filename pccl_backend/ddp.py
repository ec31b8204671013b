"""A communication hook for DistributedDataParallel, whose gradients a loss does not make smaller.

torch looks at the hook's annotations, and they must be the classes themselves. Therefore this
module does not import `annotations` from __future__.
"""

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from pccl_backend import _C, api

__all__ = ["ddp_hook"]


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
