"""All benchmarks, one after another: the generated sections of RESULTS.md and their pictures.

    make bench                       # all, under an hour; QUICK=1: a taste of each, under 5 minutes
    sudo .venv/bin/python benchmarks/bench.py --parts curve uplinks
    .venv/bin/python benchmarks/bench.py --list

Each part runs scripts of this folder. A script measures, prints, and writes its figures to
build/bench/NAME.json. As soon as a part has ended, render.py makes a section of RESULTS.md from
these figures. If a part fails or cannot run here (no root, no iperf3), its section remains as it
was, and the other parts continue. If any part has failed, the exit status is 1. A quick run is too
short for permanent figures: it writes build/bench/RESULTS.md, with only its own sections.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "wan"))

import all_reduce
import collectives
import counters
import curve
import ddp_step
import groups
import hosts
import lab
import latency
import memory
import patterns
import quantized_error
import records
import render
import throughput
import worlds
from processes import missing, on_end
from sections import ResultsError, find_sections, replace_section

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "RESULTS.md"
WORK = ROOT / "build" / "bench"  # not under version control
STOCK_CONGESTION = "cubic"
HEADS = {
    False: "# What was measured\n",
    True: "# A quick run\n\nToo short for figures that are kept: small sizes, few rounds.\n",
}
INTERRUPT_SECONDS = 20.0  # time for a script to restore the machine


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a script.

    Attributes:
        name: name of its record.
        script: file in this folder.
        row: type of the record's rows.
        full: its options in a full run.
        quick: its options in a quick run; None: the run is left out.
        stock: whether it runs in a network namespace with the stock congestion control.
        default: whether it runs under the machine's own congestion control; left out if that is
            the stock one.
    """

    name: str
    script: str
    row: type[Any]
    full: str
    quick: str | None
    stock: bool = False
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class Part:
    """The source of one section.

    Attributes:
        minutes: estimated duration on 2 cores.
        needs: required programs; "root" means root rights, a path means a file.
    """

    name: str
    what: str
    minutes: float
    quick_minutes: float
    needs: tuple[str, ...]
    runs: tuple[Run, ...]
    render: render.Render

    def estimate(self, quick: bool) -> float:
        """Return the estimated minutes."""
        return self.quick_minutes if quick else self.minutes


STOCK_NEEDS = ("unshare", "ip")

# In the order of RESULTS.md. The minutes of all parts are the time budget.
PARTS = (
    Part(
        name="loopback",
        what="all-reduce on loopback beside Gloo and the floor",
        minutes=12.5,
        quick_minutes=0.7,
        needs=("cc", *STOCK_NEEDS),
        runs=(
            Run(
                name="loopback",
                script="all_reduce.py",
                row=all_reduce.Row,
                full="",
                quick='--cases "1 KiB" "64 MiB" --worlds 2 4 --rounds 2',
                stock=True,
            ),
            Run(
                name="loopback-default",
                script="all_reduce.py",
                row=all_reduce.Row,
                full='--cases "1 KiB" "64 MiB" --worlds 2 4 --rounds 3',
                quick=None,
                default=True,
            ),
        ),
        render=render.loopback,
    ),
    Part(
        name="hosts",
        what="all-reduce between two and four hosts: plain text, TLS, Gloo",
        minutes=1.0,
        quick_minutes=0.1,
        needs=hosts.NEEDS,
        runs=(
            Run(
                name="hosts",
                script="hosts.py",
                row=hosts.Row,
                full="--rounds 5",
                quick="--mib 16 --rounds 1",
            ),
        ),
        render=render.between_hosts,
    ),
    Part(
        name="curve",
        what="cost over world size and size",
        minutes=4.5,
        quick_minutes=0.2,
        needs=STOCK_NEEDS,
        runs=(
            Run(
                name="curve",
                script="curve.py",
                row=curve.Row,
                full="",
                quick="--worlds 2 --sizes 1KiB 1MiB --rounds 1",
                stock=True,
            ),
        ),
        render=render.cost,
    ),
    Part(
        name="counters",
        what="system calls and context switches",
        minutes=0.5,
        quick_minutes=0.3,
        needs=STOCK_NEEDS,
        runs=(
            Run(
                name="counters",
                script="counters.py",
                row=counters.Row,
                full="",
                quick="--worlds 2 --rounds 3",
                stock=True,
            ),
        ),
        render=render.system,
    ),
    Part(
        name="latency",
        what="latency of calls",
        minutes=0.4,
        quick_minutes=0.2,
        needs=STOCK_NEEDS,
        runs=(
            Run(
                name="latency",
                script="latency.py",
                row=latency.Row,
                full="",
                quick="--rounds 1",
                stock=True,
            ),
        ),
        render=render.per_call,
    ),
    Part(
        name="memory",
        what="memory of a call",
        minutes=0.5,
        quick_minutes=0.4,
        needs=STOCK_NEEDS,
        runs=(
            Run(
                name="memory",
                script="memory.py",
                row=memory.Row,
                full="",
                quick="--mib 256 --worlds 2",
                stock=True,
            ),
        ),
        render=render.held,
    ),
    Part(
        name="collectives",
        what="every collective beside Gloo",
        minutes=0.9,
        quick_minutes=0.1,
        needs=STOCK_NEEDS,
        runs=(
            Run(
                name="collectives",
                script="collectives.py",
                row=collectives.Row,
                full="",
                quick="--rounds 1 --worlds 2 --bytes 1024",
                stock=True,
            ),
        ),
        render=render.every_call,
    ),
    Part(
        name="groups",
        what="time of new_group beside Gloo",
        minutes=0.15,
        quick_minutes=0.1,
        needs=STOCK_NEEDS,
        runs=(
            Run(
                name="groups",
                script="groups.py",
                row=groups.Row,
                full="",
                quick="--rounds 3 --worlds 2",
                stock=True,
            ),
        ),
        render=render.new_groups,
    ),
    Part(
        name="ddp",
        what="a step of trainers.DDP beside torch's DDP",
        minutes=0.5,
        quick_minutes=0.1,
        needs=STOCK_NEEDS,
        runs=(
            Run(
                name="ddp",
                script="ddp_step.py",
                row=ddp_step.Row,
                full="",
                quick="--rounds 1 --only pccl",
                stock=True,
            ),
        ),
        render=render.averaged_steps,
    ),
    Part(
        name="quantized",
        what="error of quantized sums, a model",
        minutes=0.05,
        quick_minutes=0.04,
        needs=(),
        runs=(
            Run(
                name="quantized",
                script="quantized_error.py",
                row=quantized_error.Row,
                full="",
                quick="--members 2 3 18",
            ),
        ),
        render=render.quantized,
    ),
    Part(
        name="atlantic",
        what="two hosts across an ocean",
        minutes=11.5,
        quick_minutes=0.8,
        needs=lab.NEEDS,
        runs=(
            Run(
                name="atlantic",
                script="wan/throughput.py",
                row=throughput.Row,
                full="benchmarks/wan/atlantic.toml --runs 5 --minutes 10",
                quick="benchmarks/wan/atlantic.toml --mib 32 --idle 0 --streams 16 "
                "--iperf-seconds 2",
            ),
        ),
        render=render.atlantic,
    ),
    Part(
        name="worlds",
        what="worlds of 6, 12 and 18 hosts",
        minutes=15.5,
        quick_minutes=1.0,
        needs=lab.NEEDS,
        runs=(
            Run(
                name="worlds-europe",
                script="wan/worlds.py",
                row=worlds.Row,
                full="benchmarks/wan/europe.toml --rounds 3",
                quick="benchmarks/wan/europe.toml --rounds 1 --skip-gloo --skip-floor",
            ),
            # One connection carries little of these tensors. Gloo has only one and may take a
            # minute per call.
            Run(
                name="worlds-atlantic",
                script="wan/worlds.py",
                row=worlds.Row,
                full="benchmarks/wan/america.toml benchmarks/wan/both.toml --rounds 3 --skip-floor",
                quick=None,
            ),
        ),
        render=render.many_hosts,
    ),
    Part(
        name="patterns",
        what="ring and direct pattern where order and shares matter",
        minutes=5,
        quick_minutes=0.3,
        needs=lab.NEEDS,
        runs=(
            Run(
                name="unequal",
                script="wan/patterns.py",
                row=patterns.Row,
                full="benchmarks/wan/unequal.toml --rounds 2 --pilots 1 --rival-rounds 1",
                quick=None,
            ),
            Run(
                name="home",
                script="wan/patterns.py",
                row=patterns.Row,
                full="benchmarks/wan/home.toml --rounds 5 --rival-rounds 2",
                quick="benchmarks/wan/home.toml --mib 2 --pilots 1 --rounds 1 --only ring shares",
            ),
            Run(
                name="ocean",
                script="wan/patterns.py",
                row=patterns.Row,
                full="benchmarks/wan/ocean.toml --rounds 3 --pilots 1 --rival-rounds 1",
                quick=None,
            ),
            Run(
                name="both",
                script="wan/patterns.py",
                row=patterns.Row,
                full="benchmarks/wan/both.toml --rounds 3 --only ring direct plan",
                quick=None,
            ),
        ),
        render=render.by_pattern,
    ),
    Part(
        name="uplinks",
        what="2 to 16 hosts with uplinks of 200 Mbit/s",
        minutes=5,
        quick_minutes=0.5,
        needs=lab.NEEDS,
        runs=(
            Run(
                name="uplinks",
                script="wan/uplinks.py",
                row=worlds.Row,
                full="",
                quick="--hosts 2 --mib 16 --rounds 1",
            ),
            Run(
                name="slower",
                script="wan/uplinks.py",
                row=worlds.Row,
                full="--hosts 16 --mbit 100",
                quick=None,
            ),
        ),
        render=render.hosts_with_uplinks,
    ),
)
ORDER = tuple(part.name for part in PARTS)


class Outcome(Enum):
    """The end of a part."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "FAILED"


class PartError(Exception):
    """A script failed; the message has the reason."""


# ---- Scripts, in processes of their own ----------------------------------------------------------


def command_of(run: Run, options: str) -> list[str]:
    """Return the command of a run, relative to the root, as a user would type it there."""
    python = Path(sys.executable)
    shown = str(python.relative_to(ROOT)) if python.is_relative_to(ROOT) else python.name
    command = ["tools/stock-network.sh"] if run.stock else []
    return [*command, shown, f"benchmarks/{run.script}", *shlex.split(options)]


def run_script(run: Run, options: str, seconds_max: float) -> render.Result:
    """Run a script to its end; its output remains visible.

    Raises:
        PartError: the script failed, took too long, or left no record.
    """
    shown = command_of(run, options)
    path = WORK / f"{run.name}.json"
    path.unlink(missing_ok=True)  # from an earlier run
    print(f"$ {shlex.join(shown)}", flush=True)
    command = [*shown, "--json", str(path)]
    command[1 if run.stock else 0] = sys.executable
    # The script gets its own session, so that all processes it starts can be ended with it.
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        status = process.wait(timeout=seconds_max)
    except BaseException as error:
        end_session(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise PartError(f"it was not done after {seconds_max / 60:.1f} minutes") from error
        raise
    end_session(process)  # also ends anything that a failed script has left
    if status != 0:
        raise PartError(f"it ended with {status}")
    try:
        record = records.read(path, run.row)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PartError(f"it left no record that can be read: {error!r}") from error
    return render.Result(command=shlex.join(shown), record=record)


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a script and all processes it has started; an interrupt first lets it clean up."""
    for number, seconds in ((signal.SIGINT, INTERRUPT_SECONDS), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
    process.poll()


# ---- Parts ---------------------------------------------------------------------------------------


def measure(part: Part, quick: bool) -> dict[str, render.Result]:
    """Make all runs of a part.

    Raises:
        PartError: a run failed.
    """
    seconds_max = 60 * (2 * part.estimate(quick) + 2)
    results: dict[str, render.Result] = {}
    for run in part.runs:
        options = run.quick if quick else run.full
        if options is None:
            continue
        if run.default and records.congestion_here() == STOCK_CONGESTION:
            print(f"{run.name}: left out, {STOCK_CONGESTION} is this machine's own")
            continue
        results[run.name] = run_script(run, options, seconds_max)
    return results


def write_section(part: Part, body: render.Body, results: Path) -> None:
    """Put a section into a file, and its pictures beside the file.

    Raises:
        OSError, ResultsError: the text is unchanged; pictures may have changed.
    """
    text = replace_section(results.read_text(), part.name, body.text, ORDER)
    folder = results.parent / "plots"
    folder.mkdir(exist_ok=True)
    for name, draw in body.pictures.items():
        draw(folder / name)
    written = results.with_name(results.name + ".new")
    written.write_text(text)
    written.replace(results)


def make_part(part: Part, quick: bool, results: Path, machine: render.Machine) -> Outcome:
    """Measure a part and write its section; return the outcome."""
    without = missing(part.needs)
    if without:
        print(f"{part.name}: SKIPPED, it needs {', '.join(without)}; its section stays")
        return Outcome.SKIPPED
    try:
        body = part.render(machine, measure(part, quick))
        write_section(part, body, results)
    except (PartError, ResultsError, OSError, ValueError, KeyError, IndexError) as error:
        known = isinstance(error, PartError | ResultsError)
        why = str(error) if known else repr(error)
        print(f"{part.name}: FAILED, its section stays: {why}", file=sys.stderr, flush=True)
        return Outcome.FAILED
    return Outcome.DONE


def make_all(parts: Sequence[Part], quick: bool, results: Path) -> dict[str, Outcome]:
    """Make the parts one after another, regardless of failures."""
    machine = render.Machine.here()  # before the benchmarks load the machine
    total = sum(part.estimate(quick) for part in parts)
    begun = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    for number, part in enumerate(parts, 1):
        print(
            f"\n== [{number}/{len(parts)}] {part.name}: {part.what}, about "
            f"{part.estimate(quick):.1f} minutes ({(time.monotonic() - begun) / 60:.1f} of about "
            f"{_short(total)} have passed)",
            flush=True,
        )
        start = time.monotonic()
        outcomes[part.name] = make_part(part, quick, results, machine)
        minutes = (time.monotonic() - start) / 60
        print(f"== {part.name}: {outcomes[part.name].value}, {minutes:.1f} minutes", flush=True)
    return outcomes


# ---- The command line ----------------------------------------------------------------------------


def listing() -> str:
    """Return the time budget as a table."""
    lines = [f"{'part':<10} minutes   quick"]
    lines += [
        f"{part.name:<10} {part.minutes:7.1f} {part.quick_minutes:7.1f}   {part.what}"
        for part in PARTS
    ]
    sums = (sum(part.estimate(quick) for part in PARTS) for quick in (False, True))
    lines.append("{:<10} {:7.1f} {:7.1f}".format("all", *sums))
    return "\n".join(lines)


def _short(minutes: float) -> str:
    return f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.1f}"


def destination(given: Path | None, quick: bool) -> Path:
    """Return the file to write. A file other than RESULTS.md is begun with its head.

    Raises:
        OSError, ResultsError: the file cannot be read, or its sections are broken.
    """
    WORK.mkdir(parents=True, exist_ok=True)
    path = given or (WORK / RESULTS.name if quick else RESULTS)
    if path.resolve() != RESULTS and not (given and path.exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADS[quick])
    find_sections(path.read_text())  # an error now is better than after an hour
    return path


def main() -> int:
    """Make the sections; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--parts", nargs="+", choices=ORDER, default=ORDER, metavar="NAME")
    parser.add_argument("--list", action="store_true", help="show the parts and what they take")
    parser.add_argument("--results", type=Path, help="another file to write instead of RESULTS.md")
    given = parser.parse_args()
    if given.list:
        print(listing())
        return 0
    parts = [part for part in PARTS if part.name in given.parts]
    try:
        results = destination(given.results, given.quick)
    except (OSError, ResultsError) as error:
        print(f"RESULTS.md: {error}", file=sys.stderr)
        return 1
    total = sum(part.estimate(given.quick) for part in parts)
    shown = os.path.relpath(results)
    names = ", ".join(part.name for part in parts)
    print(f"This takes about {_short(total)} minutes, in {len(parts)} parts: {names}.")
    print(f"Figures go to {shown}. Results are worth most on a machine that does nothing else.")
    begun = time.monotonic()
    on_end(signal.default_int_handler)  # so that the scripts are ended together with this process
    try:
        outcomes = make_all(parts, given.quick, results)
    except KeyboardInterrupt:
        print(f"\nInterrupted; what was done is in {shown}", file=sys.stderr)
        return 130
    print(f"\n{(time.monotonic() - begun) / 60:.1f} minutes; in {shown}:")
    for name, outcome in outcomes.items():
        print(f"  {name}: {outcome.value}")
    return 1 if Outcome.FAILED in outcomes.values() else 0


if __name__ == "__main__":
    sys.exit(main())
