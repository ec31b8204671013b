"""Build the package: CMake builds the core without torch, and the module on top of it.

The module belongs to one minor release of torch. Its name contains that release (`_C_torch_2_15`),
so that builds for several releases can exist together. `pccl_backend/_C.py` loads the one that fits
the torch in use. All build files are kept under build/: a second build compiles only the changes.
With PCCL_PREBUILT, a folder of files that packaging/wheel.py has built, nothing is compiled.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import util
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
CORE = Path("build/core")  # shared by all releases of torch: nothing in it depends on torch
CUDA_LIBRARY = "libpccl_cuda.so"  # with the CUDA kernels: only if CMake finds an nvcc
PREBUILT = os.environ.get("PCCL_PREBUILT")


def torch_version() -> str:
    """Return the version of the installed torch; "none" without one. It is not imported."""
    spec = util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:  # a source distribution needs none
        return "none"
    text = Path(spec.submodule_search_locations[0], "version.py").read_text()
    found = re.search(r"__version__ = '([^']+)'", text)
    return found[1] if found else "none"


TORCH_VERSION = torch_version()
TORCH = ".".join(TORCH_VERSION.split(".")[:2])


class Build(build_ext):
    """Run CMake for the core and for the module, and put the results into the package."""

    def run(self) -> None:
        (extension,) = self.extensions
        module = Path(self.get_ext_fullpath(extension.name)).resolve()
        module.parent.mkdir(parents=True, exist_ok=True)
        if PREBUILT:
            shutil.copytree(PREBUILT, module.parent, dirs_exist_ok=True)
            return
        if TORCH_VERSION == "none":
            sys.exit(
                "pccl is compiled against the torch it will run with, and this Python has none: "
                "install torch first, then run `pip install --no-build-isolation .`, "
                "or `python -m build --no-isolation`"
            )
        os.chdir(ROOT)
        if not (CORE / "build.ninja").exists():
            _cmake("-S", ".", "-B", CORE, "-G", "Ninja")
        _cmake("--build", CORE, "--target", "pccl-package")
        _place(self._module(module.name), module)
        bin_dir = module.parent / "bin"
        bin_dir.mkdir(exist_ok=True)
        for name in ("pccl-master", "pccl-probe"):
            _place(CORE / name, bin_dir / name)
        _place_limits(module.parent)
        _place_cuda_library(module.parent)

    def _module(self, name: str) -> Path:
        """Build the module; return its file, which has line numbers."""
        folder = Path(f"build/torch-{TORCH_VERSION}")
        spec = util.find_spec("torch")
        assert spec is not None
        assert spec.origin is not None
        includes = dict.fromkeys(sysconfig.get_path(key) for key in ("include", "platinclude"))
        variables = {
            "PCCL_CORE": (ROOT / CORE).as_posix(),
            "PCCL_TORCH": Path(spec.origin).parent.as_posix(),
            "PCCL_TORCH_RELEASE": TORCH,
            "PCCL_PYTHON_INCLUDE": ";".join(includes),
            "PCCL_MODULE": name.removesuffix(".so"),
            # The tests use a build in place; no double is published.
            "PCCL_DOUBLES": "ON" if self.inplace else "OFF",
        }
        given = [f"-D{key}={value}" for key, value in variables.items()]
        _cmake("-S", "csrc/torch", "-B", folder, "-G", "Ninja", *given)
        _cmake("--build", folder)
        return folder / name


def _cmake(*words: "str | Path") -> None:
    command = ["cmake", *words]
    if "--build" in words and "MAX_JOBS" in os.environ:
        command.append(f"-j{os.environ['MAX_JOBS']}")
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit("pccl was not built; what is wrong stands above.")


def _place_limits(package: Path) -> None:
    module = subprocess.run([CORE / "pccl-limits"], check=True, capture_output=True).stdout
    fresh = package / "_limits.py.new"
    fresh.write_bytes(module)
    fresh.replace(package / "_limits.py")  # atomic, because a program may be importing it


def _place_cuda_library(package: Path) -> None:
    """Put the CUDA kernels beside the module; a build without them leaves no older ones."""
    if (CORE / CUDA_LIBRARY).exists():
        _place(CORE / CUDA_LIBRARY, package / CUDA_LIBRARY)
    else:
        (package / CUDA_LIBRARY).unlink(missing_ok=True)


def _place(built: Path, target: Path) -> None:
    """Put a program or a library into the package; its line numbers stay in build/.

    They are nine tenths of its size. `addr2line -e build/core/pccl-master ADDRESS` reads them.
    """
    fresh = target.with_name(f"{target.name}.new")
    subprocess.run(["strip", "-o", fresh, built], check=True)
    fresh.replace(target)  # atomic, because a program may be using the old file


setup(
    ext_modules=[Extension(f"pccl_backend._C_torch_{TORCH.replace('.', '_')}", sources=[])],
    cmdclass={"build_ext": Build},
)
