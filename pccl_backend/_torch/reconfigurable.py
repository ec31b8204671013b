"""Groups whose application decides the members: `init_process_group(..., enable_reconfigure=True)`.

Such a group begins without members. Each process asks for its handle, the application carries the
handles from process to process, and all listed processes call `dist._reconfigure` with the same
handles and the same uuid. The process of the first handle hosts the run that follows. Beyond one
machine, handles have public keys, unless the processes share a token.
"""

from __future__ import annotations

import os
from typing import Any

from pccl_backend import _C
from pccl_backend._settings import PeerSettings
from pccl_backend._torch import devices, exits
from pccl_backend._torch.hosted_world import LOOPBACK, choose_address, store_host
from pccl_backend._torch.open_run import join_options

__all__ = ["create_reconfigurable"]


def create_reconfigurable(options: Any, asked: devices.Asked) -> _C.PcclGroup:
    """Create a group without members, with the rank and the size that torch gives for now.

    Raises:
        ValueError: the group would have a master elsewhere, other backends, or another policy for a
            loss.
    """
    if os.environ.get("PCCL_MASTER"):
        raise ValueError(
            "enable_reconfigure=True and PCCL_MASTER: the application decides the members of a "
            "reconfigurable group, and a process of the group hosts its run: unset PCCL_MASTER"
        )
    if asked.is_composite:
        raise ValueError(f"{asked}: torch reconfigures only a group of one backend")
    settings = PeerSettings.read(os.environ)
    if settings.on_peer_loss == "retry":
        raise ValueError(
            "enable_reconfigure=True and PCCL_ON_PEER_LOSS=retry: a reconfigurable group goes on "
            "after a loss when the application reconfigures it: unset PCCL_ON_PEER_LOSS"
        )
    listen_on, tell = choose_address(store_host(options.store), settings, from_launcher=False)
    timeout_s = _C.checked_timeout(options.timeout.total_seconds())
    token = "" if settings.token is None else settings.token.text()
    exits.watch()
    return _C.make_reconfigurable(
        join_options(settings, timeout_s, open_run=False, token=token),
        store=options.store,
        host=listen_on,
        token=token,
        keys=listen_on != LOOPBACK and settings.token is None and not settings.insecure,
        advertised=tell,
        rank=options.group_rank,
        size=options.group_size,
        timeout=timeout_s,
    )
