"""Stop a whole run, start it again from a checkpoint, and see an older checkpoint refused.

    python examples/09_resume.py

One peer saves the shared state with torch.distributed.checkpoint. All peers end. Later three peers
go on where two have stopped. The master remembers the revision and the hash of the state at the end
of the run. The run refuses an older or different checkpoint, and the error names both.

A checkpoint of the trainer holds the global parameters and the outer momentum. The inner optimizer
and the position in the data belong to each peer; here they begin afresh. Each peer draws its
batches from a seed of its name and the number of outer steps, so it reads no batch again.
"""

import tempfile
import time
import zlib

import launch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import pccl_backend as pccl
from pccl_backend.trainers import DiLoCo

INNER_STEPS = 10
BATCH = 64


def train(url: str, number: int, *, folder: str, begin: int, until: int, peers: int) -> None:
    """Train from the checkpoint of one outer step until another, and save that one."""
    torch.set_num_threads(1)
    torch.manual_seed(number)
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    outer = DiLoCo(model, optimizer, every=INNER_STEPS)
    if begin > 0:
        state = outer.state_dict()  # before the start: a place to load into
        dcp.load(state, checkpoint_id=f"{folder}/{begin}", no_dist=True)
        outer.load_state_dict(state)  # checks that the file is whole
    dist.init_process_group("pccl", init_method=f"{url}?min_peers={peers}")
    try:
        outer.start()
    except pccl.SharedStateError as error:
        print(f"peer {number} is refused with step {begin}: {error}", flush=True)
        return
    began, tokens, waited = time.monotonic(), 0, 0.0
    with outer:
        while outer.revision < until:
            seed = zlib.crc32(f"{pccl.run_info().peer} {outer.inner_steps}".encode())
            x = torch.rand(BATCH, 1, generator=torch.Generator().manual_seed(seed)) * 6 - 3
            loss = (model(x) - torch.sin(x)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            tokens += BATCH
        waited += outer.last.time.waited
        if dist.get_rank() == 0:
            dcp.save(outer.state_dict(), checkpoint_id=f"{folder}/{until}", no_dist=True)
        print(
            f"peer {number} ends at step {outer.revision}, loss {loss:.4f}, "
            f"{tokens / (time.monotonic() - began):.0f} tokens/s, waited {waited:.2f} s, "
            f"sent {pccl.run_info().bytes_sent} bytes, hash {outer.last.synced.hash}",
            flush=True,
        )
        dist.barrier()  # the checkpoint is written
    dist.destroy_process_group()


if __name__ == "__main__":
    import functools

    import torch._dynamo  # torch.optim needs it; slow to import, so once before the peers fork

    with launch.master() as url, tempfile.TemporaryDirectory() as folder:
        life = functools.partial(train, folder=folder)
        two, three = [0.0, 0.0], [0.0, 0.0, 0.0]
        launch.run_peers(functools.partial(life, begin=0, until=5, peers=2), url, starts_s=two)
        launch.run_peers(functools.partial(life, begin=5, until=10, peers=2), url, starts_s=two)
        launch.run_peers(functools.partial(life, begin=5, until=15, peers=3), url, starts_s=three)
        launch.run_peers(functools.partial(life, begin=10, until=15, peers=3), url, starts_s=three)
