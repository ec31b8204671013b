"""The errors that are not the caller's own mistake: one class per possible reaction.

All classes derive from `PcclError`, which is a `torch.distributed.DistBackendError` and therefore a
`RuntimeError`. Invalid arguments raise `ValueError` or `TypeError`, a refusal by the operating
system raises `OSError`, and a collective that pccl does not have raises `NotImplementedError`.

A message gives the fault, the peer, the operation and the next step.
"""

from torch.distributed import DistBackendError

__all__ = [
    "AuthenticationError",
    "CollectiveMismatchError",
    "HostLostError",
    "InvalidStateError",
    "KickedError",
    "MasterLostError",
    "MembershipChangedError",
    "OperationTimeoutError",
    "OutOfRunError",
    "PcclError",
    "PeerLostError",
    "SharedStateError",
    "TooFewPeersError",
    "TopologyError",
]


class PcclError(DistBackendError):
    """Base of all errors of a run.

    Raised as this class itself if a peer or the master breaks the protocol, or uses another version
    of the protocol.
    """


class PeerLostError(PcclError):
    """A member of the group was lost.

    The operation failed on all survivors alike, and an all-reduce has left its tensor as it was.
    Every further call fails with this error until the process calls `update_topology`. After that
    call, repeat the operation.
    """


class TooFewPeersError(PcclError):
    """The group had fewer than `min_peers` members for longer than its timeout."""


class MembershipChangedError(PcclError):
    """An `update_topology` ended this operation: not all members had called it. Call it again."""


class CollectiveMismatchError(PcclError):
    """Ranks called different operations under one number: kind, dtype, size or reduce op differ.

    The message shows each variant with its ranks. The program has a bug; the group continues.
    """


class OperationTimeoutError(PcclError):
    """Not all members took part in time. The message names the missing ones, the same on all ranks.

    `Work.wait(timeout)` raises it too. In that case only the waiting ends, not the operation, and
    the message states that. Without a timeout, and with `timedelta(0)`, `wait` has no limit.
    """


class InvalidStateError(PcclError):
    """A call at the wrong time.

    Examples: after leaving, in a forked child, or a second joint call while one is under way.
    """


class SharedStateError(PcclError):
    """The members could not agree on the shared state, or a transfer failed; no tensor was written.

    The message names the difference.
    """


class OutOfRunError(PcclError):
    """Base of the errors that mean: this peer is out of the run.

    Every further call of the group fails, too. Leave the group (`dist.destroy_process_group`), and
    join again: this process is a newcomer then.
    """


class KickedError(OutOfRunError):
    """The others continued without this peer. The message has the reason.

    For example, the peer was silent for `PCCL_PEER_TIMEOUT`, or made no call for
    `PCCL_CALL_TIMEOUT` while the others waited for it.
    """


class MasterLostError(OutOfRunError):
    """The master could not be reached for `PCCL_MASTER_TIMEOUT`.

    Raised within two seconds if the process of rank 0, which hosted the master, has ended: the run
    is over.
    """


class HostLostError(OutOfRunError):
    """Another process of a trainer's `host_group` is gone, and the host has left the run.

    End the processes of the host, and start them again: they join as a newcomer.
    """


class AuthenticationError(PcclError):
    """This peer has no valid token, or the master has not proven that it knows the token."""


class TopologyError(PcclError):
    """The master found no plan for the network in time. The present plan stays in use."""
