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
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from wheel import ROOT, WORK, BuildError, Python, fits
from wheel import run as run_with_tools

TESTS = ("test_links.py", "test_collectives.py", "test_trainers.py")
TOOLS = ("numpy", "pytest", "pytest-timeout")
SETTINGS = '[pytest]\naddopts = -q -m "not nightly"\nmarkers = nightly\ntimeout = 240\n'


def run(command: Sequence[str | Path], folder: Path = ROOT) -> str:
    """Run a step without the packages of `make release`: pip would take them as installed."""
    return run_with_tools(command, folder, PYTHONPATH="")


def attempt(wheels: Path, program: str, torch: str) -> str:
    """Install the wheel and run the tests; return the last line of pytest.

    Raises:
        BuildError: a step or a test failed, or the package is not the one of the wheel.
    """
    tag = Python.of(program).tag
    environment, place = WORK / f"venv-{tag}-{torch}", WORK / f"tests-{tag}-{torch}"
    for folder in (environment, place):
        shutil.rmtree(folder, ignore_errors=True)
    run([program, "-m", "venv", environment])
    python = environment / "bin" / "python"
    run([python, "-m", "pip", "install", "-q", f"torch=={torch}", *TOOLS])
    options = ["--no-index", "--no-deps", "--find-links", wheels.resolve()]
    run([python, "-m", "pip", "install", "-q", *options, "pccl-torch"])
    place.mkdir(parents=True)
    for path in (ROOT / "tests" / "python").glob("*.py"):
        shutil.copy2(path, place)
    (place / "pytest.ini").write_text(SETTINGS)
    where = run([python, "-c", "import pccl_backend; print(pccl_backend.__file__)"], place)
    if not where.startswith(str(environment)):
        raise BuildError(f"pccl_backend is from {where.strip()}, not from the wheel")
    shown = run([python, "-m", "pytest", *TESTS], place)
    shutil.rmtree(environment)
    return shown.strip().splitlines()[-1]


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
        except BuildError as error:
            failed = True
            print(f"{name}: {error}", file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
