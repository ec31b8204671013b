"""The cost of churn in loss: disturbed trainings beside undisturbed ones with as many outer steps.

    sudo .venv/bin/python benchmarks/churn_loss.py --kind blocking --minutes 5 --runs 3

The disturbed runs are as in `make churn` (tests/stress/run.py): peers join, are killed, stopped
and cut off, and so is the master. The undisturbed runs have as many peers as the disturbed ones had
on average, and end after as many outer steps. Both print the loss of the global parameters on text
held out: the median, and the spread. The goal is a median within 5 % of the undisturbed one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from processes import missing, run_main

ROOT = Path(__file__).resolve().parents[1]
GOAL = 0.05
CALM_MINUTES_MAX = 60.0


def run(folder: Path, *options: str) -> list[dict[str, float]]:
    """Run the trainers; return all lines of their logs."""
    folder.mkdir()
    command = [ROOT / "tools" / "stock-network.sh", sys.executable, ROOT / "tests/stress/run.py"]
    done = subprocess.run(
        [*command, "--logs", folder, *options], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    lines = []
    for log in folder.glob("worker????"):
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # otherwise a kill has cut it off
                lines.append(json.loads(line))
    return lines


def losses_of(lines: list[dict[str, float]]) -> dict[int, float]:
    """Return the loss by the number of outer steps."""
    return {int(line["of"]): line["loss"] for line in lines if "loss" in line}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="blocking", help="see tests/stress/trainer.py")
    parser.add_argument("--minutes", type=float, default=5.0, help="of a disturbed run")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if lacking := missing(["unshare", "ip", "root"]):
        raise SystemExit(f"this needs {', '.join(lacking)}")
    with tempfile.TemporaryDirectory(prefix="pccl-churn-loss-") as name:
        folder = Path(name)
        disturbed, sizes = [], []
        for number in range(options.runs):
            choice = ["--kind", options.kind, "--seed", str(1 + number)]
            lines = run(folder / f"disturbed{number}", *choice, "--minutes", str(options.minutes))
            disturbed.append(losses_of(lines))
            sizes += [line["world"] for line in lines if "world" in line]
        steps = max(set.intersection(*map(set, disturbed)))
        peers = round(statistics.mean(sizes))
        calm = []
        for number in range(options.runs):
            choice = ["--kind", options.kind, "--calm", str(peers), "--steps", str(steps + 1)]
            lines = run(folder / f"calm{number}", *choice, "--minutes", str(CALM_MINUTES_MAX))
            calm.append(losses_of(lines))
    print(f"{options.kind}, {steps} outer steps, {peers} peers on average")
    medians = []
    for what, losses in (("disturbed", disturbed), ("undisturbed", calm)):
        values = [each[steps] for each in losses]
        medians.append(statistics.median(values))
        print(f"{what:12} loss {medians[-1]:.3f} ({min(values):.3f} to {max(values):.3f})")
    difference = medians[0] / medians[1] - 1
    print(f"difference {difference * 100:+.1f} %, goal at most {GOAL * 100:.0f} %")
    return int(difference > GOAL)


if __name__ == "__main__":
    run_main(main)
