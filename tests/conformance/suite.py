"""PyTorch's own tests of a backend, prepared for one backend name and world size.

torch ships the tests as a module that reads environment variables while it is imported: BACKEND is
the name that the tests are chosen by, WORLD_SIZE the number of ranks. `load` sets both and imports
it, so a process loads one suite only. `run_rank` runs a test as one rank; each rank is a process.

A mode is how the tests see pccl. Under its own name, many tests skip themselves, because they name
the backends that they are for. As "gloo" or "mpi" pccl takes the place of that backend: whenever a
test makes a group of it, it gets one of pccl. "gloo" is the real Gloo, for comparison.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import unittest
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["MODES", "Mode", "Suite", "load"]


@dataclass(frozen=True, kw_only=True)
class Mode:
    """How the suite sees a backend.

    Attributes:
        backend: the name that the suite's conditions see.
        is_pccl: whether a group of that name is one of pccl.
        only: prefix of the tests that run.
    """

    backend: str
    is_pccl: bool = True
    only: str = "test_"


MODES = {
    "pccl": Mode(backend="pccl"),
    "as-gloo": Mode(backend="gloo"),
    "as-mpi": Mode(backend="mpi", only="test_all_to_all"),
    "gloo": Mode(backend="gloo", is_pccl=False),
}


class Suite:
    """The tests of this process. Made by `load`.

    Attributes:
        names: all tests of the mode, sorted.
        skips: exit status of a rank that skips its test, with the reason.
    """

    def __init__(self, cases: Any, module: Any, names: list[str], skips: dict[int, str]) -> None:
        self._cases = cases
        self._module = module
        self.names = names
        self.skips = skips

    def skipped(self, name: str) -> str | None:
        """Return why nothing has to be run to know that the test is skipped, or None."""
        method = getattr(self._cases, name)
        if not getattr(method, "__unittest_skip__", False):
            return None
        return str(method.__unittest_skip_why__)

    def run_rank(
        self, name: str, rank: int, folder: Path, errors: Connection, limit: float
    ) -> None:
        """Run one test in this process as one rank, and end the process.

        Args:
            name: the test.
            rank: the rank of this process.
            folder: an empty folder that all ranks of this test have in common.
            errors: where the traceback of a failure goes.
            limit: seconds until the stacks of all threads are printed.
        """
        log = open(folder / f"rank-{rank}.log", "w", buffering=1)  # noqa: SIM115
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stdout = sys.stderr = log
        faulthandler.dump_traceback_later(limit, file=log)
        os.environ["TEMP_DIR"] = str(folder)
        self._module.INIT_METHOD = f"file://{folder}/shared_init_file"
        self._cases._run(rank, name, f"{folder}/meeting", errors)


def load(mode: Mode, world: int) -> Suite:
    """Import the suite for this mode and number of ranks. A process can do it once."""
    os.environ |= {
        "BACKEND": mode.backend,
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "INIT_METHOD": "file://",  # run_rank() has the rest
        "CUDA_VISIBLE_DEVICES": "",  # torch's tests want one GPU for each rank
        "OMP_NUM_THREADS": "1",
        "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",  # the last line is then the reason
    }
    from torch.testing._internal import common_distributed

    # torch skips these tests below 8 ranks, to save GPUs. Their group is ranks 1 and 2.
    common_distributed.skip_if_small_worldsize = unittest.skipIf(world < 3, "it needs 3 ranks")
    for feature in ("ddp", "subgroup", "plugin", "gpu", "cuda"):
        common_distributed.DistTestCases.backend_feature[feature].add("pccl")
    from torch.testing._internal.distributed import distributed_test as module

    cases = type("Cases", (module.TestDistBackend, module.DistributedTest._DistTestBase), {})
    if mode.is_pccl:
        _take_the_place_of(mode.backend)
    names = unittest.TestLoader().getTestCaseNames(cases)
    skips = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
    return Suite(cases, module, [name for name in names if name.startswith(mode.only)], skips)


def _take_the_place_of(backend: str) -> None:
    """Make torch create a group of pccl whenever a test asks for one of `backend`."""
    import torch.distributed as dist

    def ours(create: Any) -> Any:
        def create_ours(*arguments: Any, **options: Any) -> Any:
            if options.get("backend") == backend:
                options["backend"] = "pccl"
            return create(*arguments, **options)

        return create_ours

    dist.init_process_group = ours(dist.init_process_group)
    dist.new_group = ours(dist.new_group)
