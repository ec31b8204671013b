"""The Makefile: targets that are up to date stay so, and `make test` runs all its parts.

The commands come from the tree. Its programs are stubs in a folder of the test: pip, the build
of the package, ctest, pytest and the simulator.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from world import run_program

ROOT = Path(__file__).parents[2]
SOURCES = ("cmake/a.cmake", "csrc/base/a.cc", "cuda/a.cu", "cuda/README.md", "master/a.cc")
INPUTS = ("CMakeLists.txt", "setup.py", "pyproject.toml", "tools/requirements.txt")
PARTS = ("ctest", "pytest", "pccl-sim")

# Creates an environment whose programs do nothing, as `python -m venv FOLDER` does.
PYTHON = """#!/bin/sh
mkdir -p "$3/bin"
for name in pip python; do printf '#!/bin/sh\\n' > "$3/bin/$name"; chmod +x "$3/bin/$name"; done
cp parts/pytest "$3/bin"
"""
PART = """#!/bin/sh
echo "{name} ran"
[ ! -e {name}.fails ]
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a tree with the Makefile, a few sources and stubs; return its folder."""
    if shutil.which("make") is None:
        pytest.skip("SKIPPED: there is no make")
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in (*SOURCES, *INPUTS, "tools/requirements-cuda.txt", "build/core/build.ninja"):
        write(tmp_path / name, "")
    write(tmp_path / "python", PYTHON)
    for name in ("tools/debian-packages.sh", "parts/cmake"):
        write(tmp_path / name, "#!/bin/sh\n")
    for name in PARTS:
        write(tmp_path / "parts" / name, PART.format(name=name))
    shutil.copy(tmp_path / "parts" / "pccl-sim", tmp_path / "build" / "core")
    return tmp_path


def make(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{tree}/parts:{os.environ['PATH']}"
    command = ["make", "--no-silent", f"PYTHON={tree}/python", *words]
    # This process may itself be a child of make, whose options and level are not for this one.
    environment = {"PATH": path, "MAKEFLAGS": "", "MAKELEVEL": "0"}
    return run_program(command, cwd=tree, environment=environment)


def make_setup(tree: Path) -> None:
    """Make it, a minute ago: clocks of files are too coarse for a change right after it."""
    done = make(tree, "setup")
    assert done.returncode == 0, done.stderr
    then = time.time() - 60
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (then, then))


def commands(tree: Path, *words: str) -> list[str]:
    """Return the commands of `make WORDS`, without running them. The check of packages is none."""
    done = make(tree, "--dry-run", *words)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if "debian-packages.sh" not in line]


def test_a_second_setup_has_nothing_to_do(tree: Path) -> None:
    done = make(tree, "setup")
    assert done.returncode == 0, done.stderr
    assert "setup.py --quiet build_ext --inplace" in done.stdout
    assert commands(tree, "setup") == []
    assert commands(tree, "demo") == [".venv/bin/pccl demo"]


@pytest.mark.parametrize("target", ["setup", "demo", "test", "stress"])
def test_only_its_own_target_installs_the_compiler_of_cuda(tree: Path, target: str) -> None:
    assert commands(tree, target) != []
    assert not any("cuda" in line for line in commands(tree, target))
    assert any("requirements-cuda.txt" in line for line in commands(tree, "cuda"))


def test_no_source_has_the_name_of_a_target(tree: Path) -> None:
    database = make(tree, "--dry-run", "--print-data-base", "setup").stdout.splitlines()
    (sources,) = (line.split()[2:] for line in database if line.startswith("SOURCES :="))
    (phony,) = (line.split()[1:] for line in database if line.startswith(".PHONY:"))
    assert "cuda/a.cu" in sources
    assert {"cuda", "setup"} <= set(phony)
    assert not set(sources) & set(phony)


@pytest.mark.parametrize("change", ["edit", "add", "remove"])
@pytest.mark.parametrize("name", ["cuda/a.cu", "csrc/base/a.cc"])
def test_each_change_of_the_sources_counts(tree: Path, name: str, change: str) -> None:
    make_setup(tree)
    source = tree / name
    if change == "edit":
        source.write_text("// new")
    elif change == "add":
        (source.parent / "b.cc").touch()
    else:
        source.unlink()
    assert any("build_ext" in line for line in commands(tree, "setup"))


def test_a_page_is_no_source(tree: Path) -> None:
    make_setup(tree)
    (tree / "cuda" / "README.md").write_text("new")
    assert commands(tree, "setup") == []


@pytest.mark.parametrize("fails", [(), *((name,) for name in PARTS), PARTS])
def test_all_parts_of_the_tests_run(tree: Path, fails: tuple[str, ...]) -> None:
    for name in fails:
        (tree / f"{name}.fails").touch()
    done = make(tree, "test")
    for name in PARTS:
        assert f"{name} ran\n" in done.stdout, done.stdout + done.stderr
    if not fails:
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("make test: ctest, pytest and the simulation passed\n")
        return
    assert done.returncode != 0
    named = [name.replace("pccl-sim", "simulation") for name in fails]
    assert f"make test: failed: {' '.join(named)}\n" in done.stderr
