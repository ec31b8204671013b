"""Registers the backend "pccl" and the scheme pccl:// with torch.

The entry points `torch.backends` and `torch.distributed.backends` call `register`. The first one
calls it at the end of every `import torch` on this machine. Therefore this module imports no heavy
module of pccl, and a failure here must not prevent the import of torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from pccl_backend._C import PcclBackend, PcclGroup

__all__ = ["register"]

_registered = False


def register() -> None:
    """Register the backend and the scheme, once per process."""
    global _registered  # noqa: PLW0603
    if _registered:
        return
    _registered = True
    try:
        _register()
    except Exception as error:  # noqa: BLE001
        warnings.warn(
            f"pccl could not be registered with torch.distributed: {type(error).__name__}: {error}",
            stacklevel=2,
        )


def _register() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    from torch.distributed.rendezvous import register_rendezvous_handler

    dist.Backend.register_backend("pccl", _create, extended_api=True, devices=["cpu", "cuda"])
    register_rendezvous_handler("pccl", _rendezvous)  # type: ignore[no-untyped-call]


def _create(options: Any, pg_options: object) -> PcclGroup | PcclBackend:
    from pccl_backend._torch.groups import create_group

    return create_group(options, pg_options)


def _rendezvous(
    url: str, timeout: timedelta | None = None, **_: object
) -> Iterator[tuple[Store, int, int]]:
    from pccl_backend._torch.open_run import enter_open_run

    yield from enter_open_run(url, timeout)
