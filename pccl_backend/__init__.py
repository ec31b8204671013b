"""pccl: collective communication for PyTorch that survives the loss of peers and admits new ones.

    import torch.distributed as dist
    dist.init_process_group("pccl")                     # an unmodified torchrun script
    dist.init_process_group("pccl", init_method="pccl://host:48148/RUN")   # join a run at any time

torch finds the backend by itself. Import this package for the calls that torch does not have, and
for the errors. Rarely used names are reached by their modules: `pccl.quantization`,
`pccl.hooks` (of DistributedDataParallel), `pccl.monitor`, `pccl.trainers`, `pccl.torchft`, and the
modules of the results, `pccl.topology`, `pccl.info` and `pccl.state_sync`.

A name is loaded when it is first used, so that the command line does not wait for torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pccl_backend import api as api
    from pccl_backend import hooks as hooks
    from pccl_backend import info as info
    from pccl_backend import monitor as monitor
    from pccl_backend import quantization as quantization
    from pccl_backend import state_sync as state_sync
    from pccl_backend import topology as topology
    from pccl_backend import torchft as torchft
    from pccl_backend import trainers as trainers
    from pccl_backend.api import all_reduce, contributors, join, tag
    from pccl_backend.errors import (
        AuthenticationError,
        CollectiveMismatchError,
        HostLostError,
        InvalidStateError,
        KickedError,
        MasterLostError,
        MembershipChangedError,
        OperationTimeoutError,
        OutOfRunError,
        PcclError,
        PeerLostError,
        SharedStateError,
        TooFewPeersError,
        TopologyError,
    )
    from pccl_backend.info import report, run_info
    from pccl_backend.shared_state import SharedState
    from pccl_backend.state_sync import sync_shared_state
    from pccl_backend.topology import are_peers_pending, optimize_topology, update_topology

    __version__: str

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
    "SharedState",
    "SharedStateError",
    "TooFewPeersError",
    "TopologyError",
    "__version__",
    "all_reduce",
    "are_peers_pending",
    "contributors",
    "join",
    "optimize_topology",
    "report",
    "run_info",
    "sync_shared_state",
    "tag",
    "update_topology",
]

_MODULES = {"api", "hooks", "info", "monitor", "quantization", "state_sync", "topology"}
_MODULES |= {"torchft", "trainers"}

_HOMES = {
    "SharedState": "shared_state",
    "all_reduce": "api",
    "are_peers_pending": "topology",
    "contributors": "api",
    "join": "api",
    "optimize_topology": "topology",
    "report": "info",
    "run_info": "info",
    "sync_shared_state": "state_sync",
    "tag": "api",
    "update_topology": "topology",
    **{name: "errors" for name in __all__ if name.endswith("Error")},
    # Older programs use these names here: the formats had no module of their own then.
    "MinMax": "quantization",
    "quantize_dequantize": "quantization",
}


if not TYPE_CHECKING:  # so that a type checker refuses other names

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            from pccl_backend._distribution import NAME

            value = version(NAME)
        elif name in _MODULES:
            value = import_module(f"pccl_backend.{name}")
            _announce()
        elif name in _HOMES:
            value = getattr(import_module(f"pccl_backend.{_HOMES[name]}"), name)
            _announce()
        else:
            raise AttributeError(f"module 'pccl_backend' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


def _announce() -> None:
    """Register with torch, if torch is loaded.

    Usually torch has already asked for the registration. With TORCH_DEVICE_BACKEND_AUTOLOAD=0 it
    has not.
    """
    if "torch" in sys.modules:
        from pccl_backend._register import register

        register()


_announce()
