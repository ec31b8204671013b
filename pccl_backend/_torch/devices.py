"""Decides which devices a group serves with pccl, and which devices another backend serves.

torch combines backends: "cpu:pccl,cuda:nccl" gives CPU tensors to pccl and CUDA tensors to NCCL.
torch creates the backends one after another and gives none of them the list of the others. pccl
needs to know the whole combination:

- pccl alone ("pccl", "cpu:pccl", "cpu:pccl,cuda:pccl"): the group's size follows the membership, so
  the group must be of pccl's own class. torch accepts such a group unchanged: it asks for no other
  backend and assigns no device. Therefore the group itself serves the named devices.
- pccl beside other backends: the group is torch's own and gets a bare backend for pccl's devices.
  Its membership is fixed, because the membership of the other backends is fixed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.distributed import Backend, ProcessGroup
from torch.distributed import distributed_c10d as c10d

from pccl_backend._C import PcclBackend
from pccl_backend._settings import PeerSettings

__all__ = ["ALL", "Asked", "asked_for", "refuse_others"]

NAME = "pccl"
ALL = ("cpu", "cuda")  # the devices of a plain "pccl", as registered with torch


@dataclass(frozen=True)
class Asked:
    """The combination of backends that torch requests, and the part that it is creating now.

    Attributes:
        backends: name of the backend for each device, in torch's order.
        device: device whose backend torch requests now.
        group: torch's own group, which collects the backends unless pccl is alone.
    """

    backends: Mapping[str, str]
    device: str
    group: Any

    def __str__(self) -> str:
        return _text(self.backends)

    @property
    def devices(self) -> list[str]:
        """The devices that pccl serves."""
        return [device for device, name in self.backends.items() if name == NAME]

    @property
    def is_composite(self) -> bool:
        return len(self.devices) < len(self.backends)

    def made_before(self) -> PcclBackend | None:
        """Return the backend already made for another of pccl's devices; one backend serves all."""
        if self.device == self.devices[0]:
            return None
        made: PcclBackend = self.group._get_backend(torch.device(self.devices[0]))
        return made

    def check(self, *, open_run: bool) -> None:
        """Refuse a combination that torch or the other backends do not support.

        Args:
            open_run: whether the group would join an open run.

        Raises:
            ValueError: the combination is impossible. The message shows what to write instead.
        """
        if not self.is_composite:
            return
        custom = ProcessGroup.BackendType.CUSTOM
        for name in self.backends.values():
            if name != NAME and Backend.backend_type_map.get(name, custom) == custom:
                raise ValueError(
                    f"{self}: in one group torch keeps one backend of those it does not bring "
                    f"along, so pccl and {name} would be given each other's tensors; {_BESIDE}"
                )
        if open_run:
            raise _others_in_open_run(self.backends)
        if PeerSettings.read(os.environ).on_peer_loss == "retry":
            raise ValueError(
                f"{self}: PCCL_ON_PEER_LOSS=retry lets a group go on with fewer members, and the "
                f"other backends cannot: unset it; or {_BESIDE}"
            )


_BESIDE = (
    "begin with the other backend alone and make a group of pccl beside it, by "
    'dist.new_group(backend="pccl")'
)


def asked_for() -> Asked:
    """Return the combination that torch requests while it asks pccl for its part.

    The only source is the stack frame of torch's function. Its variables have had these names in
    torch 2.0 to 2.15. Any other caller wants pccl alone.
    """
    known = _variables_of("_new_process_group_helper")
    config = known.get("backend_config")
    if not isinstance(config, c10d.BackendConfig):
        return Asked(backends=dict.fromkeys(ALL, NAME), device=ALL[0], group=None)
    return Asked(
        backends={device: str(name) for device, name in config.get_device_backend_map().items()},
        device=known["device"],
        group=known["pg"],
    )


def refuse_others() -> None:
    """Refuse a pccl:// URL if init_process_group was given another backend.

    When torch asks for the group, a refusal would be too late: Gloo would wait for other ranks in
    a store that only this process can see.

    Raises:
        ValueError: another backend was given. The message shows what to write instead.
    """
    backend = _variables_of("init_process_group").get("backend")
    if backend is None:  # another caller wants the store
        return
    backends = c10d.BackendConfig(backend).get_device_backend_map()
    if set(backends.values()) != {NAME}:
        raise _others_in_open_run(backends)


def _others_in_open_run(backends: Mapping[str, str]) -> ValueError:
    return ValueError(
        f"{_text(backends)}: a pccl:// URL, or PCCL_MASTER, leads to an open run, whose members "
        'change, and other backends cannot follow: give "pccl" as the backend; or begin with the '
        "other backend, without PCCL_MASTER, and add pccl by pccl_backend.join(url)"
    )


def _variables_of(function: str) -> Mapping[str, Any]:
    """Return the variables of the nearest torch caller with this name; empty if there is none."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_globals is vars(c10d):
            return frame.f_locals
        frame = frame.f_back
    return {}


def _text(backends: Mapping[str, str]) -> str:
    return ",".join(f"{device}:{name}" for device, name in backends.items())
