"""Train a small GPT with DiLoCo: two lines in an ordinary training loop.

    python examples/06_chargpt_diloco.py

The two lines are the import of `DiLoCo` and its `with`. The outer step happens inside
`optimizer.step()`, every 20 inner steps. Its all-reduce travels while the next inner steps run
(`overlap="auto"`).

How the data are divided: no one deals them out, because peers come and go. Each peer draws its own
batches, and its seed is made from its name, which is never given again, and the number of outer
steps. So no two peers read the same batches, and a peer that comes back does not read old ones.

The text comes from Python's standard library: nothing is downloaded.
"""

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
INNER_STEPS, OUTER_STEPS = 20, 6
TEXT_BYTES_MAX = 1 << 20


def seed_of(outer_step: int) -> int:
    """Return the seed of this peer's batches after an outer step."""
    return zlib.crc32(f"{pccl.run_info().peer} {outer_step}".encode())


def peer(url: str, number: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(number)
    model = CharGpt(symbols=SYMBOLS, context=CONTEXT, layers=2, width=64, heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = Text(read_standard_library(TEXT_BYTES_MAX), context=CONTEXT)
    dist.init_process_group("pccl", init_method=f"{url}?min_peers=2")

    began, tokens, waited, last = time.monotonic(), 0, 0.0, None
    with (
        DiLoCo(model, optimizer, every=INNER_STEPS, overlap="auto") as outer,
        launch.progress(OUTER_STEPS, number) as show,
    ):
        batches = text.batches(BATCH, seed=seed_of(outer.revision))
        while last is None or last.revision < OUTER_STEPS:
            loss = loss_of(model, next(batches))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            tokens += CONTEXT * BATCH
            if outer.last is not last:  # an outer step has happened
                last = outer.last
                waited += last.time.waited
                show(last.revision)
                batches = text.batches(BATCH, seed=seed_of(last.revision))
        seconds = time.monotonic() - began
        sent = pccl.run_info().bytes_sent
        outer.finish()  # all peers apply the data still in flight, and compare their hashes
        with outer.global_parameters(), torch.no_grad():
            loss = loss_of(model, text.validation(64))
        print(
            f"peer {number} ends at step {outer.revision} of {outer.last.inner_steps} inner steps, "
            f"loss {loss:.3f}, {tokens / seconds:.0f} tokens/s, waited {waited:.2f} s, "
            f"sent {sent} bytes, hash {outer.last.synced.hash}",
            flush=True,
        )
    assert loss < 4.0, "an untrained model has 4.6"
    dist.destroy_process_group()


if __name__ == "__main__":
    import torch._dynamo  # torch.optim needs it; slow to import, so once before the peers fork

    with launch.master() as url:
        launch.run_peers(peer, url, starts_s=[0.0, 0.0])
