"""Runs PyTorch's own tests of a backend against pccl, and compares with the expected results.

    python tests/conformance/run.py --world 4                    # what CI runs
    python tests/conformance/run.py --mode as-gloo --tests test_ddp_logging

Each test has its own processes and its own time limit, so a test that hangs costs the others
nothing. A file of `expected/` lists, for each mode, the tests that pass, with the world sizes. A
listed test that does not pass is an error, and so is one that passes and is not listed. A test that
fails needs a line in `expected/reasons.txt`, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from suite import MODES, Suite, load

EXPECTED = Path(__file__).parent / "expected"
LOGS = Path("build/conformance")
GRACE_S = 2.0  # after one rank has failed; the others may say why
REAP_S = 10.0
ERROR_LINE = re.compile(r"^[A-Za-z][\w.]*(?:Error|Exception|Exit)\b.*$", re.MULTILINE)

# The four outcomes of a test.
PASSED = "passed"
FAILED = "failed"
MISSING = "missing"  # it needs a call that pccl does not have
SKIPPED = "skipped"  # torch's suite skips it: it needs a GPU, another world size, another backend

_context = multiprocessing.get_context("fork")  # the children have everything imported already


@dataclass(frozen=True)
class Result:
    """The end of one test."""

    name: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.outcome:8} {self.seconds:5.1f} s  {self.name}  {self.reason}".rstrip()


@dataclass
class Test:
    """A test that runs: one process for each rank."""

    name: str
    suite: Suite
    folder: Path
    limit: float
    began: float = field(default_factory=time.monotonic)
    ranks: list[BaseProcess] = field(default_factory=list)
    errors: list[Connection] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # tracebacks of ranks, as they come
    deadline: float = 0.0

    def start(self, world: int) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("barrier", "test_dir"):  # where torch's tests look for them
            (self.folder / name).mkdir(parents=True)
        self.deadline = self.began + self.limit
        for rank in range(world):
            mine, theirs = _context.Pipe()
            arguments = (self.name, rank, self.folder, theirs, self.limit - 1)
            process = _context.Process(target=self.suite.run_rank, args=arguments)
            process.start()
            theirs.close()
            self.ranks.append(process)
            self.errors.append(mine)

    def result(self) -> Result | None:
        """Return the result once it is known, and end all ranks."""
        self._read()
        codes = [process.exitcode for process in self.ranks]
        if any(code not in (None, 0, *self.suite.skips) for code in codes):
            self.deadline = min(self.deadline, time.monotonic() + GRACE_S)
        late = time.monotonic() >= self.deadline
        if None in codes and not late:
            return None
        self._end()
        outcome, reason = self._judge(codes)
        if outcome != FAILED:
            shutil.rmtree(self.folder)
        return Result(self.name, outcome, reason, time.monotonic() - self.began)

    def _judge(self, codes: list[int | None]) -> tuple[str, str]:
        if set(codes) == {0}:
            return PASSED, ""
        if set(codes) <= self.suite.skips.keys():
            return SKIPPED, self.suite.skips[codes[0] or 0]
        reasons = [line for text in self.texts for line in ERROR_LINE.findall(text)[-1:]]
        for reason in reasons:
            if "NotImplementedError" in reason or "pccl does not have" in reason:
                return MISSING, reason.split(";")[0]
        if reasons:
            return FAILED, reasons[0]
        if None in codes:
            return FAILED, f"not done after {self.limit:g} s: stacks are in {self.folder}"
        return FAILED, f"exit status of the ranks: {', '.join(str(code) for code in codes)}"

    def _read(self) -> None:
        for pipe in self.errors:
            with contextlib.suppress(EOFError, OSError):
                while pipe.poll():
                    self.texts.append(str(pipe.recv()))

    def _end(self) -> None:
        for process in self.ranks:
            if process.exitcode is None:
                process.kill()
            process.join(REAP_S)
        self._read()
        for pipe in self.errors:
            pipe.close()


def run_all(
    suite: Suite, names: list[str], *, world: int, jobs: int, limit: float, logs: Path
) -> Iterator[Result]:
    """Run the tests, `jobs` at a time, and yield their results in the order of their ends."""
    waiting = names[::-1]
    running: list[Test] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop()
            if (why := suite.skipped(name)) is not None:
                yield Result(name, SKIPPED, why)
                continue
            test = Test(name, suite, logs / name, limit)
            test.start(world)
            running.append(test)
        alive = [rank.sentinel for test in running for rank in test.ranks if rank.exitcode is None]
        wait(alive, 0.1 if len(alive) == sum(len(test.ranks) for test in running) else 0.02)
        for test in list(running):
            if (result := test.result()) is not None:
                running.remove(test)
                yield result


# --- Expected results -----------------------------------------------------------------------------


def read_expected(path: Path) -> dict[str, set[int]]:
    """Return the tests of the file, each with the world sizes where it passes."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = (line.split() for line in lines if line and not line.startswith("#"))
    return {name: {int(world) for world in worlds} for name, *worlds in rows}


def write_expected(path: Path, expected: dict[str, set[int]]) -> None:
    head = f"# Tests that pass in the mode {path.stem}, with the world sizes. Made with UPDATE=1.\n"
    rows = sorted((name, sorted(worlds)) for name, worlds in expected.items() if worlds)
    lines = (f"{name} {' '.join(str(world) for world in worlds)}\n" for name, worlds in rows)
    path.write_text(head + "".join(lines))


def read_reasons(path: Path, mode: str) -> dict[str, str]:
    """Return the tests of this mode that are known to fail, each with the reason."""
    rows = (line.split(maxsplit=2) for line in path.read_text().splitlines())
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0] == mode}


def complaints(
    results: list[Result], expected: dict[str, set[int]], world: int, reasons: Collection[str] = ()
) -> list[str]:
    """Print the differences from the expected results; tests that did not run do not count."""
    texts = []
    for result in results:
        listed = world in expected.get(result.name, ())
        if listed and result.outcome != PASSED:
            texts.append(f"expected to pass: {result}")
        elif result.outcome in (FAILED, MISSING) and result.name not in reasons:
            texts.append(f"fails, and reasons.txt does not say why: {result}")
        elif result.outcome == PASSED and not listed:
            texts.append(f"passes, and is not in the list: add {result.name} to it, with UPDATE=1")
    return texts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--mode", choices=MODES, default="pccl")
    parser.add_argument("--world", type=int, default=4, help="number of ranks, from 2")
    parser.add_argument("--tests", default="", help="only tests with this text in their names")
    parser.add_argument("--update", action="store_true", help="rewrite the expected results")
    parser.add_argument("--jobs", type=int, default=3, help="tests at a time")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each test")
    options = parser.parse_args()
    if options.world < 2:
        parser.error(f"--world is {options.world}; the tests need 2 ranks or more")
    began = time.monotonic()
    suite = load(MODES[options.mode], options.world)
    import torch

    names = [name for name in suite.names if options.tests in name]
    logs = LOGS.resolve() / f"{options.mode}-{options.world}"
    reasons = read_reasons(EXPECTED / "reasons.txt", options.mode)
    results = []
    for result in run_all(
        suite, names, world=options.world, jobs=options.jobs, limit=options.limit, logs=logs
    ):
        results.append(result)
        if result.outcome != SKIPPED:
            print(result, flush=True)
            if result.outcome != PASSED and result.name in reasons:
                print(f"{'':18}because {reasons[result.name]}", flush=True)
    for result in sorted(results, key=lambda result: result.reason):
        if result.outcome == SKIPPED:
            print(result)
    counts = Counter(result.outcome for result in results)
    summary = ", ".join(f"{counts[o]} {o}" for o in (PASSED, FAILED, MISSING, SKIPPED))
    seconds = time.monotonic() - began
    about = f"mode {options.mode}, world {options.world}, torch {torch.__version__}"
    print(f"\n{about}: {summary} ({seconds:.0f} s)")

    path = EXPECTED / f"{options.mode}.txt"
    expected = read_expected(path)
    if options.update:
        for result in results:
            worlds = expected.setdefault(result.name, set())
            (worlds.add if result.outcome == PASSED else worlds.discard)(options.world)
        write_expected(path, expected)
        return 0
    wrong = complaints(results, expected, options.world, reasons)
    for text in wrong:
        print(f"ERROR: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
