"""ProcessGroupPccl: the process group of a torchft Manager, over one world of pccl after another.

torchft calls `configure` with the members of each quorum and a store in which they can meet. Rank 0
of the quorum then hosts a run with exactly these members, as rank 0 of a torchrun does. torchft
alone decides about membership: a world that has lost a member fails all further calls, until the
next `configure` founds another one.

The group of the old world leaves in a thread of its own, because that takes up to two seconds.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from torch._C._distributed_c10d import Store
from torchft.process_group import ProcessGroupWrapper

from pccl_backend import _C
from pccl_backend._torch import devices
from pccl_backend._torch.hosted_world import Founding, found_world, store_host
from pccl_backend.errors import InvalidStateError

__all__ = ["ProcessGroupPccl"]

_NOT_YET = "process group not initialized: torchft's Manager calls configure() first"
_ABORTED = "process group not initialized: it was aborted; the next configure() makes it usable"
_ENDED = "process group not initialized: it was shut down"


class ProcessGroupPccl(ProcessGroupWrapper):
    """A process group for torchft's Manager, in place of ProcessGroupGloo.

    It takes dense tensors on the CPU and on CUDA devices, of any shape and of the dtypes that the
    collectives of pccl take. If a replica is lost, the call under way fails on all others alike,
    and an all-reduce leaves its tensor as it was. `errored` then returns the error, so that torchft
    drops the step and calls `configure` again.

    The environment variables of pccl apply, except PCCL_ON_PEER_LOSS: a sum over fewer replicas
    than torchft divides by would be wrong, so a loss is always an error.

    Args:
        timeout: limit for each operation, and for `configure`, which may take it twice.

    Raises:
        ValueError: the timeout is zero or negative.

    Example:
        >>> manager = Manager(pg=ProcessGroupPccl(timeout=timedelta(seconds=30)), ...)
    """

    _pg: _C.PcclGroup | None
    _failure: Exception | None

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        _C.checked_timeout(timeout.total_seconds())
        super().__init__(timeout)
        self._exchange = threading.Lock()  # of the group
        self._unusable, self._failure = _NOT_YET, None  # while there is no group

    def getBackendName(self) -> str:  # noqa: N802
        return "torchft-pccl"

    def _create_pg(self, store: Store, rank: int, world_size: int) -> _C.PcclGroup:
        """Found the world of a quorum; `configure` of torchft calls this.

        Raises:
            TooFewPeersError: not all members of the quorum came within the timeout.
            PcclError, ValueError, OSError: as `found_world`.
        """
        founding = Founding(
            store=store,
            rank=rank,
            size=world_size,
            timeout=self._timeout,
            name=f"torchft quorum {self._quorum_id}",
            store_host=store_host(store),
            from_launcher=False,  # its variables describe the replica, not the quorum
            on_peer_loss="raise",
        )
        try:
            group = found_world(founding)
        except Exception as error:
            self._failure = error
            self._unusable = f"process group not initialized: configure() failed: {error}"
            raise
        group.serve(devices.ALL)
        self._failure = None
        return group

    def abort(self, errored: bool = True) -> None:
        """End the calls under way with an error, and leave the world, without waiting.

        A second abort before the next `configure` does nothing: `errored` keeps the first reason. A
        `configure` under way in another thread is not ended; it has its timeout.

        Args:
            errored: False for an end that is no error: torchft begins a `configure` so.
        """
        with self._exchange:
            group, self._pg = self._pg, None
        if group is None:
            return
        self._unusable = _ABORTED
        if errored:
            self._failure = InvalidStateError(_ABORTED)
            super().abort(errored=True)  # without a group, it only writes torchft's log
        threading.Thread(target=group.shutdown, name="pccl leaves a quorum").start()

    def shutdown(self) -> None:
        """Leave the world, without waiting. `configure` may be called again."""
        self.abort(errored=False)
        self._unusable = _ENDED

    def errored(self) -> Exception | None:
        """Return the error that makes the next `configure` necessary, or None.

        That is the latest error of a call in this world, for example a PeerLostError; the reason
        why `configure` failed; or, after `abort`, an InvalidStateError.
        """
        group = self._pg
        if group is None:
            return self._failure
        try:
            group.raise_last_error()
        except Exception as error:  # noqa: BLE001
            return error
        return None

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the limit for `configure` and for later operations.

        With torch before 2.15, the present world keeps its limit.

        Raises:
            ValueError: the timeout is zero or negative.
        """
        _C.checked_timeout(timeout.total_seconds())
        super().set_timeout(timeout)
        group = self._pg
        if group is not None and hasattr(group, "set_timeout"):
            group.set_timeout(timeout)

    @property
    def parent(self) -> _C.PcclGroup:
        group = self._pg
        if group is None:
            raise InvalidStateError(self._unusable)
        return group
