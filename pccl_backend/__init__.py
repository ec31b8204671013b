"""pccl: collective communication for PyTorch that survives the loss of peers and admits new ones.

    import torch.distributed as dist
    dist.init_process_group("pccl")                     # an unmodified torchrun script
    dist.init_process_group("pccl", init_method="pccl://host:48148/RUN")   # join a run at any time

torch finds the backend by itself. Import this package for the calls that torch does not have: joint
calls (`update_topology`, `optimize_topology`, `are_peers_pending`, `sync_shared_state`),
`all_reduce` with a tag, `run_info`, `join`, and the errors.

A name is loaded when it is first used, so that the command line does not wait for torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pccl_backend.api import (
        Contribution,
        Topology,
        TopologyPlan,
        all_reduce,
        are_peers_pending,
        contributors,
        cuda_library,
        join,
        last_error,
        optimize_topology,
        run_info,
        tag,
        update_topology,
    )
    from pccl_backend.ddp import QuantizeState, ddp_hook, quantize_hook
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
    from pccl_backend.feedback import ErrorFeedback
    from pccl_backend.quantization import BFloat16, MinMax, quantize, quantize_dequantize
    from pccl_backend.shared_state import SharedState
    from pccl_backend.state_sync import StateSync, SyncInfo, sync_shared_state

    __version__: str

__all__ = [
    "AuthenticationError",
    "BFloat16",
    "CollectiveMismatchError",
    "Contribution",
    "ErrorFeedback",
    "HostLostError",
    "InvalidStateError",
    "KickedError",
    "MasterLostError",
    "MembershipChangedError",
    "MinMax",
    "OperationTimeoutError",
    "OutOfRunError",
    "PcclError",
    "PeerLostError",
    "QuantizeState",
    "SharedState",
    "SharedStateError",
    "StateSync",
    "SyncInfo",
    "TooFewPeersError",
    "Topology",
    "TopologyError",
    "TopologyPlan",
    "__version__",
    "all_reduce",
    "are_peers_pending",
    "contributors",
    "cuda_library",
    "ddp_hook",
    "join",
    "last_error",
    "optimize_topology",
    "quantize",
    "quantize_dequantize",
    "quantize_hook",
    "run_info",
    "sync_shared_state",
    "tag",
    "update_topology",
]

# Modules of names that are not in api.
_HOMES = {
    "BFloat16": "quantization",
    "ErrorFeedback": "feedback",
    "MinMax": "quantization",
    "QuantizeState": "ddp",
    "SharedState": "shared_state",
    "StateSync": "state_sync",
    "SyncInfo": "state_sync",
    "ddp_hook": "ddp",
    "quantize": "quantization",
    "quantize_dequantize": "quantization",
    "quantize_hook": "ddp",
    "sync_shared_state": "state_sync",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'pccl_backend' has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("pccl")
    else:
        home = "errors" if name.endswith("Error") else _HOMES.get(name, "api")
        value = getattr(import_module(f"pccl_backend.{home}"), name)
        _announce()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _announce() -> None:
    """Register with torch, if torch is loaded.

    Usually torch has already asked for the registration. With TORCH_DEVICE_BACKEND_AUTOLOAD=0 it
    has not.
    """
    if "torch" in sys.modules:
        from pccl_backend._register import register

        register()


_announce()
