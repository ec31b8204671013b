"""What can go wrong that is not the caller's own mistake: one class per thing one can do about it.

All derive from `PcclError`, which is a `torch.distributed.DistBackendError` and with that a
`RuntimeError`. Wrong arguments raise `ValueError` or `TypeError`, what the operating system refuses
raises `OSError`, and a collective that pccl does not have raises `NotImplementedError`.

Messages say what happened, to whom, in which operation, and what to do next.
"""

from torch.distributed import DistBackendError

__all__ = [
    "AuthenticationError",
    "CollectiveMismatchError",
    "InvalidStateError",
    "KickedError",
    "MasterLostError",
    "MembershipChangedError",
    "OperationTimeoutError",
    "PcclError",
    "PeerLostError",
    "SharedStateError",
    "TooFewPeersError",
    "TopologyError",
]


class PcclError(DistBackendError):
    """Base of all errors of a run.

    Raised itself when another side breaks the protocol, or speaks another version of it.
    """


class PeerLostError(PcclError):
    """A member of the group was lost.

    The operation failed alike on all survivors, and an all-reduce has left its tensor as it was.
    Every further call fails with this error until the process calls `update_topology`; then repeat
    the operation.
    """


class TooFewPeersError(PcclError):
    """The group had fewer than `min_peers` members for longer than its timeout."""


class MembershipChangedError(PcclError):
    """An `update_topology` ended this operation: not every member had called it. Call it again."""


class CollectiveMismatchError(PcclError):
    """Ranks called different things under one number: another operation, dtype, size or reduce op.

    The message shows each variant with its ranks. It is a bug of the program; the group goes on.
    """


class OperationTimeoutError(PcclError):
    """Not all members took part in time. The message names who is missing, the same on all ranks.

    Also raised by `Work.wait(timeout)`, which ends the waiting and not the operation, and says so.
    """


class InvalidStateError(PcclError):
    """A call out of turn.

    After leaving, in a forked child, or a second joint call while one is under way.
    """


class SharedStateError(PcclError):
    """The shared state could not be agreed on or transferred, and no tensor was written.

    The message says what differs.
    """


class MasterLostError(PcclError):
    """The master could not be reached for `PCCL_MASTER_TIMEOUT`: this peer is out of the run."""


class KickedError(PcclError):
    """The others went on without this peer, silent for `PCCL_PEER_TIMEOUT`. Join again."""


class AuthenticationError(PcclError):
    """The master refused this peer's credentials."""


class TopologyError(PcclError):
    """No ring could be formed of the peers that are there."""
