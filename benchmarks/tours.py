"""Results of the planner's searches: shortest tours on TSPLIB, and rings in generated worlds.

    .venv/bin/python benchmarks/tours.py FOLDER    # of asymmetric instances, NAME.atsp
    .venv/bin/python benchmarks/tours.py           # only the generated worlds

One thread, five seeds for each instance and world. A tour is the shortest of four searches: one
from a greedy start, three from random ones, 20,000 kicks each. The gap is that to the optimum which
TSPLIB publishes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
from collections import defaultdict
from pathlib import Path

from processes import run_main
from sections import table

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "core"
PROGRAM = BUILD / "pccl-tours"
# As published with TSPLIB.
OPTIMA = {
    "br17": 39,
    "ft53": 6905,
    "ft70": 38673,
    "ftv33": 1286,
    "ftv35": 1473,
    "ftv38": 1530,
    "ftv44": 1613,
    "ftv47": 1776,
    "ftv55": 1608,
    "ftv64": 1839,
    "ftv70": 1950,
    "ftv170": 2755,
    "kro124p": 36230,
    "p43": 5620,
    "rbg323": 1326,
    "rbg358": 1163,
    "rbg403": 2465,
    "rbg443": 2720,
    "ry48p": 14422,
}


def build() -> None:
    """Build the program that searches.

    Raises:
        SystemExit: `make core` has not been run, or the build has failed.
    """
    if not (BUILD / "build.ninja").exists():
        raise SystemExit("there is no build of the core: run `make core` first")
    command = ["cmake", "--build", str(BUILD), "--target", PROGRAM.name]
    if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode != 0:
        raise SystemExit(f"the build of {PROGRAM.name} failed: see its error above")


def run(*arguments: str) -> list[list[str]]:
    """Return the words of each line that the program prints.

    Raises:
        SystemExit: the program has failed, and has printed the reason.
    """
    done = subprocess.run([PROGRAM, *arguments], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    return [line.split() for line in done.stdout.splitlines()]


def show_tours(folder: Path) -> None:
    """Print the table of the instances.

    Raises:
        SystemExit: the folder has none.
    """
    files = sorted(str(path) for path in folder.glob("*.atsp"))
    if not files:
        raise SystemExit(f"{folder} has no file NAME.atsp")
    lengths: dict[tuple[str, str], list[float]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    for _, name, places, _, took, length in run(*files):
        lengths[name, places].append(float(length))
        seconds[name].append(float(took))
    rows, gaps = [], []
    for (name, places), found in lengths.items():
        best = OPTIMA.get(name)
        cells = ["", "", ""]
        if best is not None:
            percent = [100 * (length / best - 1) for length in found]
            gaps.append(statistics.median(percent))
            cells = [str(best), f"{gaps[-1]:.3f} %", f"{max(percent):.3f} %"]
        took = f"{statistics.median(seconds[name]):.2f} s"
        rows.append([name, places, f"{statistics.median(found):.0f}", *cells, took])
    print(table(["", "places", "tour, median", "optimum", "gap, median", "worst", "time"], rows))
    if gaps:
        optimal = sum(gap == 0 for gap in gaps)
        print(
            f"Mean of the median gaps {statistics.mean(gaps):.3f} %; "
            f"{optimal} of {len(gaps)} at the optimum.\n"
        )


def show_worlds() -> None:
    """Print the tables of the generated worlds."""
    exact: dict[str, list[float]] = defaultdict(list)
    rings: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for kind, *words in run("--worlds"):
        if kind == "exact":
            exact[words[0]].append(float(words[1]))
        else:
            members, where, _, *figures = words
            rings[members, where].append([float(figure) for figure in figures])
    rows = [
        [members, f"{1e3 * statistics.median(took):.1f} ms", f"{1e3 * max(took):.1f} ms"]
        for members, took in exact.items()
    ]
    print(table(["members, exact", "time, median", "worst"], rows))
    rows = []
    for (members, where), worlds in rings.items():
        took, over_bound, over_join = zip(*worlds, strict=True)
        rows.append(
            [
                f"{members}, {where}",
                f"{statistics.median(over_bound):.3f}",
                f"{max(over_bound):.3f}",
                f"{statistics.median(over_join):.1f}",
                f"{statistics.median(took):.2f} s",
            ]
        )
    head = ["members, searched", "bound ÷ slowest hop, median", "worst", "÷ join order's", "time"]
    print(table(head, rows))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="has the files NAME.atsp")
    given = parser.parse_args()
    build()
    if given.folder is not None:
        show_tours(given.folder)
    show_worlds()


if __name__ == "__main__":
    run_main(main)
