"""Builds the package: CMake makes the core without torch, torch's CppExtension the module on top.

The module belongs to one minor release of torch, and its name says which (`_C_torch_2_15`), so that
builds for several stand side by side; `pccl_backend/_C.py` gives the one that fits the torch that
runs. Everything is kept under build/: a second build compiles only what changed.
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
except ImportError:
    sys.exit(
        "pccl is compiled against the torch it will run with, and this Python has none: "
        "install torch first, then run `pip install --no-build-isolation .`"
    )

ROOT = Path(__file__).resolve().parent
CORE = Path("build/core")  # shared by all releases of torch: nothing in it knows torch
TORCH = ".".join(torch.__version__.split(".")[:2])


class Build(BuildExtension):
    """Runs CMake, then compiles the module with what CMake wrote down about it."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = f"build/torch-{torch.__version__}"
        self.force = True  # setuptools does not see headers or the core; ninja, below it, does

    def run(self) -> None:
        os.chdir(ROOT)
        self._build_core()
        spec = json.loads((CORE / "extension.json").read_text())
        (extension,) = self.extensions
        extension.sources = spec["sources"]
        extension.libraries[:0] = spec[
            "libraries"
        ]  # before torch's, which export a libuv of their own
        extension.extra_objects = [str(CORE / "libpccl_core.a")]
        # As system headers, so that torch's own warnings are not our errors.
        system = [f"-isystem{path}" for path in extension.include_dirs]
        extension.include_dirs = [str(ROOT)]
        extension.extra_compile_args = [*system, *spec["flags"], "-O2", "-g1"]
        extension.extra_link_args = [flag for flag in spec["flags"] if flag == "-fopenmp"]
        super().run()
        self._place_master(Path(self.get_ext_fullpath(extension.name)).parent / "bin")

    def _build_core(self) -> None:
        commands = [["cmake", "--build", CORE, "--target", "pccl_core", "pccl-master"]]
        if not (CORE / "build.ninja").exists():
            commands.insert(0, ["cmake", "-S", ".", "-B", CORE, "-G", "Ninja"])
        for command in commands:
            if subprocess.run(command, check=False).returncode != 0:
                sys.exit("The core was not built; what is wrong with it stands above.")

    def _place_master(self, bin_dir: Path) -> None:
        bin_dir.mkdir(exist_ok=True)
        fresh = bin_dir / "pccl-master.new"
        shutil.copy2(CORE / "pccl-master", fresh)
        fresh.replace(bin_dir / "pccl-master")  # in one step: it may be running


# Debian's folder of compilers that go through ccache; not every torch uses ccache by itself.
os.environ["PATH"] = os.pathsep.join(["/usr/lib/ccache", os.environ.get("PATH", os.defpath)])

setup(
    ext_modules=[
        CppExtension(
            name=f"pccl_backend._C_torch_{TORCH.replace('.', '_')}",
            sources=[],  # CMake knows
            define_macros=[("PCCL_TORCH_BUILD", f'"{TORCH}"')],
        )
    ],
    cmdclass={"build_ext": Build},
)
