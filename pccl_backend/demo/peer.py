"""One peer of the demo: a process that trains and reports its progress.

Standard output carries one JSON object a line: `kind`, `at` (the machine's monotonic clock), and

    ready       parameters                              the model is built, nothing is connected yet
    admitted    id, rank, world_size                    init_process_group returned
    started     revision, hash, received_bytes          the first sync_shared_state returned
    inner       step, loss, began                       one inner step, and when it began
    posted      step, attempt                           the all-reduce of that outer step runs
    failed      step, attempt, error, message, untouched   whether the tensor is as before
    committed   step, attempt
    met         revision, epoch, world_size, joined, left, topology_s, sync_s, hash, received_bytes
    validated   revision, loss                          on the text held out, with global parameters
    done        revision, digest                        SHA-256 over the parameters' bytes

Standard input carries orders: each line `go` releases one hold (see `--newcomer`, `--hold-step`).
The end of standard input means that the demo is over: this process then exits too.

The all-reduce of an outer step runs while the peer takes its next inner steps (`overlap="auto"`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.demo.data import SYMBOLS, Text, read_standard_library
from pccl_backend.demo.model import CharGpt, loss_of
from pccl_backend.demo.settings import Settings
from pccl_backend.state_sync import SyncInfo
from pccl_backend.topology import Topology
from pccl_backend.trainers import DiLoCo, Observer, OuterStep
from pccl_backend.trainers.diloco import Strategy

__all__ = ["TAG", "main"]

TAG = "diloco"
FOUNDERS = 3
# The run continues with two members. With min_peers=3 the survivors would wait for a third.
MIN_PEERS = 2
VALIDATION_WINDOWS = 64
ORPHAN_EXIT_CODE = 3


def report(kind: str, **fields: object) -> None:
    """Write one line to the orchestrator."""
    line = json.dumps({"kind": kind, "at": time.monotonic(), **fields})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Orders:
    """The orders that arrive on standard input. Its end exits this process."""

    def __init__(self) -> None:
        self._go: queue.Queue[None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_for_go(self, *, timeout_s: float) -> None:
        """Wait for one `go`.

        Raises:
            TimeoutError: none came in time.
        """
        try:
            self._go.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"no go from the orchestrator in {timeout_s:.0f} s") from None

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "go":
                self._go.put(None)
        os._exit(ORPHAN_EXIT_CODE)


class Reporter(Observer):
    """Turns the trainer's events into reports.

    Args:
        orders: source of a `go`.
        settings: its deadline limits a hold.
        hold_step: outer step whose all-reduce waits for `go`; 0 for none.
    """

    def __init__(self, orders: Orders, settings: Settings, *, hold_step: int) -> None:
        self._orders = orders
        self._settings = settings
        self._hold_step = hold_step
        self._saved = torch.empty(0)
        self._met: dict[str, object] = {}
        self._clock = 0.0
        self.joined_at: int | None = None  # revision when the newcomer joined

    def before_reduce(self, trainer: DiLoCo) -> None:
        self._saved = trainer.pseudo_gradient.clone()
        if trainer.revision + 1 == self._hold_step:
            self._hold_step = 0  # not again when it is repeated
            self._orders.wait_for_go(timeout_s=self._settings.deadline_s)

    def reduce_posted(self, trainer: DiLoCo, attempt: int) -> None:
        report("posted", step=trainer.revision + 1, attempt=attempt)

    def reduce_failed(self, trainer: DiLoCo, attempt: int, error: pccl.PcclError) -> None:
        bits, saved = trainer.pseudo_gradient.view(torch.int32), self._saved.view(torch.int32)
        report(
            "failed",
            step=trainer.revision + 1,
            attempt=attempt,
            error=type(error).__name__,
            message=str(error),
            untouched=torch.equal(bits, saved),
        )

    def reduce_committed(self, trainer: DiLoCo, attempt: int) -> None:
        report("committed", step=trainer.revision + 1, attempt=attempt)

    def before_meet(self, trainer: DiLoCo) -> None:
        self._clock = time.monotonic()

    def topology_updated(self, trainer: DiLoCo, topology: Topology) -> None:
        if topology.joined and trainer.revision > 0 and self.joined_at is None:
            self.joined_at = trainer.revision
        self._met = {
            "epoch": topology.epoch,
            "world_size": topology.world_size,
            "joined": len(topology.joined),
            "left": len(topology.left),
            "topology_s": time.monotonic() - self._clock,
        }
        self._clock = time.monotonic()

    def state_synced(self, trainer: DiLoCo, info: SyncInfo) -> None:
        if self._met:
            report(
                "met",
                revision=trainer.revision,
                sync_s=time.monotonic() - self._clock,
                hash=str(info.hash),
                received_bytes=info.rx_bytes,
                **self._met,
            )
        self._met = {}


def digest_of(model: torch.nn.Module) -> str:
    """Return a hash of the parameters that is computed without pccl."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def finished(settings: Settings, *, last: OuterStep | None, joined_at: int | None) -> bool:
    """Return whether to stop: all peers stop after the same outer step.

    `DiLoCo.revision` is no substitute: each peer applies an average at a moment of its own.
    """
    if last is None or joined_at is None:
        return False
    return last.revision >= max(settings.outer_steps, joined_at + settings.steps_together)


class Peer:
    """Model, optimizers and text of one peer, and its course through the run."""

    def __init__(self, name: str, *, settings: Settings, hold_step: int) -> None:
        self._settings = settings
        # Different weights, on purpose: the first sync_shared_state makes them equal.
        seed = sum(name.encode())
        torch.manual_seed(seed)
        self._model = CharGpt(
            symbols=SYMBOLS,
            context=settings.context,
            layers=settings.layers,
            width=settings.width,
            heads=settings.heads,
        )
        self._inner = torch.optim.AdamW(self._model.parameters(), lr=settings.inner_lr)
        text = Text(read_standard_library(settings.text_bytes_max), context=settings.context)
        self._batches = text.batches(settings.batch, seed=seed)
        self._validation = text.validation(VALIDATION_WINDOWS)
        self.orders = Orders()
        self._reporter = Reporter(self.orders, settings, hold_step=hold_step)
        report("ready", parameters=sum(p.numel() for p in self._model.parameters()))

    def run(self, url: str, strategy: Strategy) -> None:
        """Join the run, train until it is finished, leave."""
        # Before the join: the others wait for a newcomer's start().
        outer = DiLoCo(
            self._model,
            self._inner,
            every=self._settings.inner_steps,
            overlap="auto",
            outer_lr=self._settings.outer_lr,
            outer_momentum=self._settings.outer_momentum,
            tag=TAG,
            on_loss=None,  # the demo shows an all-reduce that fails and is repeated
            observer=self._reporter,
        )
        dist.init_process_group(
            "pccl",
            init_method=url,
            timeout=timedelta(seconds=self._settings.timeout_s),
        )
        report(
            "admitted",
            id=pccl.run_info().peer,
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
        )
        info = outer.start(strategy=strategy)
        received = info.rx_bytes
        report("started", revision=outer.revision, hash=str(info.hash), received_bytes=received)
        if outer.revision == 0:
            self._wait_for_founders(outer)
            self._validate(outer)
        else:
            self._reporter.joined_at = outer.revision
        with outer:
            self._train(outer)
            outer.finish()
            self._validate(outer)
            with outer.global_parameters() as model:
                digest = digest_of(model)
        report("done", revision=outer.revision, digest=digest)
        dist.destroy_process_group()

    def _wait_for_founders(self, outer: DiLoCo) -> None:
        """Meet until all founders are members. A founder that comes later runs the same loop."""
        while outer.revision == 0 and dist.get_world_size() < FOUNDERS:
            time.sleep(0.05)
            outer.meet()

    def _train(self, outer: DiLoCo) -> None:
        while not finished(self._settings, last=outer.last, joined_at=self._reporter.joined_at):
            began = time.monotonic()
            loss = loss_of(self._model, next(self._batches))
            loss.backward()  # type: ignore[no-untyped-call]
            report("inner", step=outer.revision + 1, loss=loss.item(), began=began)
            self._inner.step()  # the outer steps happen inside
            self._inner.zero_grad()

    @torch.no_grad()
    def _validate(self, outer: DiLoCo) -> None:
        with outer.global_parameters() as model:
            loss = loss_of(model, self._validation).item()  # type: ignore[arg-type]
        report("validated", revision=outer.revision, loss=loss)


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one peer; return the exit code."""
    parser = argparse.ArgumentParser(prog="pccl_backend.demo.peer", description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--address", required=True, help="the master's, host:port")
    parser.add_argument("--run", required=True, help="the run's name")
    parser.add_argument("--settings", required=True, type=Settings.from_json)
    parser.add_argument("--newcomer", action="store_true", help="wait for go, then join")
    parser.add_argument(
        "--hold-step", type=int, default=0, help="wait for go before that all-reduce"
    )
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    peer = Peer(options.name, settings=options.settings, hold_step=options.hold_step)
    if options.newcomer:
        peer.orders.wait_for_go(timeout_s=options.settings.deadline_s)
    strategy: Strategy = "receive_only" if options.newcomer else "enforce_popular"
    peer.run(f"pccl://{options.address}/{options.run}?min_peers={MIN_PEERS}", strategy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
