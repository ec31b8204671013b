"""The price of watching a run: its steps and its ballots without visitors, with some, with many.

    tools/stock-network.sh .venv/bin/python benchmarks/watched.py

Three runs of two members, each with a master of its own that has --http, take turns. Nobody looks
at the first one. At the second one a page reads its stream, and its metrics are fetched each
second. The third one has 1,000 visitors that disturb: one third sends nothing, one third half a
request, one third asks for a stream and never reads it. A visitor that loses its connection is
replaced, at most 1,000 in a second.

A round is 40 steps, each an all-reduce of 4 MiB after 10 ms of work, and then 20 ballots (an
update_topology that changes nothing). Ratios are medians over the pairs of a round, with their 90 %
bootstrap interval.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import resource
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import records
from options import at_least_one
from processes import Master, ask_together, cpu_seconds, end, read_line, run_main, wait_for_start
from sections import table
from verdict import Figure, Pair, compare

STEPS, BALLOTS = 40, 20
WORK_S = 0.01
VISITORS = 1000
MIB = 1 << 20
REQUESTS = [
    b"",
    b"GET / HTTP/1.1\r\nHost: ",
    b"GET /events?run=watched HTTP/1.1\r\nHost: %s\r\n\r\n",
]
KINDS = ("nobody looks", "a page and metrics", f"{VISITORS} visitors that disturb")


def rank_main(url: str) -> None:
    """Join; measure one round for each line on stdin (processes.ask_together)."""
    import torch
    import torch.distributed as dist

    import pccl_backend as pccl

    torch.set_num_threads(1)
    dist.init_process_group("pccl", init_method=url)
    print("ready", flush=True)
    tensor = torch.ones(4 * MIB // 4)
    for _ in sys.stdin:
        wait_for_start()
        began = time.monotonic()
        for _ in range(STEPS):
            until = time.monotonic() + WORK_S
            while time.monotonic() < until:
                torch.ones(1000).sum()
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        steps = time.monotonic() - began
        ballots = []
        for _ in range(BALLOTS):
            began = time.monotonic()
            pccl.update_topology()
            ballots.append(time.monotonic() - began)
        print(steps, *ballots, flush=True)
    dist.destroy_process_group()


def watch(page: str, goes_on: threading.Event) -> None:
    """Read the stream of the run as a page does, and fetch the metrics each second."""
    place = urlsplit(page)
    assert place.hostname is not None
    stream = http.client.HTTPConnection(place.hostname, place.port, timeout=10)
    stream.request("GET", "/events?run=watched")
    answer = stream.getresponse()
    assert answer.status == 200, answer.read()
    fetched = 0.0
    while goes_on.is_set():
        answer.readline()
        if time.monotonic() - fetched < 1:
            continue
        fetched = time.monotonic()
        metrics = http.client.HTTPConnection(place.hostname, place.port, timeout=10)
        metrics.request("GET", "/metrics")
        assert metrics.getresponse().read().startswith(b"# HELP")
        metrics.close()
    stream.close()


def disturb(page: str) -> None:
    """Hold so many connections to a page until stdin ends."""
    os.nice(19)  # real strangers use computers of their own
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * VISITORS, 2 * VISITORS))
    place = urlsplit(page)
    poll = select.epoll()
    poll.register(0, select.EPOLLIN)
    held: dict[int, socket.socket] = {}
    opened = 0
    while True:
        for number, _ in poll.poll(0.02):
            if number == 0:
                return
            poll.unregister(number)
            held.pop(number).close()
        for _ in range(min(20, VISITORS - len(held))):
            connection = socket.create_connection((place.hostname, place.port))
            request = REQUESTS[opened % len(REQUESTS)]
            opened += 1
            with contextlib.suppress(OSError):  # the master has closed it already
                connection.send(request % place.netloc.encode() if b"%" in request else request)
            held[connection.fileno()] = connection
            poll.register(connection.fileno(), select.EPOLLRDHUP)


class Run:
    """A master with its page, and two members."""

    def __init__(self) -> None:
        self.master = Master(page=True)
        url = f"pccl://{self.master.address}/watched?min_peers=2"
        self.ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank-of", url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for _ in range(2)
        ]
        self.steps: list[float] = []
        self.ballots: list[list[float]] = []  # of each round
        self.cpu = 0.0  # seconds of the master, in its own rounds

    def round(self, *, counts: bool) -> None:
        before = cpu_seconds(self.master.pid)
        answers = [list(map(float, line.split())) for line in ask_together(self.ranks, "round")]
        if counts:
            self.cpu += cpu_seconds(self.master.pid) - before
            self.steps.append(max(steps for steps, *_ in answers))
            self.ballots.append([max(pair) for pair in zip(*(b for _, *b in answers), strict=True)])


@contextlib.contextmanager
def three_runs() -> Iterator[list[Run]]:
    """Yield the runs of KINDS, with their visitors."""
    with contextlib.ExitStack() as ends:
        runs = []
        for _ in KINDS:
            runs.append(Run())
            ends.callback(end, runs[-1].ranks, runs[-1].master)
        for run in runs:
            for rank in run.ranks:
                read_line(rank)
        goes_on = threading.Event()
        goes_on.set()
        watcher = threading.Thread(target=watch, args=[runs[1].master.page, goes_on])
        watcher.start()
        ends.callback(watcher.join)
        ends.callback(goes_on.clear)
        command = [sys.executable, __file__, "--visit", runs[2].master.page]
        disturber = ends.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
        assert disturber.stdin is not None
        ends.callback(disturber.stdin.close)
        yield runs
        assert watcher.is_alive(), "the page has ended"
        assert disturber.poll() is None, "the visitors have ended"


def memory_mib(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=21)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    parser.add_argument("--visit", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_main(given.rank_of)
        return
    if given.visit:
        disturb(given.visit)
        return
    with three_runs() as runs:
        for number in range(-1, given.rounds):
            for place in range(3):  # each begins as often as the others
                runs[(number + place) % 3].round(counts=number >= 0)  # the first one is a warm-up
        memory = [memory_mib(run.master.pid) for run in runs]
    rows = []
    for kind, run, mib in zip(KINDS, runs, memory, strict=True):
        pairs = [
            Pair(base=Figure(wall=base), new=Figure(wall=new))
            for base, new in zip(runs[0].steps, run.steps, strict=True)
        ]
        steps = compare(pairs)
        ballots = sorted(1000 * took for one in run.ballots for took in one)
        p99 = ballots[int(0.99 * (len(ballots) - 1))]
        rows.append(
            [
                kind,
                records.spread(run.steps),
                f"{steps.ratio:.3f} ({steps.low:.3f}-{steps.high:.3f})",
                f"{statistics.median(ballots):.2f} ms",
                f"{p99:.2f} ms",
                f"{100 * run.cpu / sum(run.steps):.1f} %",
                f"{mib:.1f} MiB",
            ]
        )
    head = (f"{STEPS} steps, {BALLOTS} ballots", "steps", "÷ nobody", "ballot", "p99")
    print(table([*head, "CPU of the master", "its memory"], rows))


if __name__ == "__main__":
    run_main(main)
