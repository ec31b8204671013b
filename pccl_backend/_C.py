"""The compiled module, in the build made for the torch that is running.

A compiled module fits one minor release of torch only, so its file name carries the release, and
builds for several stand side by side. Importing `pccl_backend._C` puts the one that fits in this
module's place.

Raises:
    ImportError: none of the builds fits the torch that runs. The message says which releases there
        are builds for, and how to make another.
"""

import sys
from importlib import import_module
from pathlib import Path

import torch  # first: it loads the libraries that the compiled module needs and cannot find alone

_PREFIX = "_C_torch_"
_release = torch.__version__.split(".")[:2]
_name = _PREFIX + "_".join(_release)
_builds = {path.name.split(".")[0] for path in Path(__file__).parent.glob(f"{_PREFIX}*.so")}

if _name not in _builds:
    _others = ", ".join(sorted(build.removeprefix(_PREFIX).replace("_", ".") for build in _builds))
    raise ImportError(
        f"pccl is built for torch {_others or '(none yet)'}, but this process runs torch "
        f"{torch.__version__}. Build it for this one: `pip install --no-build-isolation .` in the "
        "source folder, or, for the environment that make keeps, "
        f"`make setup TORCH={torch.__version__.split('+')[0]}`."
    )
sys.modules[__name__] = import_module(f"pccl_backend.{_name}")
