"""PyTorch's tests of reconfigure, with an entry for pccl.

    FAULT_TOLERANCE_TESTS=test_c10d_fault_tolerance.py WORLD_SIZE=3 \
        python -m unittest discover -s tests/conformance -p fault_tolerance.py

The file is test/distributed/test_c10d_fault_tolerance.py of PyTorch's repository. The wheel of
torch lacks it, so whoever runs this module downloads it. It is used as it is: this module makes the
class for pccl as the file makes the one for Gloo. The processes of a test import this module by its
name.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pccl_backend  # noqa: F401, the backend is known then

FILE = os.environ.get("FAULT_TOLERANCE_TESTS", "")
WORLD = int(os.environ.get("WORLD_SIZE", "3"))


def load(path: str) -> ModuleType:
    if not Path(path).is_file():
        raise SystemExit(
            f"FAULT_TOLERANCE_TESTS={path!r} is no file: download "
            "test/distributed/test_c10d_fault_tolerance.py of PyTorch's repository, and give its "
            "path"
        )
    spec = importlib.util.spec_from_file_location("torch_fault_tolerance", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def cases(module: ModuleType) -> Any:
    """Return the class of the tests for pccl, in the form of this version of the file."""
    entry: tuple[Any, ...] = ("pccl", "cpu")
    if len(inspect.signature(module._make_fault_tolerance_test_class).parameters) == 1:
        entry = (module.FaultToleranceBackend(*entry),)
    made = module._make_fault_tolerance_test_class(*entry)
    return type("PcclFaultToleranceTest", (made,), {"world_size": WORLD, "__module__": __name__})


PcclFaultToleranceTest = cases(load(FILE))
