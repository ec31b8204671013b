"""How long newcomers take to get a shared state, and who sends it, when uplinks are narrow.

    tools/stock-network.sh .venv/bin/python benchmarks/state_star.py

Each peer is in a network namespace of its own, as if on a machine of its own, and all are joined by
a bridge. The uplink of each peer is limited (tc tbf), its downlink is not: so are most machines of
volunteers. `full` peers have the state, and `new` ones ask for it with `receive_only`. Serving one
newcomer alone takes as long as the state takes on one uplink: all other times are given as
multiples of it.

With `--kill` a peer is killed when half of the state has arrived. The result is how much the
newcomers that are left have received, as a multiple of the state.

With `--join` the peers train while one of them fetches the state in the background: an outer step
is `--sleep` seconds of computing, and an all-reduce of as many bytes as the state has. The result
is how much longer an outer step takes if it overlaps the download:

    tools/stock-network.sh .venv/bin/python benchmarks/state_star.py --join --mib 128 --mbit 25
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))

from network import HUB, Machine, make_hub, own_boot_id
from processes import Master, ask, end, read_line, run_main

CASES = ((1, 1), (1, 4), (2, 2))
KILLS = {"a source": (2, 3, 1), "an owner": (1, 4, 4)}  # full and new peers, and who is killed
RECEIVED_GOAL = 1.15
JOIN = (1, 1)  # full and new peers: the download takes longest
LATER_STEPS = 10
LONGER_GOAL = 1.05  # the longest step that overlaps the download, by the median of the later ones
GOALS = {(1, 4): 1.6, (2, 2): 0.7}  # of the time of (1, 1)
ENTRY_BYTES = 16 << 20
ENVIRONMENT = {"PCCL_LOG": "warning", "OMP_NUM_THREADS": "1"}


def rank(url: str, world: int, full: bool, mib: int) -> None:
    """One peer: answers each line of input with one sync."""
    import torch
    import torch.distributed as dist

    import pccl_backend as pccl

    dist.init_process_group("pccl", init_method=f"{url}?min_peers=1&founders={world}")
    entries = max(1, (mib << 20) // ENTRY_BYTES)
    elements = (mib << 20) // entries // 4
    tensors = {f"w{i}": torch.zeros(elements) for i in range(entries)}
    print("ready", flush=True)
    for round_number, _ in enumerate(sys.stdin):
        for tensor in tensors.values():
            tensor.fill_(round_number + 1 if full else 0)
        revision = round_number + 1 if full else 0
        state = pccl.SharedState(tensors, revision=revision)
        dist.barrier()
        start = time.monotonic()
        info = pccl.sync_shared_state(state, strategy="send_only" if full else "receive_only")
        seconds = time.monotonic() - start
        right = all(bool((tensor == round_number + 1).all()) for tensor in tensors.values())
        print(json.dumps([seconds, info.tx_bytes, info.rx_bytes, right]), flush=True)
    dist.destroy_process_group()


def train(url: str, world: int, full: bool, mib: int, sleep: float) -> None:
    """One peer: takes outer steps until the newcomer has the state, and some more."""
    import torch
    import torch.distributed as dist

    import pccl_backend as pccl

    dist.init_process_group("pccl", init_method=f"{url}?min_peers=1&founders={world}")
    weights = torch.full((mib << 18,), 1.0 if full else 0.0)
    pseudo_gradient = torch.ones(mib << 18)
    dist.all_reduce(pseudo_gradient)  # connections and memory are warm
    print("ready", flush=True)
    sys.stdin.readline()
    state = pccl.SharedState({"weights": weights}, revision=int(full))
    strategy = "send_only" if full else "receive_only"
    sync = pccl.sync_shared_state(state, strategy, async_op=True)
    steps: list[tuple[float, bool]] = []
    later = 0
    while later < LATER_STEPS:
        fetches = torch.tensor(float(not sync.is_completed()))
        dist.all_reduce(fetches, op=dist.ReduceOp.MAX)
        later += not bool(fetches)
        start = time.monotonic()
        # No event is awaited here. The workload is an outer step whose computation takes --sleep
        # seconds on a GPU and leaves the cores free, so that steps differ by communication only.
        time.sleep(sleep)  # the computation itself: its length is an input of the benchmark
        dist.all_reduce(pseudo_gradient)
        steps.append((time.monotonic() - start, bool(fetches)))
    sync.wait()
    print(json.dumps([steps, bool((weights == 1).all())]), flush=True)
    dist.destroy_process_group()


Ranks = list[subprocess.Popen[str]]


@contextmanager
def started(full: int, new: int, first: int, options: argparse.Namespace) -> Iterator[Ranks]:
    """Start the peers on machines of their own; the numbers of the machines begin with `first`."""
    world = full + new
    machines = [Machine(first + number) for number in range(world)]
    master = Master(HUB)
    ranks: Ranks = []
    boot_ids = tempfile.TemporaryDirectory(prefix="pccl-star-")
    try:
        for number, machine in enumerate(machines):
            place = ["nsenter", f"--net={machine.namespace}"]
            limit = (
                f"tc qdisc add dev eth0 root tbf rate {options.mbit}mbit burst 64kb latency 50ms"
            )
            subprocess.run([*place, *limit.split()], check=True)
            command = [sys.executable, __file__, "--mib", str(options.mib), "--world", str(world)]
            command += ["--rank", f"pccl://{master.address}/star", *(["--full"] * (number < full))]
            command += ["--sleep", str(options.sleep), *(["--join"] * options.join)]
            place += own_boot_id(Path(boot_ids.name), number)
            pipe = subprocess.PIPE
            environment = {**os.environ, **master.environment, **ENVIRONMENT}
            ranks.append(
                subprocess.Popen(
                    [*place, *command], stdin=pipe, stdout=pipe, text=True, env=environment
                )
            )
        for one in ranks:
            assert read_line(one).strip() == "ready"
        yield ranks
    finally:
        end(ranks, master)
        boot_ids.cleanup()


def measure(full: int, new: int, first: int, options: argparse.Namespace) -> tuple[float, ...]:
    """Return seconds, and the largest amounts that full and new peers have sent, in states."""
    results = []
    with started(full, new, first, options) as ranks:
        for _ in range(options.rounds):
            said = [json.loads(line) for line in ask(ranks, "go")]
            assert all(right for *_, right in said), "a newcomer has another state"
            sent = [tx / (options.mib << 20) for _, tx, _, _ in said]
            results.append((max(s for s, *_ in said), max(sent[:full]), max(sent[full:])))
    return sorted(results)[len(results) // 2]


def kill(full: int, new: int, dies: int, first: int, options: argparse.Namespace) -> float:
    """Return the largest amount that a remaining newcomer has received, in states."""
    with started(full, new, first, options) as ranks:
        for one in ranks:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        time.sleep(options.mib * 8.4 / options.mbit / full / 2)  # half of it is there by then
        ranks[dies].kill()
        left = [one for number, one in enumerate(ranks) if number != dies]
        said = [json.loads(read_line(one)) for one in left]
        assert all(right for *_, right in said), "a newcomer has another state"
        received: int = max(rx for _, _, rx, _ in said)
        return received / (options.mib << 20)


def show_join(options: argparse.Namespace) -> None:
    print(f"{options.mib} MiB, uplinks of {options.mbit} Mbit/s, steps of {options.sleep} s")
    with started(*JOIN, 1, options) as ranks:
        said = [json.loads(line) for line in ask(ranks, "go")]
    assert all(right for _, right in said), "the newcomer has another state"
    steps = [max(times) for times in zip(*([s for s, _ in one] for one, _ in said), strict=True)]
    count = sum(fetches for _, fetches in said[0][0])  # these are the first ones
    later = sorted(steps[count:])
    usual = later[len(later) // 2]
    during = [one / usual for one in steps[:count]]
    text = ", ".join(f"{one:.3f}" for one in during)
    print(f"a later step takes {usual:.2f} s; those that overlap the download: {text} of that")
    print(f"the longest: {max(during):.3f}, goal {LONGER_GOAL}")


def show_kills(options: argparse.Namespace) -> None:
    for number, (name, (full, new, dies)) in enumerate(KILLS.items()):
        received = kill(full, new, dies, 1 + number * 5, options)
        print(f"{name} killed: received {received:4.2f} states, at most; goal {RECEIVED_GOAL}")


def show_times(options: argparse.Namespace) -> None:
    print(f"{options.mib} MiB, uplinks of {options.mbit} Mbit/s, median of {options.rounds}")
    alone = 0.0
    first = 1
    for full, new in CASES:
        seconds, of_full, of_new = measure(full, new, first, options)
        first += full + new
        alone = alone or seconds
        goal = GOALS.get((full, new))
        print(
            f"{full} full, {new} new: {seconds:6.2f} s, {seconds / alone:4.2f} of serving one"
            + (f" (goal {goal})" if goal else "")
            + f"; a full peer sent {of_full:4.2f} states, a new one {of_new:4.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="size of the state")
    parser.add_argument("--mbit", type=int, default=100, help="rate of each uplink")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--world", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--full", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--kill", action="store_true", help="kill peers instead")
    parser.add_argument("--join", action="store_true", help="train meanwhile instead")
    parser.add_argument("--sleep", type=float, default=20, help="seconds of an outer step's work")
    options = parser.parse_args()
    if options.rank and options.join:
        train(options.rank, options.world, options.full, options.mib, options.sleep)
    elif options.rank:
        rank(options.rank, options.world, options.full, options.mib)
    else:
        make_hub()
        show = show_join if options.join else show_kills if options.kill else show_times
        show(options)


if __name__ == "__main__":
    run_main(main)
