"""Start a master and some peers on this machine, so that each example is one command.

In practice these are two commands, the second on as many machines as you like:

    pccl master --host 0.0.0.0       # after `pccl token new NAME --out FILE`
    PCCL_SECRET_FILE=FILE python train.py      # init_method="pccl://MASTER:48148/my-run"
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import NoReturn

PEERS_TIMEOUT_S = 60.0

# A host of its own, here on loopback. On a machine with a name that resolves, `torchrun
# --standalone` does the same.
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--local-addr=127.0.0.1"]
TORCHRUN += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]

# Forked, so that torch is imported once and not for each peer.
processes = multiprocessing.get_context("fork")


def say(line: str) -> None:
    """Print a line in one piece. Under torchrun, `print` writes the line and its end apart, and the
    lines of several processes mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def end_process() -> NoReturn:
    """End this process at once. Gloo's threads outlive `destroy_process_group`, and now and then
    they abort a process on a busy machine that ends in the usual way (torch 2.15)."""
    sys.stdout.flush()
    os._exit(0)


@contextlib.contextmanager
def master() -> Iterator[str]:
    """Run a master at a free port of this machine; yield the URL of a run on it."""
    os.environ.pop("PCCL_SECRET_FILE", None)  # a master on loopback asks for no token
    command = [sys.executable, "-m", "pccl_backend.cli", "master", "--port", "0"]
    quiet = {"PCCL_LOG": "warning", **os.environ}  # the peers say who joins
    # Python looks for modules in this folder first. The caller's may be the source of pccl.
    folder = os.path.dirname(os.path.abspath(__file__))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=quiet, cwd=folder)
    try:
        assert process.stdout is not None
        first_line = process.stdout.readline()  # "pccl master listening on 127.0.0.1:48148"
        assert "listening on" in first_line, f"the master did not start: {first_line!r}"
        yield f"pccl://{first_line.split()[-1]}/example"
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def progress(total: int, number: int) -> Iterator[Callable[[int], None]]:
    """Show how many outer steps peer 0 has done; yield the function that takes the number.

    There is a bar only on a terminal, and if `rich` is installed.
    """
    if number > 0 or not sys.stdout.isatty() or find_spec("rich") is None:
        yield lambda done: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("outer steps", total=total)
        yield lambda done: bar.update(task, completed=done)


def run_peers(
    peer: Callable[[str, int], None], url: str, *, starts_s: list[float], killed: int = 0
) -> None:
    """Run `peer(url, number)` in one process for each start time, and wait for all.

    Args:
        peer: function that each process runs.
        url: first argument of the function.
        starts_s: start time of each process, in order, in seconds from now.
        killed: number of processes that are expected to end by SIGKILL.
    """
    until = time.monotonic() + PEERS_TIMEOUT_S
    begun_at = time.monotonic()
    running: list[multiprocessing.process.BaseProcess] = []
    try:
        for number, start_s in enumerate(starts_s):
            time.sleep(max(0.0, begun_at + start_s - time.monotonic()))
            running.append(processes.Process(target=peer, args=(url, number), daemon=True))
            running[-1].start()
        for process in running:
            process.join(max(0.0, until - time.monotonic()))
    finally:
        for process in running:
            process.kill()
            process.join()
    codes = [process.exitcode for process in running]
    expected = [-signal.SIGKILL] * killed + [0] * (len(codes) - killed)
    assert sorted(codes) == expected, f"exit codes of the peers: {codes}"
