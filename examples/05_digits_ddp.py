"""Average the gradients at every step, while one peer is killed and another one joins.

    python examples/05_digits_ddp.py

`DDP` does what torch's DistributedDataParallel does, for peers that come and go. A newcomer
receives the parameters, the optimizer's state and the buffers from the others.

How the data are divided: each peer draws its batches at random, from a seed of its name and the
number of steps of the run. A DistributedSampler would deal out shares by rank, and the share of a
lost peer would remain unread.

The digits are made here, of segments and noise, so nothing is downloaded.
"""

import os
import signal
import time
import zlib

import launch
import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.trainers import DDP

BATCH, STEPS_TOGETHER = 32, 80
DOOMED, DOOMED_AT, NEWCOMER = 2, 40, 3
# The strokes of a seven-segment display, as (row, column) of an 8 x 8 picture, for each digit.
BARS = [(0, None), (None, 7), (None, 7), (7, None), (None, 0), (None, 0), (3, None)]
DIGITS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg"]


def picture(digit: int) -> torch.Tensor:
    """Return a digit as 8 x 8 pixels."""
    pixels = torch.zeros(8, 8)
    for stroke in DIGITS[digit]:
        row, column = BARS["abcdefg".index(stroke)]
        half = slice(0, 4) if stroke in "bf" else slice(4, 8)
        pixels[half if row is None else row, slice(None) if column is None else column] = 1
    return pixels


PICTURES = torch.stack([picture(digit) for digit in range(10)])


def draw(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy pictures, and which digits they are."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    noise = torch.randn(count, 8, 8, generator=generator) * 0.3
    return (PICTURES[labels] + noise).flatten(1), labels


def peer(url: str, number: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(number)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    dist.init_process_group("pccl", init_method=f"{url}?founders=3&min_peers=2")

    began, waited, pictures = time.monotonic(), 0.0, 0
    until = None  # unknown until the newcomer joins
    with DDP(model, optimizer) as outer:
        print(f"peer {number} begins at step {outer.revision}", flush=True)
        if number == NEWCOMER:
            until = outer.revision + STEPS_TOGETHER
        while until is None or outer.revision < until:
            name = pccl.run_info().peer
            x, labels = draw(BATCH, zlib.crc32(f"{name} {outer.revision}".encode()))
            if number == DOOMED and outer.revision >= DOOMED_AT:
                os.kill(os.getpid(), signal.SIGKILL)
            loss = torch.nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            pictures += BATCH
            waited += outer.last.time.waited
            if outer.last.joined:  # all peers know it at the same step
                until = outer.revision + STEPS_TOGETHER
        model.eval()
        x, labels = draw(2000, seed=1)
        accuracy = (model(x).argmax(1) == labels).float().mean().item()
        print(
            f"peer {number} ends at step {outer.revision}, loss {loss:.3f}, accuracy "
            f"{accuracy:.3f}, {pictures / (time.monotonic() - began):.0f} pictures/s, waited "
            f"{waited:.2f} s, sent {pccl.run_info().bytes_sent} bytes, "
            f"hash {outer.last.synced.hash}",
            flush=True,
        )
    assert accuracy >= 0.95
    dist.destroy_process_group()


if __name__ == "__main__":
    import torch._dynamo  # torch.optim needs it; slow to import, so once before the peers fork

    with launch.master() as url:
        launch.run_peers(peer, url, starts_s=[0.0, 0.0, 0.0, 3.0], killed=1)
