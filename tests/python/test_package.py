"""The packages that are published: a source distribution, and wheels (packaging/wheel.py).

The first is made from a copy of the sources, because setuptools also takes the files of an earlier
build in the folder.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from world import free_port, run_program

import pccl_backend

ROOT = Path(__file__).parents[2]
SOURCES = ("cmake", "csrc", "cuda", "master", "pccl_backend")
FILES = ("CMakeLists.txt", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
MADE = ("PKG-INFO", "setup.cfg", "pccl_torch.egg-info")  # what setuptools adds
STEP_S = 900.0  # longest time of one step: compiling everything on a busy machine

USE = """
import sys, torch, torch.distributed as dist
dist.init_process_group("pccl", init_method="file://" + sys.argv[1], rank=0, world_size=1)
tensor = torch.ones(3)
dist.all_reduce(tensor)
import pccl_backend
print(pccl_backend.__file__, tensor.tolist())
print(*{line.split()[-1] for line in open("/proc/self/maps") if "/libuv" in line})
dist.destroy_process_group()
"""


def tracked() -> set[str]:
    """Return the files of this tree that a build needs."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *SOURCES, *FILES]
    done = run_program(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {name for name in done.stdout.splitlines() if (ROOT / name).exists()}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Copy the sources; return their folder."""
    folder = tmp_path / "sources"
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a Python that has no torch."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "torch.py").write_text("raise ImportError('no torch here')\n")
    return {"PYTHONPATH": str(folder)}


def make_sdist(sources: Path, environment: dict[str, str]) -> Path:
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "."]
    done = run_program(command, cwd=sources, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = (sources / "dist").iterdir()
    return archive


def test_the_source_distribution_has_what_a_build_needs(
    sources: Path, without_torch: dict[str, str]
) -> None:
    (sources / "pccl_backend" / "_limits.py").touch()  # left by an earlier build
    with tarfile.open(make_sdist(sources, without_torch)) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name for name in names if not name.startswith(MADE)} == tracked()


def test_a_build_without_torch_says_what_it_needs(
    sources: Path, without_torch: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "."]
    done = run_program(command, cwd=sources, environment=without_torch)
    assert done.returncode != 0
    assert "install torch first, then run `pip install --no-build-isolation .`" in done.stderr


def binaries(package: Path) -> list[Path]:
    return [*package.glob("*.so*"), *(package / "bin").iterdir()]


def has_line_numbers(binary: Path) -> bool:
    return b".debug_line" in binary.read_bytes()  # the name of a section


def test_line_numbers_are_not_installed_and_kept_in_the_build() -> None:
    installed = binaries(Path(pccl_backend.__file__).parent)
    assert {"pccl-master", "pccl-probe"} < {path.name for path in installed}
    assert not [path for path in installed if has_line_numbers(path)]
    build = ROOT / "build"
    if not (build / "core").exists():
        return  # it was built elsewhere
    kept = [build / "core" / name for name in ("pccl-master", "pccl-probe")]
    kept += (build / f"torch-{torch.__version__}").glob("_C_torch_*.so")
    assert len(kept) == 3, kept
    assert [path for path in kept if not has_line_numbers(path)] == []


@pytest.mark.nightly
@pytest.mark.timeout(2 * STEP_S)
def test_a_wheel(tmp_path: Path) -> None:
    """Build it, install it in a folder of its own, and train with it."""
    folder = Path(torch.__file__).parent
    words = ["packaging/wheel.py", "--torch", folder, "--out", tmp_path]
    run([sys.executable, *words], ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    assert re.fullmatch(r"pccl_torch-[\d.]+-cp3\d+-cp3\d+-manylinux\w+_x86_64\.whl", wheel.name)
    assert wheel.stat().st_size < 20e6
    place = tmp_path / "place"
    run([sys.executable, "-m", "pip", "install", "--no-deps", "-t", place, wheel], tmp_path)

    (metadata,) = place.glob("pccl_torch-*.dist-info")
    licenses = {path.name for path in (metadata / "licenses").iterdir()}
    assert licenses == {
        "LICENSE",
        "LICENSE-libgomp.txt",
        "LICENSE-libuv.txt",
        "LICENSE-openssl.txt",
    }
    assert list((metadata / "sboms").iterdir())
    for path in binaries(place / "pccl_backend"):
        assert not has_line_numbers(path)
        assert b"FakeCuda" not in path.read_bytes(), "a test double"
        needed = run(["objdump", "-p", path], tmp_path)
        assert not re.findall(r"NEEDED +lib(?:uv|ssl|crypto)\b\S*", needed)

    environment = {"PYTHONPATH": str(place)}
    # Whether torch's symbols are global does not matter, because those of libuv are hidden.
    for more in ({}, {"TORCH_USE_RTLD_GLOBAL": "1"}):
        command = [sys.executable, "-c", USE, str(tmp_path / f"store-{len(more)}")]
        done = run_program(command, environment={**environment, **more}, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            f"{place}/pccl_backend/__init__.py [1.0, 1.0, 1.0]",
            "",
        ], done.stderr
    master = run_program([str(place / "bin" / "pccl"), "master", "--version"])
    assert master.returncode == 0, master.stderr
    words = [str(place / "bin" / "pccl"), "probe", f"127.0.0.1:{free_port()}"]
    probe = run_program(words, environment=environment)
    assert "refuses connections" in probe.stderr, probe.stderr


def run(command: list[str | Path], folder: Path) -> str:
    """Run a step; return its output."""
    words = [str(word) for word in command]
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    done = run_program(words, environment=environment, cwd=folder, timeout=STEP_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
