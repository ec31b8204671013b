"""Build the package: CMake builds the core without torch, torch's CppExtension the module on top.

The module belongs to one minor release of torch. Its name contains that release (`_C_torch_2_15`),
so that builds for several releases can exist together. `pccl_backend/_C.py` loads the one that fits
the torch in use. All build files are kept under build/: a second build compiles only the changes.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup

try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError:  # a source distribution can be made without torch
    from setuptools import Extension as CppExtension
    from setuptools.command import build_ext

    torch, BuildExtension = None, build_ext.build_ext

ROOT = Path(__file__).resolve().parent
CORE = Path("build/core")  # shared by all releases of torch: nothing in it depends on torch
CUDA_LIBRARY = "libpccl_cuda.so"  # with the CUDA kernels: only if CMake finds an nvcc
UNITS = 4  # compiled at a time, on as many cores
TORCH_VERSION = torch.__version__ if torch else "none"
TORCH = ".".join(TORCH_VERSION.split(".")[:2])


class Build(BuildExtension):
    """Run CMake, then compile the module with the sources and flags that CMake wrote to a file."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = f"build/torch-{TORCH_VERSION}"
        self.force = True  # setuptools does not track headers or the core; ninja, below it, does

    def run(self) -> None:
        if torch is None:
            sys.exit(
                "pccl is compiled against the torch it will run with, and this Python has none: "
                "install torch first, then run `pip install --no-build-isolation .`, "
                "or `python -m build --no-isolation`"
            )
        os.chdir(ROOT)
        self._build_core()
        spec = json.loads((CORE / "extension.json").read_text())
        (extension,) = self.extensions
        extension.sources = self._units(spec["sources"] + self._test_doubles())
        # Before torch's libraries, which export their own libuv.
        extension.libraries[:0] = spec["libraries"]
        extension.extra_objects = [str(CORE / "libpccl_core.a")]
        # As system headers, so that warnings in torch's headers are no errors here.
        system = [f"-isystem{path}" for path in extension.include_dirs]
        extension.include_dirs = [str(ROOT)]
        extension.extra_compile_args = [*system, *spec["flags"], "-O2", "-g1"]
        extension.extra_link_args = [flag for flag in spec["flags"] if flag == "-fopenmp"]
        super().run()
        module = Path(self.get_ext_fullpath(extension.name))
        package = module.parent
        whole = Path(self.build_temp) / module.name
        shutil.copy2(module, whole)
        _place(whole, module)
        self._place_programs(package / "bin")
        self._place_limits(package)
        self._place_cuda_library(package, built=spec["cuda"])

    def _build_core(self) -> None:
        commands = [["cmake", "--build", CORE, "--target", "pccl-package"]]
        if not (CORE / "build.ninja").exists():
            commands.insert(0, ["cmake", "-S", ".", "-B", CORE, "-G", "Ninja"])
        for command in commands:
            if subprocess.run(command, check=False).returncode != 0:
                sys.exit("The core was not built; what is wrong with it stands above.")

    def _test_doubles(self) -> list[str]:
        """Return further sources for the tests, which use a build in place; none is published."""
        return sorted(map(str, Path("tests/doubles").rglob("*.cc"))) if self.inplace else []

    def _units(self, sources: list[str]) -> list[str]:
        """Return a few files that include all sources. Torch's headers take most of the time."""
        Path(self.build_temp).mkdir(parents=True, exist_ok=True)
        units = []
        for index in range(UNITS):
            unit = Path(self.build_temp) / f"unit_{index}.cc"
            text = "".join(f'#include "{source}"\n' for source in sources[index::UNITS])
            if not unit.exists() or unit.read_text() != text:
                unit.write_text(text)
            units.append(str(unit))
        return units

    def _place_programs(self, bin_dir: Path) -> None:
        bin_dir.mkdir(exist_ok=True)
        for name in ("pccl-master", "pccl-probe"):
            _place(CORE / name, bin_dir / name)

    def _place_limits(self, package: Path) -> None:
        module = subprocess.run([CORE / "pccl-limits"], check=True, capture_output=True).stdout
        fresh = package / "_limits.py.new"
        fresh.write_bytes(module)
        fresh.replace(package / "_limits.py")  # atomic, because a program may be importing it

    def _place_cuda_library(self, package: Path, *, built: bool) -> None:
        """Put the CUDA kernels beside the module; a build without them leaves no older ones."""
        if not built:
            (package / CUDA_LIBRARY).unlink(missing_ok=True)
            return
        _place(CORE / CUDA_LIBRARY, package / CUDA_LIBRARY)


def _place(built: Path, target: Path) -> None:
    """Put a program or a library into the package; its line numbers stay in build/.

    They are nine tenths of its size. `addr2line -e build/core/pccl-master ADDRESS` reads them.
    """
    fresh = target.with_name(f"{target.name}.new")
    subprocess.run(["strip", "-o", fresh, built], check=True)
    fresh.replace(target)  # atomic, because a program may be using the old file


# Debian's folder of compiler wrappers for ccache: not every torch uses ccache by itself.
os.environ["PATH"] = os.pathsep.join(["/usr/lib/ccache", os.environ.get("PATH", os.defpath)])

setup(
    ext_modules=[
        CppExtension(
            name=f"pccl_backend._C_torch_{TORCH.replace('.', '_')}",
            sources=[],  # set from CMake's list in Build.run()
            define_macros=[("PCCL_TORCH_BUILD", f'"{TORCH}"')],
        )
    ],
    cmdclass={"build_ext": Build},
)
