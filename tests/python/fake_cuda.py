"""FakeCuda: CUDA devices for tests without a GPU (tests/doubles/torch/fake_cuda.cc).

A build in place has them in the file of the package's compiled module, as a second module.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from typing import Any

from pccl_backend import _C

NAME = "pccl_fake_cuda"
_loader = ExtensionFileLoader(NAME, str(_C.__file__))
_module: Any = module_from_spec(ModuleSpec(NAME, _loader, origin=_C.__file__))
_loader.exec_module(_module)

FakeCuda: Any = _module.FakeCuda
FakeOptions: Any = _module.FakeOptions
