"""The compiled module, in the build that fits the running torch.

A compiled module fits only one minor release of torch. Its file name carries that release, so
builds for several releases can be installed together. Importing `pccl_backend._C` replaces this
module with the build that fits.

Raises:
    ImportError: no build fits the running torch. The message names the releases that have a build,
        and the command that makes another. Or this is the source folder, which has no build.
"""

import sys
from importlib import import_module
from pathlib import Path

import torch  # comes first: it loads libraries that the compiled module cannot find by itself

from pccl_backend._distribution import BUILD_COMMAND

_PREFIX = "_C_torch_"
_release = torch.__version__.split(".")[:2]
_name = _PREFIX + "_".join(_release)
_builds = {path.name.split(".")[0] for path in Path(__file__).parent.glob(f"{_PREFIX}*.so")}

_folder = Path(__file__).parents[1]
if not _builds and (_folder / "setup.py").exists():
    raise ImportError(
        f"Python has found the source of pccl in {_folder}, which is not built, before the "
        "installed package: run your program from another folder"
    )
if _name not in _builds:
    _others = ", ".join(sorted(build.removeprefix(_PREFIX).replace("_", ".") for build in _builds))
    _how = (
        f"`make setup TORCH={torch.__version__.split('+')[0]}` in the source folder"
        if (_folder / "setup.py").exists()
        else f"`{BUILD_COMMAND}`; that needs a compiler, and the Debian packages of docs/install.md"
    )
    raise ImportError(
        f"pccl is built for torch {_others or '(none yet)'}, but this process runs torch "
        f"{torch.__version__}. Build it for this one: {_how}."
    )
sys.modules[__name__] = import_module(f"pccl_backend.{_name}")
