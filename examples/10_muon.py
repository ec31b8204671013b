"""DiLoCo with Muon inside ("MuLoCo"): two inner optimizers, counted as one.

    python examples/10_muon.py

Muon moves matrices only. AdamW moves the rest: embeddings, biases, norms. The trainer gets both,
and an inner step is complete when both have stepped. Everything else is as in
06_chargpt_diloco.py, the division of the data, too: each peer's seed is made from its name and the
number of outer steps.
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
INNER_STEPS, OUTER_STEPS = 20, 4
TEXT_BYTES_MAX = 1 << 20


def seed_of(outer_step: int) -> int:
    """Return the seed of this peer's batches after an outer step."""
    return zlib.crc32(f"{pccl.run_info().peer} {outer_step}".encode())


def optimizers_of(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices inside, and AdamW for the rest."""
    inside = {n: p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n}
    rest = [p for n, p in model.named_parameters() if n not in inside]
    return [
        torch.optim.Muon(inside.values(), lr=0.02, weight_decay=0.0),
        torch.optim.AdamW(rest, lr=3e-3),
    ]


def peer(url: str, number: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(number)
    model = CharGpt(symbols=SYMBOLS, context=CONTEXT, layers=2, width=64, heads=4)
    optimizers = optimizers_of(model)
    text = Text(read_standard_library(TEXT_BYTES_MAX), context=CONTEXT)
    dist.init_process_group("pccl", init_method=f"{url}?min_peers=2")

    began, tokens, waited, last = time.monotonic(), 0, 0.0, None
    with (
        DiLoCo(model, optimizers, every=INNER_STEPS) as outer,
        launch.progress(OUTER_STEPS, number) as show,
    ):
        batches = text.batches(BATCH, seed=seed_of(outer.revision))
        while outer.revision < OUTER_STEPS:
            loss = loss_of(model, next(batches))
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            tokens += CONTEXT * BATCH
            if outer.last is not last:  # an outer step has happened
                last = outer.last
                waited += last.time.waited
                show(last.revision)
                batches = text.batches(BATCH, seed=seed_of(last.revision))
        seconds = time.monotonic() - began
        with torch.no_grad():  # after an outer step, the model has the global parameters
            loss = loss_of(model, text.validation(64))
        print(
            f"peer {number} ends at step {outer.revision} of {last.inner_steps} inner steps, "
            f"loss {loss:.3f}, {tokens / seconds:.0f} tokens/s, waited {waited:.2f} s, "
            f"sent {pccl.run_info().bytes_sent} bytes, hash {last.synced.hash}",
            flush=True,
        )
    assert loss < 4.0, "an untrained model has 4.6"
    dist.destroy_process_group()


if __name__ == "__main__":
    import torch._dynamo  # torch.optim needs it; slow to import, so once before the peers fork

    with launch.master() as url:
        launch.run_peers(peer, url, starts_s=[0.0, 0.0])
