"""How easily collectives deadlock if they are matched by the order of the calls: Table 1 of Pan et
al. (EuroSys '25), simulated again.

    make deadlock-table                                      # all rows but Y5
    make deadlock-table ROWS="S1 Y5" ROUNDS=640              # these rows
    python3 benchmarks/deadlock_table/deadlock_table.py --quick   # a few rows, seconds

Each row has two distances, in standard errors (z): to the ratio of the paper, within 3, and to the
ratio of a reference, within 4 (configurations.py). The exit status is 1 if a row is outside. A
round of the single-queue model is cheap: there are ten times as many.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import configurations
import simulator
from configurations import NIGHTLY, Configuration
from options import at_least_one
from processes import run_main
from sections import table
from simulator import Outcome

ROUNDS, QUICK_ROUNDS = 3200, 320
QUICK = ("S1", "S3", "F2", "Y2", "Z3")
PAPER_Z, REFERENCE_Z = 3.0, 4.0
HEAD = ("", "world", "disorder", "sync", "paper", "ours", "z", "reference", "z", "cycles", "z")


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A percentage of so many rounds."""

    percent: float
    rounds: float


def z(one: Ratio, other: Ratio) -> float:
    """Return the difference of two ratios in standard errors, which follow from both together."""
    deadlocks = (one.percent * one.rounds + other.percent * other.rounds) / 100
    mean = deadlocks / (one.rounds + other.rounds)
    error = math.sqrt(mean * (1 - mean) * (1 / one.rounds + 1 / other.rounds))
    return (one.percent - other.percent) / 100 / error if error else 0.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of the table with its simulation."""

    configuration: Configuration
    outcome: Outcome

    def _ours(self, found: int) -> Ratio:
        return Ratio(percent=100 * found / self.outcome.rounds, rounds=self.outcome.rounds)

    @property
    def published(self) -> Ratio:
        return self._ours(self.outcome.published)

    @property
    def exact(self) -> Ratio:
        return self._ours(self.outcome.exact)

    @property
    def paper_z(self) -> float:
        row = self.configuration
        return z(self.published, Ratio(percent=row.paper, rounds=row.paper_rounds))

    @property
    def reference_z(self) -> float:
        return z(self.published, self._reference(self.configuration.reference[0]))

    @property
    def exact_z(self) -> float | None:
        """The distance of the exact check; None if its reference is not known."""
        known = self.configuration.exact
        return None if known is None else z(self.exact, self._reference(known))

    @property
    def is_within(self) -> bool:
        references = abs(self.reference_z), abs(self.exact_z or 0.0)
        return abs(self.paper_z) <= PAPER_Z and max(references) <= REFERENCE_Z

    def cells(self) -> list[str]:
        """Return what the table shows of it."""
        row = self.configuration
        ratio, error = row.reference
        marked = "" if self.is_within else " outside"
        cells = [row.name + marked, row.world.name, f"{row.disorder:g}"]
        cells += ["-" if row.synchronization is None else f"{row.synchronization:g}"]
        cells += [f"{row.paper:.2f} %", f"{self.published.percent:.2f} %", f"{self.paper_z:+.1f}"]
        cells += [f"{ratio:.2f} ({error:.2f})", f"{self.reference_z:+.1f}"]
        if row.synchronization is None:
            return [*cells, "all", ""]
        exact_z = "" if self.exact_z is None else f"{self.exact_z:+.1f}"
        return [*cells, f"{self.exact.percent:.2f} %", exact_z]

    def _reference(self, percent: float) -> Ratio:
        """Return a ratio of the reference, with the rounds that its standard error shows."""
        ratio, error = self.configuration.reference
        return Ratio(percent=percent, rounds=ratio * (100 - ratio) / error**2)


def simulate(row: Configuration, rounds: int, cores: int | None = None) -> Line:
    """Return a row with its simulation: ten times as many rounds in the single-queue model."""
    outcome = simulator.simulate(
        row.world,
        disorder=row.disorder,
        synchronization=row.synchronization,
        rounds=rounds if row.synchronization is not None else 10 * rounds,
        seed=configurations.ALL.index(row) + 1,
        cores=cores,
    )
    return Line(configuration=row, outcome=outcome)


def show(lines: Sequence[Line]) -> bool:
    """Print the table; return whether all rows are within their tolerances."""
    print(table(HEAD, [line.cells() for line in lines]))
    print(
        "paper, ours: rounds with a deadlock by the check of the paper. cycles: those in which "
        "GPUs wait for each other\nin a cycle, so that none of them can continue. F: the "
        "probability of disorder is our correction. F, Z: the\nlist of the groups is reconstructed."
    )
    outside = [line.configuration.name for line in lines if not line.is_within]
    bounds = f"{PAPER_Z:g} standard errors from the paper, {REFERENCE_Z:g} from the reference"
    print(f"Outside of {bounds}: {', '.join(outside) or 'no row'}.")
    return not outside


def main() -> int:
    """Simulate and print the table."""
    names = [row.name for row in configurations.ALL]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=names, metavar="ROW", help=" ".join(names))
    parser.add_argument("--rounds", type=at_least_one, help=f"of a row (default {ROUNDS})")
    parser.add_argument("--cores", type=at_least_one, help="how many to use (default all)")
    parser.add_argument("--quick", action="store_true", help=f"few rounds of {' '.join(QUICK)}")
    given = parser.parse_args()
    chosen = given.rows or (QUICK if given.quick else [])
    lines = []
    for row in configurations.ALL:
        if row.name in chosen or not (chosen or row.name in NIGHTLY):
            rounds = given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS)
            lines.append(simulate(row, rounds, given.cores))
            print(f"{row.name}: {lines[-1].outcome}", file=sys.stderr, flush=True)
    return 0 if show(lines) else 1


if __name__ == "__main__":
    run_main(main)
