"""Run tests with an installed wheel, without the source tree.

    packaging/wheel_tests.py dist --python python3.10 python3.11 --torch 2.11.0 2.14.1

Each pair of a Python and a torch gets an environment of its own, in build/release, with the wheel
of this Python from the folder. The tests of links, collectives and trainers run there from a copy.
The environment has 5 GB, and is removed after tests that have passed.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from wheel import ROOT, WORK, BuildError, Python, fits, run

TESTS = ("test_links.py", "test_collectives.py", "test_trainers.py")
TOOLS = ("numpy", "pytest", "pytest-timeout")
SETTINGS = '[pytest]\naddopts = -q -m "not nightly"\nmarkers = nightly\ntimeout = 240\n'


class TestsError(Exception):
    """The tests of a pair failed, or did not use the wheel."""


def make_environment(folder: Path, program: str, torch: str) -> Path:
    """Make an environment with torch; return its Python."""
    python = folder / "bin" / "python"
    shutil.rmtree(folder, ignore_errors=True)
    run([program, "-m", "venv", folder])
    run([python, "-m", "pip", "install", "-q", f"torch=={torch}", *TOOLS])
    return python


def attempt(wheels: Path, program: str, torch: str) -> str:
    """Install the wheel and run the tests; return the last line of pytest."""
    tag = Python.of(program).tag
    environment = WORK / f"venv-{tag}-{torch}"
    python = make_environment(environment, program, torch)
    options = ["--no-index", "--no-deps", "--force-reinstall", "--find-links", wheels.resolve()]
    run([python, "-m", "pip", "install", "-q", *options, "pccl-torch"])
    place = WORK / f"tests-{tag}-{torch}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for path in (ROOT / "tests" / "python").glob("*.py"):
        shutil.copy2(path, place)
    (place / "pytest.ini").write_text(SETTINGS)
    where = in_folder(place, [python, "-c", "import pccl_backend; print(pccl_backend.__file__)"])
    if not where.strip().startswith(str(environment)):
        raise TestsError(f"pccl_backend is from {where.strip()}, not from the wheel")
    shown = in_folder(place, [python, "-m", "pytest", *TESTS])
    shutil.rmtree(environment)
    return shown.strip().splitlines()[-1]


def in_folder(folder: Path, command: Sequence[str | Path]) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TestsError(f"{' '.join(words[-4:])} failed:\n{done.stdout[-8000:]}{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="Run tests with the wheels, without the sources.")
    parser.add_argument("wheels", type=Path, metavar="FOLDER")
    parser.add_argument("--python", nargs="+", default=[sys.executable], metavar="PROGRAM")
    parser.add_argument("--torch", nargs="+", required=True, metavar="VERSION")
    options = parser.parse_args()
    failed = False
    for program, torch in itertools.product(options.python, options.torch):
        name = f"{program} with torch {torch}"
        start = time.monotonic()
        try:
            if not fits(Python.of(program), torch):
                continue
            last = attempt(options.wheels, program, torch)
            print(f"{name}: {last} ({time.monotonic() - start:.0f} s with its setup)", flush=True)
        except (TestsError, BuildError) as error:
            failed = True
            print(f"{name}: {error}", file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
