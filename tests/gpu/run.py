"""Run the GPU checks, each as a process with a limit, and print what they found.

A step prints `PASS|FAIL|SKIP step seconds figures`. All results go to build/gpu-checks.json, or to
$OUT/gpu-checks.json if OUT is set. The exit status is 0 if no step failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SKIPPED = 77  # exit status of a step that cannot run here
KILL_AFTER_S = 3  # from SIGTERM to SIGKILL
TOTAL_LIMIT_S = 525  # then no further step begins, and the last one is ended


@dataclass(frozen=True, kw_only=True)
class Step:
    """A check: check_NAME.py, and the seconds that it may take."""

    name: str
    limit_s: float


# The only list of the steps, in the order in which they run.
STEPS = (
    Step(name="env", limit_s=120),  # the first to load torch, from a cold disk
    Step(name="hash", limit_s=120),
    Step(name="expf", limit_s=30),
    Step(name="memcheck", limit_s=90),
    Step(name="collectives", limit_s=150),
    Step(name="streams", limit_s=100),
    Step(name="loss", limit_s=100),
    Step(name="state", limit_s=100),
    Step(name="kills", limit_s=110),
    Step(name="speed", limit_s=100),
    Step(name="links", limit_s=100),
)


@dataclass(kw_only=True)
class Result:
    """The outcome of a step."""

    step: str
    outcome: str
    seconds: float
    figures: dict[str, Any] = field(default_factory=dict)
    output: str = ""

    def line(self) -> str:
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        return f"{self.outcome} {self.step} {self.seconds:.1f} s  {figures}"


def run(step: Step, limit_s: float) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        found, log = Path(folder, "figures.json"), Path(folder, "output")
        environment = {**os.environ, "GPU_CHECK_FIGURES": str(found)}
        start = time.monotonic()
        # This command ends all processes of the step: its ranks would keep the GPU busy.
        limited = ["timeout", f"--kill-after={KILL_AFTER_S}", str(limit_s)]
        try:
            with log.open("wb") as output_file:
                status = subprocess.run(
                    [*limited, sys.executable, HERE / f"check_{step.name}.py"],
                    env=environment,
                    stdout=output_file,
                    stderr=subprocess.STDOUT,
                    timeout=limit_s + 2 * KILL_AFTER_S,
                    check=False,
                ).returncode
        except subprocess.TimeoutExpired:  # a process that the system cannot end
            status = 1
        outcome = {0: "PASS", SKIPPED: "SKIP"}.get(status, "FAIL")
        seconds = time.monotonic() - start
        output = log.read_text(errors="replace")
        if seconds >= limit_s:
            output += f"\nended after its limit of {limit_s:.0f} s"
        figures = json.loads(found.read_text()) if found.exists() else {}
    return Result(
        step=step.name, outcome=outcome, seconds=round(seconds, 1), figures=figures, output=output
    )


def chosen_steps() -> list[Step]:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [step.name for step in STEPS]
    parser.add_argument("step", nargs="*", help=f"which steps; all of them: {' '.join(names)}")
    wanted = parser.parse_args().step or names
    if unknown := set(wanted) - set(names):
        parser.error(f"unknown step {' '.join(sorted(unknown))}: choose from {' '.join(names)}")
    return [step for step in STEPS if step.name in wanted]


def main() -> int:
    results = []
    end = time.monotonic() + TOTAL_LIMIT_S
    for step in chosen_steps():
        left = end - time.monotonic()
        if left < 1:
            skipped = {"reason": "no time left"}
            result = Result(step=step.name, outcome="SKIP", seconds=0, figures=skipped)
        else:
            result = run(step, min(step.limit_s, left))
        print(result.output.rstrip())
        print(result.line(), flush=True)
        results.append(result)
    folder = Path(os.environ.get("OUT", "build"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "gpu-checks.json"
    file.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    print(f"\nAll results are in {file}.")
    for result in results:
        print(result.line())
    return int(any(result.outcome == "FAIL" for result in results))


if __name__ == "__main__":
    sys.exit(main())
