"""A run in which processes die all the time: 1,000 operations, and 100 processes that are killed.

One member stays. The others are killed at random moments, and started again. Each operation gives
the right result, or the same error to all; then its tensor is as before. In the end all members
have the same state, and the one that stayed has no more memory than at its beginning.
"""

from __future__ import annotations

import os
import random
import time
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Event
from typing import Any

import members
import ranks
import torch
import torch.distributed as dist
from check import end, expect, report, skip
from check_loss import pinned_bytes

import pccl_backend as pccl

OPERATIONS = 1000
KILLS = int(os.environ.get("GPU_CHECK_KILLS", "100"))
WORKERS = 8
LIMIT_S = 85.0
ELEMENTS = 1 << 18
PAUSE_MAX_S = 0.3  # between a start that is complete and a kill
SETTLED = 20  # steps after which the memory is measured for the first time


class Part:
    """What one member does, step by step, until all agree to stop."""

    def __init__(self, stays: bool, stopping: Event) -> None:
        self.stays, self.stopping = stays, stopping
        self.weights = torch.zeros(ELEMENTS, device=ranks.DEVICE)
        self.state = pccl.SharedState({"weights": self.weights}, revision=0)
        self.operations = self.losses = self.changed = self.wrong = 0

    def operate(self, tensor: torch.Tensor, call: Any, expected: torch.Tensor) -> None:
        before = tensor.clone()
        ranks.synchronize()
        try:
            call(tensor)
        except pccl.PeerLostError:
            self.changed += not torch.equal(tensor, before)
            raise
        self.operations += 1
        self.wrong += not torch.equal(tensor, expected)

    def step(self) -> bool:
        """Make four operations; return whether all members stop."""
        rank, size = dist.get_rank(), dist.get_world_size()

        def full(value: float) -> torch.Tensor:
            return torch.full((ELEMENTS,), value, device=ranks.DEVICE)

        total = size * (size + 1) / 2
        self.operate(full(rank + 1.0), dist.all_reduce, full(total))
        self.operate(full(rank + 1.0), lambda one: dist.broadcast(one, size - 1), full(size))
        blocks = torch.zeros(size * 1000, device=ranks.DEVICE)
        own = torch.full((1000,), float(rank), device=ranks.DEVICE)
        everyones = torch.arange(size, device=ranks.DEVICE).repeat_interleave(1000).float()
        self.operate(blocks, lambda one: dist.all_gather_into_tensor(one, own), everyones)
        enough = self.stays and self.stopping.is_set() and self.operations >= OPERATIONS
        stop = torch.full((1,), float(enough), device=ranks.DEVICE)
        dist.all_reduce(stop)
        self.operations += 1
        self.weights += total
        self.state.revision += 1
        return bool(stop.item() > 0)


def memory() -> dict[str, int]:
    ranks.synchronize()
    allocated = torch.cuda.memory_allocated() if ranks.DEVICE == "cuda" else 0
    return {"allocated": allocated, "pinned": pinned_bytes()}


def member(answers: Connection, url: str, stays: bool, stopping: Event) -> None:
    torch.set_num_threads(1)  # more threads of so many processes would only wait for each other
    dist.init_process_group("pccl", init_method=url, timeout=timedelta(seconds=30))
    part = Part(stays, stopping)
    steps, admitted, stop = 0, True, False
    first: dict[str, int] | None = None
    while True:
        try:
            if not admitted:
                pccl.update_topology()
            admitted = False
            info = pccl.sync_shared_state(part.state)
            if stop:
                break
            stop = part.step()
        except pccl.PeerLostError:
            part.losses += 1
            continue
        steps += 1
        if steps == 1:
            answers.send(("in", None))
        if stays and steps == SETTLED:
            first = memory()
    deadline = time.monotonic() + 5
    last = memory()
    while first and last["pinned"] > first["pinned"] and time.monotonic() < deadline:
        time.sleep(0.01)  # torch announces no freed memory: ask again until the deadline
        last = memory()
    counts = {name: getattr(part, name) for name in ("operations", "losses", "changed", "wrong")}
    answers.send(("done", {**counts, "hash": info.hash, "first": first, "last": last}))
    stopping.wait(LIMIT_S)
    dist.destroy_process_group()


def left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def drive(url: str, deadline: float) -> tuple[list[dict[str, Any]], int]:
    """Kill members and start them again; return what the members have seen in the end."""
    stopping = members.context.Event()

    def start(stays: bool = False) -> members.Member:
        return members.Member(member, url, stays, stopping)

    chance = random.Random(1)
    stayed = start(stays=True)
    stayed.receive(left(deadline))
    starting = [start() for _ in range(WORKERS)]
    running: list[members.Member] = []
    kills = 0
    while (starting or kills < KILLS) and time.monotonic() < deadline:
        if not running or kills == KILLS:
            wait([one.end for one in starting], timeout=left(deadline))
        for one in [one for one in starting if one.end.poll()]:
            one.receive(left(deadline))
            starting.remove(one)
            running.append(one)
        if not running or kills == KILLS:
            continue
        time.sleep(chance.uniform(0, PAUSE_MAX_S))  # the moment of death is the fault itself
        running.pop(chance.randrange(len(running))).kill()
        starting.append(start())
        kills += 1
    stopping.set()
    found = [one.receive(left(deadline) + 5)[1] for one in (stayed, *running)]
    for one in (stayed, *running, *starting):
        one.kill()
    return found, kills


def main() -> None:
    if not ranks.available():
        skip("torch sees no GPU")
    start = time.monotonic()
    with members.master() as url:
        found, kills = drive(f"{url}/kills?min_peers=1", start + LIMIT_S)
    stayed = found[0]
    report(kills=kills, seconds=round(time.monotonic() - start, 1), members=len(found))
    report(operations=stayed["operations"], losses=stayed["losses"])
    expect(kills == KILLS, f"{kills} processes were killed, not {KILLS}")
    expect(stayed["operations"] >= OPERATIONS, f"{stayed['operations']} operations have succeeded")
    expect(stayed["losses"] > 0, "no operation has seen a loss")
    expect(sum(one["changed"] for one in found) == 0, "a failed operation has changed its tensor")
    expect(sum(one["wrong"] for one in found) == 0, "an operation had a wrong result")
    expect(len({one["hash"] for one in found}) == 1, "the states differ")
    for what, before in stayed["first"].items():
        after = stayed["last"][what]
        report(**{f"{what}_before": before, f"{what}_after": after})
        expect(after <= before, f"{after - before} bytes of {what} memory did not come back")
    end()


if __name__ == "__main__":
    main()
