"""Process pool: a process that has imported torch once and forks every worker of the stress run.

A line `NAMESPACE LOG URL` on standard input starts a worker; the answer is its process id. The
standard error of a worker goes to LOG.err. The pool and all its workers end when standard input
ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import network
import worker

import pccl_backend

PR_SET_PDEATHSIG = 1


def main() -> None:
    _ = pccl_backend.PcclError  # loads the extension
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        namespace, log, url = line.split()
        pid = os.fork()
        if pid == 0:
            _become_worker(namespace, log, url)
        print(pid, flush=True)


def _become_worker(namespace: str, log: str, url: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(log + ".err", "w") as errors:
        os.dup2(errors.fileno(), 2)
    try:
        network.enter(namespace)
        worker.main(url, log)
    finally:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


if __name__ == "__main__":
    main()
