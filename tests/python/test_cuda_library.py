"""The library with the CUDA kernels: loaded, absent, or not usable, and pccl works in each case."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from world import run_program

import pccl_backend

PACKAGE = Path(pccl_backend.__file__).parent
NAME = "libpccl_cuda.so"
PROGRAM = """
import sys, torch, torch.distributed as dist, pccl_backend
assert pccl_backend.__file__.startswith(sys.argv[1]), pccl_backend.__file__
store = "file://" + sys.argv[1] + "/store"
dist.init_process_group("pccl", init_method=store, rank=0, world_size=1)
tensor = torch.ones(3)
dist.all_reduce(tensor)
assert tensor.tolist() == [1, 1, 1]
print(pccl_backend.run_info().cuda_library)
assert pccl_backend.run_info().cuda_library == pccl_backend.run_info().cuda_library
dist.destroy_process_group()
"""

# Functions of a library that works, as far as loading it can tell.
FUNCTIONS = {
    "pccl_cuda_api_version": "int pccl_cuda_api_version(void) { return 1; }",
    "pccl_cuda_error_text": 'const char* pccl_cuda_error_text(int status) { return "bad"; }',
    "pccl_cuda_device_count": "int pccl_cuda_device_count(int* count) { *count = 1; return 0; }",
    "pccl_cuda_hash_workspace": "void pccl_cuda_hash_workspace(void) {}",
    "pccl_cuda_hash": "void pccl_cuda_hash(void) {}",
    "pccl_cuda_hash_values": "void pccl_cuda_hash_values(void) {}",
}

NO_DEVICE = "int pccl_cuda_device_count(int* count) { return 100; }"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Make a package like the installed one, but without the library; return its folder."""
    package = tmp_path / "pccl_backend"
    package.mkdir()
    for path in PACKAGE.iterdir():
        if path.name not in {NAME, "__pycache__"}:
            (package / path.name).symlink_to(path)
    return package


def compile_library(package: Path, functions: Mapping[str, str]) -> None:
    source = package.parent / "library.c"
    source.write_text("\n".join(functions.values()))
    command = ["cc", "-shared", "-fPIC", str(source), "-o", str(package / NAME)]
    done = run_program(command)
    assert done.returncode == 0, done.stderr


def run_with(package: Path) -> subprocess.CompletedProcess[str]:
    folder = str(package.parent)
    environment = {"PYTHONPATH": folder, "PCCL_LOG": "info"}
    command = [sys.executable, "-c", PROGRAM, folder]
    done = run_program(command, environment=environment, cwd=package.parent)
    assert done.returncode == 0, done.stderr
    return done


def log_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if "CUDA kernels" in line]


def test_absent(package: Path) -> None:
    done = run_with(package)
    assert done.stdout == "absent\n"
    (line,) = log_lines(done)
    assert " info: this build has no CUDA kernels" in line


def test_loaded(package: Path) -> None:
    compile_library(package, FUNCTIONS)
    done = run_with(package)
    assert done.stdout == "loaded\n"
    (line,) = log_lines(done)
    assert " info: the CUDA kernels are loaded" in line


def test_a_corrupt_file(package: Path) -> None:
    (package / NAME).write_text("this is no library\n" * 100)
    refused(package, f"{package / NAME}: ", "invalid ELF header")


def test_another_version(package: Path) -> None:
    functions = {name: text.replace("return 1;", "return 999;") for name, text in FUNCTIONS.items()}
    compile_library(package, functions)
    refused(package, "it has version 999 of the interface", "build pccl again")


@pytest.mark.parametrize("missing", FUNCTIONS)
def test_a_missing_function(package: Path, missing: str) -> None:
    compile_library(package, {name: FUNCTIONS[name] for name in FUNCTIONS if name != missing})
    refused(package, f"it has no function {missing}")


def test_no_device(package: Path) -> None:
    compile_library(package, {**FUNCTIONS, "pccl_cuda_device_count": NO_DEVICE})
    refused(package, f"{package / NAME}: CUDA finds no device (bad)")


def refused(package: Path, *reasons: str) -> None:
    done = run_with(package)
    (line,) = log_lines(done)
    assert " warning: the CUDA kernels cannot be used" in line
    for reason in reasons:
        assert reason in done.stdout
        assert reason in line


def test_the_built_library(package: Path) -> None:
    """The real one gets as far as the driver of this machine."""
    if not (PACKAGE / NAME).exists():
        pytest.skip("built without nvcc: make cuda builds the library")
    (package / NAME).symlink_to(PACKAGE / NAME)
    done = run_with(package)
    assert done.stdout == "loaded\n" or "CUDA finds no device (" in done.stdout
