"""The cost of losing a peer with Gloo: the same fault as in recovery.py. replicas.py has torchft.

    tools/stock-network.sh .venv/bin/python benchmarks/recovery_rivals.py

World 4, an all-reduce of 256 MiB float32 under way, SIGKILL of a random peer at a random moment;
times count from the end of its process, until the survivors have the error, and whether their input
is unchanged. Such a group cannot continue: every trial has a new one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from processes import run_main
from rich.progress import track

WORLD = 4
MIB = 1 << 20


class Process:
    """A forked worker that writes JSON objects, one per line."""

    def __init__(self, work: Callable[[Callable[..., None]], None]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            with os.fdopen(writing, "w", buffering=1) as out:
                work(lambda **words: print(json.dumps(words), file=out))
            os._exit(0)
        os.close(writing)
        self.pidfd = os.pidfd_open(self.pid)
        self._lines = os.fdopen(reading)

    def next(self) -> dict[str, Any]:
        """Return its next JSON object; blocks."""
        line = self._lines.readline()
        if not line:
            raise EOFError(f"worker {self.pid} has ended")
        words: dict[str, Any] = json.loads(line)
        return words

    def kill(self) -> float:
        """Kill the worker; return the time of its end."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        select.select([self.pidfd], [], [])
        ended = time.monotonic()
        os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        self._lines.close()
        return ended


def gloo_worker(
    say: Callable[..., None], store: str, rank: int, count: int, timeout: float
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=timeout),
    )
    tensor = torch.arange(count, dtype=torch.float32) + rank
    before = tensor.clone()
    dist.barrier()
    begun = time.monotonic()
    dist.all_reduce(tensor)
    say(whole=time.monotonic() - begun)
    tensor.copy_(before)
    dist.barrier()
    say(begun=True)
    try:
        dist.all_reduce(tensor)
        failed = False
    except RuntimeError:
        failed = True
    say(failed=failed, end=time.monotonic(), untouched=torch.equal(tensor, before))


def gloo_trial(count: int, timeout: float) -> list[tuple[float, bool]] | None:
    """Return each survivor's seconds until its error, and whether its input was unchanged."""
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            Process(
                lambda say, rank=rank: gloo_worker(say, f"{folder}/store", rank, count, timeout)
            )
            for rank in range(WORLD)
        ]
        whole = max(worker.next()["whole"] for worker in workers)
        for worker in workers:
            worker.next()
        victim = random.choice(workers)
        time.sleep(random.uniform(0.0, 0.7 * whole))  # the moment of the fault
        fault = victim.kill()
        ends = [worker.next() for worker in workers if worker is not victim]
        for worker in workers:
            if worker is not victim:
                worker.kill()
    if not any(end["failed"] for end in ends):
        return None
    return [(end["end"] - fault if end["failed"] else 0.0, end["untouched"]) for end in ends]


def gloo(trials: int, count: int, timeout: float) -> None:
    """Run the trials and print their cost."""
    last: list[float] = []
    late = restored = 0
    for _ in track(range(trials), "gloo", transient=True):
        while (survivors := gloo_trial(count, timeout)) is None:
            pass
        last.append(max(end for end, _ in survivors))
        late += sum(end > 1.0 for end, _ in survivors)
        restored += sum(untouched for _, untouched in survivors)
    total = trials * (WORLD - 1)
    print(
        f"gloo, timeout {timeout:g} s: {trials} trials; until the last survivor has the error: "
        f"median {statistics.median(last):.2f} s, worst {max(last):.2f} s; {late} of {total} "
        f"survivors later than 1 s; {restored} of {total} had their input back; none can go on"
    )


def main() -> None:
    """Run the trials."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--mib", type=int, default=256, help="of float32 per rank")
    parser.add_argument("--timeout", type=float, default=10.0, help="of its group, seconds")
    options = parser.parse_args()
    gloo(options.trials, options.mib * MIB // 4, options.timeout)


if __name__ == "__main__":
    run_main(main)
