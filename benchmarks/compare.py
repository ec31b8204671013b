"""Is this working tree slower than a revision? Both are built, and take turns on loopback.

    make compare BASE=HEAD~1
    make compare BASE=main CASES='"64 MiB" calls' WORLDS="2 4"
    .venv/bin/python benchmarks/compare.py main --cases calls --pairs 30

The rows are as in `make bench` on loopback: the cases of all_reduce.py at each world size, two
of them with TLS, too, the calls of latency.py ("calls"), and the step of trainers.DDP of
ddp_step.py ("ddp step"). This
folder's scripts measure both builds, so that only the product differs. Each build has its own ranks
and its own master. A pair is one round of each build, one right after the other; the next pair
begins with the other build. A row has at least 15 pairs; a row of short rounds has up to three
times as many. The pairs are divided among several starts of the ranks, because a process stays
where the system happened to place it.

A row is an outlier if the median of new over base is above 1.05 and its 90 % bootstrap interval
lies above 1. An outlier is repeated alone, with at least 30 pairs and newly started ranks. The row
is called slower only if it is an outlier again; the table then shows the repetition. Exit status:
0, no row is slower; 1, a row is slower; 3, no row was found slower, but the time was too short for
some; 2, nothing could be compared. (make has an exit status of its own, and shows this one.)

It runs in a network namespace of its own with cubic, where permitted; otherwise it reports that.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol

import all_reduce
import builds
import ddp_step
import latency
import records
from options import add_worlds, at_least_one
from processes import Master, ask, end, read_line, run_main
from sections import table
from verdict import RATIO_MAX, Figure, Pair, Verdict, compare, is_outlier, judge

STOCK_CONGESTION = "cubic"
STOCK_NETWORK = "tools/stock-network.sh"
PAIRS = 15
PAIRS_REPEATED = 30
STARTS = 3  # of the ranks: the pairs are divided among them
# A row of short rounds gets up to MORE times the pairs, within ROW_SECONDS.
MORE = 3
ROW_SECONDS = 24.0
MINUTES = 20
GRACE_SECONDS = 60  # beyond the time limit; a longer round counts as hung
CALLS, DDP_STEP = "calls", "ddp step"
# The rows of the steps that two ranks of another script make.
CALLS_COMPARED = {
    CALLS: (
        "pccl.all_reduce, dispatch of the next",
        "await",
        "are_peers_pending",
        "update_topology",
        "sync_shared_state, unchanged",
    ),
    DDP_STEP: (ddp_step.STEP, ddp_step.WHOLE),
}
# A round has fewer calls than in `make bench`: more pairs give more information than longer rounds.
# 1 MiB is added; `make bench` covers it by its curve.
CASES = (
    *(replace(case, loops=min(case.loops, 500)) for case in all_reduce.CASES),
    all_reduce.Case(
        name="1 MiB",
        tensor_bytes=all_reduce.MIB,
        loops=40,
        goals=dict.fromkeys((2, 4, 8), math.inf),
    ),
)

# Two ranks with TLS, which is not used on loopback without a token.
TLS = ", TLS"
TLS_CASES = tuple(f"{size}{TLS}" for size in ("1 MiB", "64 MiB"))

Pairs = dict[str, list[Pair]]  # by row name


# ---- Fleets: the ranks of a build, and its master ------------------------------------------------


class Fleet(Protocol):
    """Processes of one build that make rounds on request."""

    def round(self, step: str) -> dict[str, Figure]:
        """Return the figures of a step's rows."""

    def close(self) -> None:
        """End all of them."""


class AllReduces:
    """A world of ranks. A step is the name of a case, and has one row."""

    def __init__(self, world: int, build: Path, *, secured: bool) -> None:
        self._size = world
        self._world = all_reduce.World("pccl-tls" if secured else "pccl", world, build=build)

    def round(self, step: str) -> dict[str, Figure]:
        (case,) = (case for case in CASES if case.name == step.removesuffix(TLS))
        wall, cpu = self._world.all_reduce(case)
        return {f"{step}, world {self._size}": Figure(wall=wall, cpu=cpu)}

    def close(self) -> None:
        self._world.close()


class Calls:
    """Two ranks that time single calls. The only step has a row for each kind of call."""

    def __init__(self, step: str, build: Path) -> None:
        self._step = step
        start = partial(latency.start, recorded=False) if step == CALLS else ddp_step.start
        self._master = Master(build=build)
        init_method = f"pccl://{self._master.address}/compare?min_peers=2"
        self._ranks = [start(init_method, build=build) for _ in range(2)]
        try:
            for rank in self._ranks:
                read_line(rank)
        except BaseException:
            self.close()
            raise

    def round(self, step: str) -> dict[str, Figure]:
        assert step == self._step
        medians = [json.loads(answer) for answer in ask(self._ranks, "go")]
        return {
            call: Figure(wall=statistics.mean(of_rank[call] for of_rank in medians) / 1e6)
            for call in CALLS_COMPARED[step]
        }

    def close(self) -> None:
        end(self._ranks, self._master)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The measurements of one set of ranks, step by step.

    Attributes:
        world: number of ranks that all-reduce; 0: two ranks of another script make the only step.
        steps: the steps; each gives a figure to one or more rows.
    """

    world: int
    steps: tuple[str, ...]

    def start(self, build: Path) -> Fleet:
        if self.world > 0:
            return AllReduces(self.world, build, secured=self.steps[0].endswith(TLS))
        (step,) = self.steps
        return Calls(step, build)

    def rows(self, step: str) -> list[str]:
        return [f"{step}, world {self.world}"] if self.world > 0 else list(CALLS_COMPARED[step])


def suites_of(cases: Sequence[str], worlds: Sequence[int]) -> list[Suite]:
    """Return the suites for the chosen cases and world sizes."""
    suites = []
    for world in worlds:
        steps = [case.name for case in CASES if case.name in cases and world in case.goals]
        suites.append(Suite(world=world, steps=tuple(steps)))
    suites.append(Suite(world=2, steps=tuple(name for name in TLS_CASES if name in cases)))
    suites += [Suite(world=0, steps=(step,)) for step in CALLS_COMPARED if step in cases]
    return [suite for suite in suites if suite.steps]


# ---- Measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Builds:
    """The two builds, and the time for them.

    Attributes:
        base: folder of the base build (builds.py).
        new: folder of the new build.
        deadline: latest monotonic time for the start of a pair.
        row_seconds: time for a row's pairs beyond the required number.
    """

    base: Path
    new: Path
    deadline: float
    row_seconds: float = ROW_SECONDS

    def time_is_up(self) -> bool:
        return time.monotonic() > self.deadline


def shares(pairs: int) -> list[int]:
    """Return the number of pairs for each start of the ranks."""
    starts = min(STARTS, pairs)
    return [pairs // starts + (start < pairs % starts) for start in range(starts)]


def start_both(suite: Suite, both: Builds, stack: ExitStack) -> dict[str, Fleet]:
    """Start the ranks of each build; the stack ends them."""
    fleets: dict[str, Fleet] = {}
    for name, build in (("base", both.base), ("new", both.new)):
        try:
            fleets[name] = stack.enter_context(closing(suite.start(build)))
        except SystemExit as error:
            raise builds.BuildError(f"the ranks of {name} do not start: {error}") from error
    return fleets


def measure(suite: Suite, pairs: int, both: Builds) -> Pairs:
    """Return `pairs` pairs of each row, or more (MORE); fewer only if the time is up."""
    seen: Pairs = defaultdict(list)
    for share in shares(pairs):
        if both.time_is_up():
            break
        with ExitStack() as stack:
            fleets = start_both(suite, both, stack)
            for step in suite.steps:
                measure_step(suite, step, share, fleets=fleets, both=both, seen=seen)
    return seen


def measure_step(
    suite: Suite, step: str, share: int, *, fleets: dict[str, Fleet], both: Builds, seen: Pairs
) -> None:
    """Add the pairs that these fleets make of a step to `seen`."""
    rows = suite.rows(step)
    enough = time.monotonic() + both.row_seconds * share / PAIRS
    for number in range(-1, share * MORE):  # the first round is a warm-up
        if both.time_is_up() or (number >= share and time.monotonic() > enough):
            return
        order = ("base", "new") if len(seen[rows[0]]) % 2 == 0 else ("new", "base")
        figures = {name: fleets[name].round(step) for name in order}
        if number < 0:
            continue
        for row in rows:
            seen[row].append(Pair(base=figures["base"][row], new=figures["new"][row]))


def repeat_outliers(suite: Suite, seen: Pairs, both: Builds) -> Pairs:
    """Return the pairs of a suite's outliers, with each step measured alone."""
    repeated: Pairs = {}
    for step in suite.steps:
        outliers = [row for row in suite.rows(step) if is_outlier(seen.get(row, []))]
        if not outliers:
            continue
        shown = ", ".join(f"{row} ({compare(seen[row]).ratio:.3f})" for row in outliers)
        print(f"Looked slower, repeated alone: {shown}", flush=True)
        found = measure(replace(suite, steps=(step,)), PAIRS_REPEATED, both)
        repeated |= {row: found.get(row, []) for row in outliers}
    return repeated


# ---- The table -----------------------------------------------------------------------------------

HEAD = (
    *("row", "pairs", "base", "new", "new ÷ base", "90 % interval"),
    *("CPU s/GB: base", "new", "verdict"),
)


def line(row: str, pairs: Sequence[Pair], verdict: Verdict) -> list[str]:
    """Return the cells of a row."""
    if not pairs:
        return [row, "0", *[""] * (len(HEAD) - 3), verdict.value]
    found = compare(pairs)
    cells = [row, str(len(pairs)), records.duration(found.base), records.duration(found.new)]
    cells += [f"{found.ratio:.3f}", f"{found.low:.3f}-{found.high:.3f}"]
    for figures in ([pair.base for pair in pairs], [pair.new for pair in pairs]):
        cpu = [figure.cpu for figure in figures if figure.cpu is not None]
        cells.append(f"{statistics.median(cpu):.2f}" if cpu else "")
    return [*cells, verdict.value]


def status_of(verdicts: Sequence[Verdict]) -> int:
    """Return the exit status of the run."""
    if Verdict.SLOWER in verdicts:
        return 1
    return 0 if all(verdict.good for verdict in verdicts) else 3


def report(suites: Sequence[Suite], seen: Pairs, repeated: Pairs, pairs_min: int) -> int:
    """Print the table and the conclusion; return the exit status."""
    rows = [row for suite in suites for step in suite.steps for row in suite.rows(step)]
    verdicts = {
        row: judge(
            seen.get(row, []),
            repeated.get(row, []),
            pairs_min=pairs_min,
            repeated_min=PAIRS_REPEATED,
        )
        for row in rows
    }
    lines = [line(row, repeated.get(row) or seen.get(row, []), verdicts[row]) for row in rows]
    print("\n" + table(HEAD, lines))
    slower = [row for row in rows if verdicts[row] is Verdict.SLOWER]
    unclear = [
        row for row in rows if verdicts[row] is not Verdict.SLOWER and not verdicts[row].good
    ]
    if slower:
        print(f"SLOWER by more than {RATIO_MAX - 1:.0%}, twice: {'; '.join(slower)}")
    if unclear:
        print(f"Nothing can be said, the time was too short: {'; '.join(unclear)}")
    if not slower and not unclear:
        print(f"No row is slower ({len(rows)} rows).")
    return status_of(list(verdicts.values()))


def warn_of_congestion() -> None:
    """Warn prominently if the congestion control is not the stock one of most hosts."""
    congestion = records.congestion_here()
    if congestion != STOCK_CONGESTION:
        print(
            f"\n*** NOT MEASURED WITH {STOCK_CONGESTION.upper()} but with {congestion}, which may "
            f"hide or make a difference.\n*** As root this runs in a network namespace of its own "
            f"with {STOCK_CONGESTION}.\n",
            file=sys.stderr,
            flush=True,
        )


def compare_builds(given: argparse.Namespace) -> int:
    """Measure, repeat outliers, report; return the exit status."""
    begun = time.monotonic()
    seconds = 60 * given.minutes
    base, new = given.folders
    both = Builds(base=base, new=new, deadline=begun + seconds)

    def hangs(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(f"a round has not ended {GRACE_SECONDS} s after the time was up: it hangs")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(seconds + GRACE_SECONDS)
    warn_of_congestion()
    suites = suites_of(given.cases, given.worlds)
    seen: Pairs = {}
    for suite in suites:
        seen |= measure(suite, given.pairs, both)
        what = f"world {suite.world}" if suite.world > 0 else suite.steps[0]
        print(f"{what}: measured, {(time.monotonic() - begun) / 60:.1f} minutes", flush=True)
    repeated: Pairs = {}
    for suite in suites:
        repeated |= repeat_outliers(suite, seen, both)
    status = report(suites, seen, repeated, given.pairs)
    congestion = records.congestion_here()
    print(f"{congestion}, {os.cpu_count()} cores, {(time.monotonic() - begun) / 60:.1f} minutes")
    warn_of_congestion()
    return status


# ---- The command line ----------------------------------------------------------------------------


def prepare(revision: str) -> list[str]:
    """Make the two builds; return the command that compares them.

    Raises:
        builds.BuildError: a build cannot be made.
    """
    sha = builds.resolve(revision)
    base, new = builds.build(sha), builds.copy_working_tree()
    print(f"base: {revision} ({sha[:12]}); new: the working tree", flush=True)
    command = [sys.executable, *sys.argv, "--folders", str(base), str(new)]
    stock = str(builds.ROOT / STOCK_NETWORK)
    if subprocess.run([stock, "true"], check=False).returncode == 0:
        return [stock, *command]
    print("*** No network namespace can be made here.", file=sys.stderr, flush=True)
    return command


def parser() -> argparse.ArgumentParser:
    names = [*(case.name for case in CASES), *TLS_CASES, *CALLS_COMPARED]
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("base", help="revision to compare the working tree with")
    options.add_argument("--cases", nargs="+", choices=names, default=names, metavar="CASE")
    add_worlds(options, "--worlds", [2, 4, 8])
    options.add_argument("--pairs", type=at_least_one, default=PAIRS, help=f"default {PAIRS}")
    options.add_argument(
        "--minutes",
        type=at_least_one,
        default=MINUTES,
        help=f"the limit of all measuring (default {MINUTES})",
    )
    options.add_argument("--folders", nargs=2, type=Path, help=argparse.SUPPRESS)
    return options


def main() -> int:
    """Compare; return the exit status."""
    given = parser().parse_args()
    try:
        if given.folders is None:
            command = prepare(given.base)
            os.execv(command[0], command)
        return compare_builds(given)
    except (builds.BuildError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.code, str):
            raise  # a signal ended this run; a text means that a rank has ended, or hangs
        print(f"Nothing is compared: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    run_main(main)
