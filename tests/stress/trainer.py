"""One process of the churn run: it trains a small GPT with DiLoCo.

The log has a line of JSON for each sync, with a digest of the shared state that is computed without
pccl, and for each outer step with the number of outer steps so far. Now and then it has the loss of
the global parameters on text held out. After an error the process does what the README says: it
calls the optimizer's step again, and joins again with the same trainer if it was declared lost.
"""

from __future__ import annotations

import functools
import importlib
import json
import time
import zlib
from datetime import timedelta
from typing import IO, Any

import torch
import torch.distributed as dist
from worker import USAGE_EVERY, usage

import pccl_backend as pccl
from pccl_backend.demo.data import SYMBOLS, Text, read_standard_library
from pccl_backend.demo.model import CharGpt, loss_of
from pccl_backend.trainers import DiLoCo, Observer, OuterStep
from pccl_backend.trainers.checkpoint import digest_of
from pccl_backend.trainers.engine import PROGRESS

EVERY = 8
KINDS: dict[str, dict[str, Any]] = {
    "blocking": {},
    "overlapped": {"overlap": "auto"},
    "carry": {"overlap": EVERY, "mix": "carry"},
    "streaming": {"fragments": 2, "overlap": 2},
}
CONTEXT, BATCH = 32, 4
TEXT_BYTES_MAX = 1 << 20
CALL_TIMEOUT = timedelta(seconds=60)
LOSS_EVERY = 25  # outer steps


@functools.cache
def text() -> Text:
    """Return the text, which is read once."""
    return Text(read_standard_library(TEXT_BYTES_MAX), context=CONTEXT)


def prepare() -> None:
    """Do before the workers are forked what takes long: they share it."""
    importlib.import_module("torch._dynamo")  # torch.optim needs it
    text()


def digest_of_parameters(trainer: Any) -> str:
    """Return a digest of what is shared, without the counters.

    They may differ for a moment: after a loss, some peers have begun the next boundary.
    """
    tensors = trainer.state_dict()["tensors"]
    return digest_of({name: tensors[name] for name in tensors if name != PROGRESS})


class Reporter(Observer):
    """Writes to the log what is compared with the logs of others."""

    def __init__(self, log: IO[str]) -> None:
        self._log = log
        self._peer = ""  # the name of this peer at the last sync: a new one each time it joins
        self._held = ""  # a digest of what is shared, at the last update_topology

    def topology_updated(self, trainer: Any, topology: pccl.topology.Topology) -> None:
        self._held = digest_of_parameters(trainer)

    def state_synced(self, trainer: Any, info: pccl.state_sync.SyncInfo) -> None:
        digest = f"{info.hash} {trainer.state_dict()['digest']}"
        self.say(agreed=info.revision, digest=digest)
        before, self._peer = self._peer, pccl.run_info(trainer._group).peer
        # The first sync after joining brings what the others hold.
        if self._peer == before and digest_of_parameters(trainer) != self._held:
            self.say(violation="a sync has changed parameters: bits had differed")

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        self.say(stepped=done.revision, world=done.world_size, contributors=done.contributors)
        if done.revision % USAGE_EVERY == 0:
            self.say(usage=usage(trainer._group))

    def say_error(self, effect: str, error: pccl.PcclError) -> None:
        """Report an error; its effect: this process is "out" of the run, or it "waits"."""
        self.say(**{effect: type(error).__name__, "why": str(error)})
        if "its state has" in str(error):
            self.say(violation=f"a trainer was removed for its state: {error}")

    def say(self, **what: Any) -> None:
        self._log.write(json.dumps({"at": time.monotonic(), **what}) + "\n")


class Trainee(Reporter):
    """The life of one process; it ends with its process."""

    def __init__(self, url: str, kind: str, log: IO[str]) -> None:
        super().__init__(log)
        self._url = url
        self._model = CharGpt(symbols=SYMBOLS, context=CONTEXT, layers=2, width=64, heads=4)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        options = KINDS[kind]
        self._outer = DiLoCo(self._model, self._optimizer, every=EVERY, observer=self, **options)

    def run(self) -> None:
        """Join and train; join again each time this process has been declared lost."""
        self._join()
        with self._outer:
            for number in range(1_000_000_000):
                if number % EVERY == 0:
                    batches = self._batches(number)
                loss_of(self._model, next(batches)).backward()  # type: ignore[no-untyped-call]
                try:
                    self._optimizer.step()
                except pccl.OutOfRunError as error:
                    self.say_error("out", error)
                    self._join()
                except pccl.PcclError as error:
                    self.say_error("waits", error)
                self._optimizer.zero_grad()

    def _join(self) -> None:
        """Join and start; again if it fails, because the master may be away."""
        while True:
            if dist.is_initialized():
                dist.destroy_process_group()
            try:
                dist.init_process_group("pccl", init_method=self._url, timeout=CALL_TIMEOUT)
                self._outer.start()
            except pccl.PcclError as error:
                self.say_error("waits", error)
            else:
                return

    def _batches(self, number: int) -> Any:
        seed = zlib.crc32(f"{pccl.run_info().peer} {number}".encode())
        return text().batches(BATCH, seed=seed)

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        super().stepped(trainer, done)
        if done.revision % LOSS_EVERY == 0 and dist.get_rank() == 0:
            with trainer.global_parameters() as model, torch.no_grad():
                loss = loss_of(model, text().validation(128)).item()
            self.say(loss=loss, of=done.revision)


def main(url: str, kind: str, log: str) -> None:
    """Run one process, which writes to `log` until it is killed."""
    torch.set_num_threads(1)
    with open(log, "w", buffering=1) as lines:
        Trainee(url, kind, lines).run()
