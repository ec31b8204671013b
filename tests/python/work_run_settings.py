"""Run by test_run_settings.py in every process of a world."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch.distributed as dist
from world import wait_until

import pccl_backend as pccl

GIVEN = {
    "PCCL_ON_PEER_LOSS": "retry",
    "PCCL_PATTERN": "direct",
    "PCCL_PEER_TIMEOUT": "7",
    "PCCL_CALL_TIMEOUT": "60",
}
OF_THE_RUN = {
    "on_peer_loss": "retry",
    "pattern": "direct",
    "peer_timeout": 7.0,
    "first_call_timeout": 7.0,
    "call_timeout": 60.0,
}


def is_first(url: str, there: Path) -> dict[str, Any]:
    """Begin the run with settings of its own, and admit the other; return the settings."""
    os.environ.update(GIVEN)
    dist.init_process_group("pccl", init_method=url)
    there.touch()
    assert wait_until(pccl.are_peers_pending, timeout_s=30)
    pccl.update_topology()
    return _settings()


def is_second(url: str, there: Path) -> dict[str, Any]:
    """Join without any setting, once the run has begun; return the settings."""
    assert wait_until(there.exists, timeout_s=30)
    dist.init_process_group("pccl", init_method=url)
    return _settings()


def gives_others(url: str) -> str:
    """Join as the only peer of two groups, with other settings in the second; return the error."""
    dist.init_process_group("pccl", init_method=url)
    os.environ |= {"PCCL_PATTERN": "ring", "PCCL_PEER_TIMEOUT": "10"}
    try:
        pccl.join(url + "?peer_group=1&call_timeout=2.5")
    except ValueError as error:
        return str(error)
    finally:
        dist.destroy_process_group()
    return "joined"


def _settings() -> dict[str, Any]:
    info = pccl.run_info()
    dist.barrier()
    dist.destroy_process_group()
    return {name: getattr(info, name) for name in OF_THE_RUN}
