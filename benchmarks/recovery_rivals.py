"""The cost of losing a peer with Gloo and with torchft: the same fault as in recovery.py.

    python3 -m venv build/rivals && build/rivals/bin/pip install torchft numpy rich
    tools/stock-network.sh build/rivals/bin/python benchmarks/recovery_rivals.py gloo
    tools/stock-network.sh build/rivals/bin/python benchmarks/recovery_rivals.py torchft

World 4, an all-reduce of 256 MiB float32 under way, SIGKILL of a random peer at a random moment;
times count from the end of its process.

    gloo     until the survivors have the error, and whether their input is unchanged. Such a group
             cannot continue: every trial has a new one
    torchft  one all-reduce per step, with the default lighthouse and timeouts, or with --timeout:
             until the survivors have committed their next step. Every trial has a new group: four
             replicas that heal each other at every step may never meet in one quorum again
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import statistics
import sys
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
SETTLING_S = 120.0


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

    def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + SETTLING_S
        while time.monotonic() < deadline:
            words = self.next()
            if true(words):
                return words
        raise TimeoutError(f"worker {self.pid} is not there after {SETTLING_S} s")

    def kill(self) -> float:
        """Kill the worker; return the time of its end."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        select.select([self.pidfd], [], [])
        ended = time.monotonic()
        os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        self._lines.close()
        return ended


# ---- Gloo ----------------------------------------------------------------------------------------


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


# ---- torchft -------------------------------------------------------------------------------------


def torchft_worker(
    say: Callable[..., None], lighthouse: str, name: str, count: int, timeout: float
) -> None:
    from torchft import Manager, ProcessGroupGloo

    torch.set_num_threads(1)
    source = torch.ones(count)
    tensor = torch.ones(count)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=timeout)),
        min_replica_size=1,
        load_state_dict=lambda state: None,
        state_dict=lambda: {"weights": torch.zeros(1)},
        replica_id=name,
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
        timeout=timedelta(seconds=timeout),
    )
    while True:
        begun = time.monotonic()
        manager.start_quorum()
        tensor.copy_(source)
        manager.allreduce(tensor).wait()
        committed = manager.should_commit()
        say(
            committed=committed,
            world=manager.num_participants(),
            begun=begun,
            end=time.monotonic(),
        )


def serve_lighthouse(say: Callable[..., None]) -> None:
    """Serve in a separate process, so that no process with its threads is forked."""
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1)
    say(address=server.address())
    signal.pause()


def torchft_trial(count: int, timeout: float) -> float | None:
    """Return seconds until all survivors committed the next step; None: one broke down."""

    def spawn(lighthouse: str, name: str) -> Process:
        return Process(lambda say: torchft_worker(say, lighthouse, name, count, timeout))

    def whole(words: dict[str, Any]) -> bool:
        return bool(words["committed"] and words["world"] == WORLD)

    lighthouse = Process(serve_lighthouse)
    address = lighthouse.next()["address"]
    workers = [spawn(address, f"replica{number}") for number in range(WORLD)]
    try:
        step = 0.0
        for worker in workers:
            words = worker.until(whole)
            step = words["end"] - words["begun"]
        victim = random.choice(workers)
        workers.remove(victim)
        time.sleep(random.uniform(0.0, 0.7 * step))  # the moment of the fault
        fault = victim.kill()

        def after(words: dict[str, Any]) -> bool:
            return bool(words["committed"] and words["end"] > fault and words["world"] < WORLD)

        return max(worker.until(after)["end"] for worker in workers) - fault
    except (EOFError, TimeoutError) as error:
        print(f"a trial that does not count: {error}; see its error above")
        return None
    finally:
        for process in [*workers, lighthouse]:
            process.kill()


def torchft(trials: int, count: int, timeout: float) -> None:
    """Run the trials and print their cost."""
    times: list[float] = []
    broken = 0
    for _ in track(range(trials), "torchft", transient=True):
        while (seconds := torchft_trial(count, timeout)) is None:
            broken += 1
            if broken > trials:
                sys.exit(f"{broken} trials broke down: see the errors above")
        times.append(seconds)
    print(
        f"torchft, timeout {timeout:g} s: {trials} trials; until all survivors have committed the "
        f"next step: median {statistics.median(times):.2f} s, best {min(times):.2f} s, worst "
        f"{max(times):.2f} s; {broken} more in which a survivor broke down"
    )


def main() -> None:
    """Run the trials of one rival."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rival", choices=("gloo", "torchft"))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--mib", type=int, default=256, help="of float32 per rank")
    parser.add_argument("--timeout", type=float, help="of its process group, seconds")
    options = parser.parse_args()
    rival = gloo if options.rival == "gloo" else torchft
    usual = 10.0 if options.rival == "gloo" else 60.0
    rival(options.trials, options.mib * MIB // 4, options.timeout or usual)


if __name__ == "__main__":
    run_main(main)
