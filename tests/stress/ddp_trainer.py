"""One process of the churn run of the kind `ddp`: it trains a small network with trainers.DDP.

Two optimizers step after one backward, each with two groups of parameters, and BatchNorm brings
float and integer buffers. The trainer joins the run by its URL, and comes back by itself. After
each step without an error, the log has a digest of the model and the optimizers themselves, which
all peers must hold alike at each revision. After an error the process does what the README says: it
calls the optimizers' steps again, or joins again with a new trainer.
"""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import IO, Any

import torch
from trainer import Reporter
from worker import PAUSE_S

import pccl_backend as pccl
from pccl_backend.trainers import DDP
from pccl_backend.trainers.checkpoint import digest_of

INPUTS, HIDDEN, CLASSES, BATCH = 16, 32, 4, 32
REVISIONS = 1_000_000_000
# Any other error is unexpected. It ends the process, which counts as a violation.
CALL_AGAIN = (pccl.KickedError, pccl.OperationTimeoutError, pccl.TooFewPeersError)
JOIN_AGAIN = (*CALL_AGAIN, pccl.OutOfRunError)


class Averager(Reporter):
    """The life of one process; it ends with its process."""

    def __init__(self, url: str, name: str, log: IO[str]) -> None:
        super().__init__(log)
        self._url = url
        self._name = name
        torch.manual_seed(zlib.crc32(name.encode()))  # the founders' models differ
        body = [torch.nn.Linear(INPUTS, HIDDEN), torch.nn.BatchNorm1d(HIDDEN)]
        head = torch.nn.Linear(HIDDEN, CLASSES)
        self._model = torch.nn.Sequential(*body, torch.nn.Tanh(), head)
        (weight, *biases), others = body[0].parameters(), list(body[1].parameters())
        self._optimizers = [
            torch.optim.SGD(
                [{"params": [weight], "weight_decay": 1e-3}, {"params": [*biases, *others]}],
                lr=0.05,
                momentum=0.9,
            ),
            torch.optim.AdamW(
                [{"params": [head.weight]}, {"params": [head.bias], "weight_decay": 0.0}], lr=1e-3
            ),
        ]
        self._answers = torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(0))

    def run(self) -> None:
        """Join and train; join again each time the master was lost."""
        while True:
            trainer = DDP(self._model, self._optimizers, url=self._url, observer=self)
            try:
                with trainer:
                    while trainer.revision < REVISIONS:
                        self._train(trainer)
            except JOIN_AGAIN as error:
                self.say_error("out", error)
            finally:
                trainer.close()

    def _train(self, trainer: DDP) -> None:
        """Take one step; after an error, the next call continues it with another gradient."""
        seed = zlib.crc32(f"{self._name} {trainer.revision}".encode())
        x = torch.randn(BATCH, INPUTS, generator=torch.Generator().manual_seed(seed))
        loss = torch.nn.functional.cross_entropy(self._model(x), (x @ self._answers).argmax(1))
        loss.backward()  # type: ignore[no-untyped-call]
        try:
            for optimizer in self._optimizers:
                optimizer.step()
        except CALL_AGAIN as error:
            self.say_error("waits", error)
        else:
            self.say(held=trainer.revision, digest=self._digest())
        self._model.zero_grad()
        time.sleep(PAUSE_S)  # stands for a longer forward and backward; no call waits for it

    def _digest(self) -> str:
        """Return a digest of all that the program holds; the trainer is not asked."""
        tensors = dict(self._model.state_dict())
        for number, optimizer in enumerate(self._optimizers):
            for place, values in optimizer.state_dict()["state"].items():
                tensors |= {f"{number} {place} {name}": value for name, value in values.items()}
        return digest_of(tensors)

    def came_back(self, trainer: Any, why: pccl.KickedError) -> None:
        self.say_error("out", why)


def main(url: str, log: str) -> None:
    """Run one process, which writes to `log` until it is killed."""
    torch.set_num_threads(1)
    with open(log, "w", buffering=1) as lines:
        Averager(url, Path(log).name, lines).run()
