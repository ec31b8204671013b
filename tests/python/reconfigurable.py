"""Reconfigurable groups: in this process, and in processes that do what a test asks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from programs import Program
from torch._C._distributed_c10d import HashStore

from pccl_backend import _C
from pccl_backend._settings import PeerSettings
from pccl_backend._torch.open_run import join_options

LIMIT_S = 30.0

needs_reconfigure = pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d, "ReconfigureOptions"),
    reason="this torch is older than 2.14, which brought reconfigure",
)


def make_group(
    rank: int = 0, size: int = 1, timeout_s: float = LIMIT_S, *, keys: bool = False
) -> Any:
    options = join_options(PeerSettings.read(os.environ), timeout_s, open_run=False, token="")
    group = _C.make_reconfigurable(
        options,
        store=HashStore(),
        host="127.0.0.1",
        token="",
        keys=keys,
        advertised="127.0.0.1",
        rank=rank,
        size=size,
        timeout=timeout_s,
    )
    group.serve(["cpu"])
    return group


class Peer:
    """A process that answers each line of JSON with one."""

    def __init__(self, command: Sequence[Any], **environment: str) -> None:
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        self.process = Program(command, stdin=subprocess.PIPE, env=variables)

    def send(self, *words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        line = self.process.line()
        assert line, "the process has ended"
        return json.loads(line)

    def ask(self, *words: Any) -> Any:
        self.send(*words)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
