"""Process pool: a process that has imported torch once and forks every worker of the stress run.

A line `NAMESPACE LOG URL KIND` on standard input starts a worker; the answer is its process id.
KIND is `collectives` (worker.py), `ddp` (ddp_trainer.py) or a kind of DiLoCo (trainer.py). The
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

import ddp_trainer
import network
import trainer
import worker

import pccl_backend

PR_SET_PDEATHSIG = 1


def main() -> None:
    _ = pccl_backend.PcclError  # loads the extension
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    trainer.prepare()
    print("ready", flush=True)
    for line in sys.stdin:
        namespace, log, url, kind = line.split()
        pid = os.fork()
        if pid == 0:
            _become_worker(namespace, log, url, kind)
        print(pid, flush=True)


def _become_worker(namespace: str, log: str, url: str, kind: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(log + ".err", "w") as errors:
        os.dup2(errors.fileno(), 2)
    try:
        network.enter(namespace)
        if kind == "collectives":
            worker.main(url, log)
        elif kind == "ddp":
            ddp_trainer.main(url, log)
        else:
            trainer.main(url, kind, log)
    finally:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


if __name__ == "__main__":
    main()
