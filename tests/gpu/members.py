"""Members of an open run for the GPU checks: a master, and processes that come and go.

A member is forked from a server that has imported torch, so a start costs little but the time that
CUDA needs. All members use the same GPU.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ranks
import torch

import pccl_backend

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
from programs import Program

os.environ["PCCL_LOG"] = "error"  # of all processes: losses are what is checked
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["torch", "torch.distributed"])


@contextlib.contextmanager
def master() -> Iterator[str]:
    """Start a master; yield the start of its URLs. It remembers nothing."""
    port = ranks.free_port()
    program = Path(pccl_backend.__file__).parent / "bin" / "pccl-master"
    with Program([str(program), "--port", str(port), "--no-journal"]):
        yield f"pccl://127.0.0.1:{port}"


class Member:
    """A process that runs `function(end, *arguments)`; what it sends to `end` is read here.

    If the function raises, ("raised", text) is sent.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.end, theirs = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_member, args=(theirs, function, arguments), daemon=True
        )
        self.process.start()
        theirs.close()

    def receive(self, timeout_s: float) -> tuple[str, Any]:
        """Return what the process has sent; raise if it raised, has ended, or sends nothing."""
        if not self.end.poll(timeout_s):
            raise AssertionError(f"a member sent nothing in {timeout_s:.0f} s")
        try:
            kind, value = self.end.recv()
        except EOFError:
            raise AssertionError("a member ended by itself") from None
        if kind == "raised":
            raise AssertionError(value)
        return kind, value

    def kill(self) -> None:
        """End it with SIGKILL. Its end is not awaited: CUDA takes a while to clear up."""
        self.process.kill()
        self.end.close()


def _member(end: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        if ranks.DEVICE == "cuda":
            torch.cuda.set_device(0)
        function(end, *arguments)
    except BaseException:  # noqa: BLE001
        end.send(("raised", traceback.format_exc()))
