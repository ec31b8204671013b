"""Two ranks call the same 32 all-reduces in opposite orders: with pccl, and with Gloo.

    python examples/13_any_order.py            # both, in turn
    python examples/13_any_order.py gloo       # one of them

The layers of the model have different sizes the first time, and one size the second time. Each call
has a tag, by which pccl finds the same call of the other rank. Gloo has no tags: it sums the first
call of one rank with the first call of the other one. Both backends run the same function, `train`.
A rank that has not finished after 20 seconds is ended, since many backends hang here.
"""

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

import pccl_backend as pccl

LAYERS = 32
SIZES = {"different sizes": [1000 * (i + 1) for i in range(LAYERS)], "one size": [1000] * LAYERS}
LIMIT_S = 20.0

# Forked, so that torch is imported once.
processes = multiprocessing.get_context("fork")


def train(backend: str, rank: int, meeting: str, sizes: Sequence[int]) -> None:
    """Be one of the two ranks: sum the gradients of all layers, and check the sums."""
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=2)
    gradients = [torch.full((size,), float(rank + i)) for i, size in enumerate(sizes)]
    order = range(LAYERS) if rank == 0 else reversed(range(LAYERS))
    works = []
    for i in order:
        with pccl.tag(f"layer.{i}"):
            works.append(dist.all_reduce(gradients[i], async_op=True))
    for work in works:
        work.wait()
    right = sum(bool((gradient == 2 * i + 1).all()) for i, gradient in enumerate(gradients))
    print(f"{backend}, rank {rank}: {right} of {LAYERS} sums are right", flush=True)
    dist.destroy_process_group()
    os._exit(0)  # Gloo's threads outlive the group


def run(backend: str, kind: str) -> None:
    """Run both ranks with this backend, for a limited time."""
    print(f"{backend}, {kind}:", flush=True)
    until = time.monotonic() + LIMIT_S
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(2):
            arguments = (backend, rank, f"{folder}/meeting", SIZES[kind])
            ranks.append(processes.Process(target=train, args=arguments, daemon=True))
            ranks[-1].start()
        for rank, process in enumerate(ranks):
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode is None:
                print(f"{backend}, rank {rank}: hangs, and is ended", flush=True)
            elif process.exitcode != 0:
                print(f"{backend}, rank {rank}: has failed, see its error", flush=True)
        for process in ranks:
            process.kill()
            process.join()


if __name__ == "__main__":
    for name in sys.argv[1:] or ["pccl", "gloo"]:
        for kind in SIZES:
            run(name, kind)
