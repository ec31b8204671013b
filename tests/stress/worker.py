"""One process of the stress run: a small training in which every outcome can be checked.

An iteration takes about 100 ms: agree on the shared state, post several all-reduces at once, add
their sums to the state, update the topology. One all-reduce is waited for in the next iteration.
The input of each rank is a function of its name and of the operation, so every sum is known. The
state is a function of all operations that committed. After an error the worker does what the README
says.

The log has one line of JSON for everything that can be compared with other workers: what was
agreed, and how an operation ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zlib
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist

import pccl_backend as pccl

SIZES = {"small": 1_000, "middle": 65_536, "large": 2_000_000}
KEPT = "large"  # on_loss="keep": it may end well, with parts summed over lost members, too
PAUSE_S = 0.03  # the "forward and backward" of an iteration
CALL_TIMEOUT = timedelta(seconds=60)
USAGE_EVERY = 20

Tensor = torch.Tensor


class Worker:
    """The life of one worker; it ends with its process."""

    def __init__(self, url: str, log: IO[str]) -> None:
        self._url = url
        self._log = log
        self._weights = torch.zeros(50_000)
        self._revision = 0
        self._newcomer = True
        self._epoch = ""
        self._posted = 0  # operations in this epoch
        self._crossing: tuple[str, int, list[str], Any, Tensor] | None = None

    def run(self) -> None:
        """Join and train; join again each time this process has been declared lost."""
        while True:
            try:
                self._join()
                for iteration in range(1_000_000_000):
                    self._iterate()
                    if iteration % USAGE_EVERY == 0:
                        self._say(usage=usage())
            except pccl.OutOfRunError as error:
                self._say(out=type(error).__name__, why=str(error))
                if dist.is_initialized():
                    dist.destroy_process_group()
                self._newcomer = True
                self._crossing = None

    # ---- The training ----

    def _join(self) -> None:
        dist.init_process_group("pccl", init_method=self._url, timeout=CALL_TIMEOUT)
        self._see()
        self._say(joined=self._epoch, size=dist.get_world_size())

    def _iterate(self) -> None:
        begun = time.monotonic()
        try:
            self._finish_crossing()
            self._agree()
            sums = self._reduce()
            for total in sums:
                self._weights += total[0] / 1024
            self._revision += 1
            self._say(iterated=self._revision, seconds=time.monotonic() - begun)
            self._begin_crossing()
            time.sleep(PAUSE_S)
        except (pccl.PeerLostError, pccl.MembershipChangedError) as error:
            self._say(error=type(error).__name__)
        self._update()

    def _update(self) -> None:
        while True:
            try:
                pccl.update_topology()
            except (pccl.TooFewPeersError, pccl.OperationTimeoutError) as error:
                self._say(waits=str(error))
            else:
                break
        self._see()

    def _see(self) -> None:
        epoch = pccl.run_info().epoch
        if epoch != self._epoch:
            self._epoch, self._posted = epoch, 0

    def _agree(self) -> None:
        state = pccl.SharedState({"weights": self._weights}, revision=self._revision)
        strategy = "receive_only" if self._newcomer else "enforce_popular"
        try:
            pccl.sync_shared_state(state, strategy=strategy)
        except pccl.SharedStateError:
            if not self._newcomer:
                raise
            self._newcomer = False  # all who had the state are gone
            self._agree()
            return
        self._revision = state.revision
        self._newcomer = False
        self._say(agreed=self._revision, digest=_digest(self._weights))

    # ---- Operations ----

    def _post(self, tag: str, count: int) -> tuple[str, int, list[str], Any, Tensor]:
        members = [member.peer for member in pccl.run_info().members]
        number = self._posted
        self._posted += 1
        key = f"{self._epoch} {tag} {number}"
        tensor = torch.full((count,), _brings(members[dist.get_rank()], key))
        on_loss = "keep" if tag == KEPT else None
        work = pccl.all_reduce(tensor, op="sum", tag=tag, on_loss=on_loss, async_op=True)
        return key, count, members, work, tensor

    def _reduce(self) -> list[Tensor]:
        posted = [self._post(tag, count) for tag, count in SIZES.items()]
        errors, sums = [], []
        for one in posted:
            try:
                sums.append(self._finish(*one))
            except (pccl.PeerLostError, pccl.MembershipChangedError) as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return sums

    def _finish(
        self, key: str, count: int, members: list[str], work: Any, tensor: Tensor
    ) -> Tensor:
        try:
            work.wait()
        except pccl.OutOfRunError:
            raise
        except pccl.PcclError as error:
            self._say(op=key, outcome=type(error).__name__)
            me = _brings(pccl.run_info().peer, key)
            if not torch.equal(tensor, torch.full((count,), me)):
                self._say(violation=f"P2 {key}: {type(error).__name__}, but the tensor has changed")
            raise
        parts = [(0, count, tuple(members))]
        if f" {KEPT} " in key:
            parts = [(part.start, part.stop, part.peers) for part in pccl.contributors(work)]
        for start, stop, peers in parts:
            expected = sum(_brings(peer, key) for peer in peers)
            if not torch.equal(tensor[start:stop], torch.full((stop - start,), expected)):
                self._say(violation=f"P3 {key}: {tensor[start].item()} instead of {expected}")
        sums = " ".join(f"{tensor[start].item()} to {stop}" for start, stop, _ in parts)
        self._say(op=key, outcome=f"ok {sums}", kept=len(parts) > 1)
        return tensor

    def _begin_crossing(self) -> None:
        self._crossing = self._post("crossing", 10_000)

    def _finish_crossing(self) -> None:
        crossing, self._crossing = self._crossing, None
        if crossing is None:
            return
        # Members that joined in between do not know how it failed. The update has dealt with it.
        with contextlib.suppress(pccl.PeerLostError, pccl.MembershipChangedError):
            self._finish(*crossing)

    def _say(self, **what: Any) -> None:
        self._log.write(json.dumps({"at": time.monotonic(), **what}) + "\n")


def _brings(member: str, key: str) -> float:
    return float(zlib.crc32(f"{member} {key}".encode()) % 1000)


def _digest(tensor: Tensor) -> str:
    return hashlib.blake2b(tensor.numpy().tobytes(), digest_size=8).hexdigest()


def usage(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    status = Path("/proc/self/status").read_text()
    rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "rss": int(rss.split()[1]) * 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "held": pccl.run_info(group).bytes_held,
    }


def main(url: str, log: str) -> None:
    """Run one worker, which writes to `log` until it is killed."""
    torch.set_num_threads(1)
    with open(log, "w", buffering=1) as lines:
        Worker(url, lines).run()
