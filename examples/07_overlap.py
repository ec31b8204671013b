"""Let the average travel while the peers compute: the same training, blocking and overlapped.

    python examples/07_overlap.py

Two peers train the small GPT of example 06 three times. The first time measures how long the inner
steps between two outer steps take. Then the link is limited so that the all-reduce takes as long.
A blocking trainer computes, then waits, and needs twice the time. With `overlap="auto"` the average
travels while the next inner steps run. Here it travels during all of them, so `mix="carry"` keeps
the progress made meanwhile. That costs some loss, most of it in the first outer steps of a run.

The script runs itself again in a network namespace of its own, where `tc` limits loopback. Root may
do that, and on most machines other users, too. If the machine refuses it, the script reports that.
The link is then fast, so the overlap saves little time.
How the data are divided: as in example 06, by the peer's name and the number of steps.
"""

import functools
import itertools
import os
import statistics
import subprocess
import sys
import time
import zlib

import launch
import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.demo.data import SYMBOLS, Text, read_standard_library
from pccl_backend.demo.model import CharGpt, loss_of
from pccl_backend.trainers import DiLoCo

CONTEXT, BATCH = 64, 8
INNER_STEPS, OUTER_STEPS = 20, 16
RUNS = {"blocking": {"overlap": 0}, "overlapped": {"overlap": "auto", "mix": "carry"}}
NAMESPACE = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
UP = 'ip link set lo up && exec "$@"'
LIMIT = "tc qdisc replace dev lo root tbf burst 128kb latency 1s rate"


def make_model() -> CharGpt:
    return CharGpt(symbols=SYMBOLS, context=CONTEXT, layers=2, width=64, heads=4)


def peer(url: str, number: int, *, run: str, options: dict, results: object) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(number)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = Text(read_standard_library(1 << 20), context=CONTEXT)
    dist.init_process_group("pccl", init_method=f"{url}-{run}?min_peers=2")
    began, waited, last, steps_at = time.monotonic(), 0.0, None, []
    with (
        DiLoCo(model, optimizer, every=INNER_STEPS, **options) as outer,
        launch.progress(OUTER_STEPS, number) as show,
    ):
        for step in range(INNER_STEPS * OUTER_STEPS):
            if step % INNER_STEPS == 0:
                seed = zlib.crc32(f"{pccl.run_info().peer} {step}".encode())
                batches = text.batches(BATCH, seed=seed)
            loss_of(model, next(batches)).backward()
            optimizer.step()
            optimizer.zero_grad()
            if outer.last is not last:  # an outer step has happened
                last = outer.last
                waited += last.time.waited
                steps_at.append(time.monotonic())
                show(len(steps_at))
        seconds = time.monotonic() - began
        outer.finish()  # all peers apply the data still in flight, and compare their hashes
        with outer.global_parameters(), torch.no_grad():
            loss = loss_of(model, text.validation(64)).item()
    line = (
        f"peer {number} ends the {run} run at step {outer.revision} of {step + 1} inner steps, "
        f"world {dist.get_world_size()}, loss {loss:.3f}, "
        f"{CONTEXT * BATCH * (step + 1) / seconds:.0f} tokens/s, waited {waited:.2f} s, "
        f"sent {pccl.run_info().bytes_sent} bytes, hash {outer.last.synced.hash}"
    )
    gaps = [b - a for a, b in itertools.pairwise(steps_at)]
    results.put((statistics.median(gaps), loss, line))
    dist.destroy_process_group()


def train(url: str, run: str, **options: object) -> tuple[float, float, str]:
    """Return the seconds of an outer step, the loss, and the last line of a peer."""
    results = launch.processes.SimpleQueue()
    life = functools.partial(peer, run=run, options=options, results=results)
    launch.run_peers(life, url, starts_s=[0.0, 0.0])
    return results.get()


def main(*, limited: bool) -> None:
    with launch.master() as url:
        compute_s, _, _ = train(url, "unlimited")
        print(f"inner steps alone: {compute_s:.2f} s", flush=True)
        if limited:  # what both peers send to each other passes in that time
            sent = 2 * 4 * sum(p.numel() for p in make_model().parameters())
            subprocess.run([*LIMIT.split(), f"{sent * 8 / compute_s:.0f}"], check=True)
        lines = []
        for run, options in RUNS.items():
            step_s, loss, line = train(url, run, **options)
            ratio = f"{step_s / compute_s:.2f} x the inner steps"
            print(f"{run}: an outer step takes {step_s:.2f} s, {ratio}, loss {loss:.3f}")
            lines.append(line)
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    import torch._dynamo  # torch.optim needs it; slow to import, so once before the peers fork

    inside = sys.argv[1:] == ["inside"]
    within = [*NAMESPACE, "sh", "-c", UP, "sh"]
    trial = [*within, *LIMIT.split(), "1mbit"]
    if not inside and subprocess.run(trial, capture_output=True, check=False).returncode == 0:
        os.execvp(within[0], [*within, sys.executable, __file__, "inside"])
    if not inside:
        print("this machine lets nobody limit a link: the runs use its full speed", flush=True)
    main(limited=inside)
