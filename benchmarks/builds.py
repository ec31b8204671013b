"""Builds of pccl side by side, each a folder with the package pccl_backend.

The environment's installed package remains as it is. A process runs one of these builds if its
PYTHONPATH begins with the build's folder (processes.environment_of). build/compare contains:

    NEW/                    a copy of the working tree's package, made when a run began
    SHA-PYTHON-TORCH/       the package of a revision, kept for the next run, and .made-with
    SHA....building/        the folder of its build; remains only after a failed build
    SHA....log              the output of the build

The file .made-with records how a revision was built: compiler and options. If the working tree's
differ, the revision is built again. `make clean` removes everything.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from processes import environment_of

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "compare"
PACKAGE = "pccl_backend"
STAMP = ".made-with"
LOG_LINES = 30  # lines of a failed build's log to show
# Options that the user may have set for the working tree's build, by cmake -D or the environment.
CHOICES = (
    "CMAKE_BUILD_TYPE",
    "CMAKE_CXX_COMPILER",
    "CMAKE_CXX_FLAGS",
    "PCCL_OPENMP",
    "PCCL_SANITIZE",
)
VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS")


class BuildError(Exception):
    """A build is missing; the message has the reason and a remedy."""


def resolve(revision: str) -> str:
    """Return the full id of a commit.

    Raises:
        BuildError: git knows no commit of that name.
    """
    if not revision:
        raise BuildError("which revision is the base? For example: make compare BASE=HEAD~1")
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if found.returncode != 0:
        why = found.stderr.strip()
        raise BuildError(f"git knows no revision {revision!r} here{': ' * bool(why)}{why}")
    return found.stdout.strip()


def copy_working_tree() -> Path:
    """Return a copy of the working tree's build, so that edits during a run do not affect it.

    Raises:
        BuildError: the working tree is not built.
    """
    folder = FOLDER / "NEW"
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=ignored)
    _check(folder, "the working tree is not built: make setup")
    return folder


def build(sha: str) -> Path:
    """Return the build of a revision; make it if there is none with the same options.

    Raises:
        BuildError: the revision cannot be built.
    """
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    folder = FOLDER / f"{sha}-{python}-torch{version('torch')}"
    choices = read_choices(ROOT / "build" / "core" / "CMakeCache.txt")
    made_with = _made_with(choices)
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == made_with:
        print(f"The build of {sha[:12]} is there already.", flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        building = folder.with_name(f"{folder.name}.building")
        _build_in(building, sha, choices)
        folder.mkdir()
        (building / PACKAGE).rename(folder / PACKAGE)
        shutil.rmtree(building)
        stamp.write_text(made_with)
    _check(folder, f"the build of {sha[:12]} cannot be used")
    return folder


def read_choices(cache: Path) -> dict[str, str]:
    """Return the options that CMake got for the working tree (from its CMakeCache.txt)."""
    text = cache.read_text() if cache.exists() else ""
    found = re.findall(r"^(\w+):\w+=(.*)$", text, re.MULTILINE)
    return {name: value for name, value in found if name in CHOICES and value}


def _made_with(choices: dict[str, str]) -> str:
    compiler = choices.get("CMAKE_CXX_COMPILER", "c++")
    said = subprocess.run([compiler, "--version"], check=False, capture_output=True, text=True)
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    made_with = {"cmake": choices, "environment": variables, "compiler": said.stdout.split("\n")[0]}
    return json.dumps(made_with, indent=1, sort_keys=True) + "\n"


def _build_in(folder: Path, sha: str, choices: dict[str, str]) -> None:
    """Put a revision's sources into a new folder and build them there, as `make setup` does here.

    Raises:
        BuildError: the build failed; the folder remains for inspection.
    """
    shutil.rmtree(folder, ignore_errors=True)  # from a failed build
    folder.mkdir(parents=True)
    print(f"Building {sha[:12]} in {folder.relative_to(ROOT)}: it takes minutes, once.", flush=True)
    archive = subprocess.run(["git", "archive", sha], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    # ccache ignores the folder's path, so code that two revisions share is compiled only once.
    environment = {**os.environ, "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}
    if "MAX_JOBS" in environment:
        environment["CMAKE_BUILD_PARALLEL_LEVEL"] = environment["MAX_JOBS"]
    definitions = [f"-D{name}={value}" for name, value in choices.items()]
    path = folder.with_suffix(".log")
    with path.open("w") as log:
        for command in (
            ["cmake", "-S", ".", "-B", "build/core", "-G", "Ninja", *definitions],
            [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        ):
            done = subprocess.run(
                command, cwd=folder, env=environment, check=False, stdout=log, stderr=log
            )
            if done.returncode != 0:
                said = "\n".join(path.read_text().splitlines()[-LOG_LINES:])
                raise BuildError(
                    f"{sha[:12]} does not build here. The end of {path.relative_to(ROOT)}:\n{said}"
                )


def _check(folder: Path, wrong: str) -> None:
    """Import the package in a new process, as the ranks will; it must come from this folder.

    Raises:
        BuildError: the import failed, or used another folder; the message begins with `wrong`.
    """
    program = f"import {PACKAGE}._C as module; print(module.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=FOLDER,  # this folder contains no package that would come first
        env=environment_of(folder),
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise BuildError(f"{wrong}\n{done.stderr.strip()}")
    if not Path(done.stdout.strip()).is_relative_to(folder):
        raise BuildError(f"{wrong}: {PACKAGE} came from {done.stdout.strip()}, not from {folder}")
