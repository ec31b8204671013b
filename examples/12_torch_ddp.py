"""An ordinary DDP script: it has "pccl" in place of "gloo", and goes on when processes are lost.

    torchrun --standalone --nproc-per-node=2 examples/12_torch_ddp.py      # as with Gloo

To survive losses, give each process a torchrun of its own, on as many machines as you like. Start
`pccl master` once, and these lines in three terminals:

    export PCCL_MASTER="pccl://127.0.0.1:48148/my-ddp?founders=3&min_peers=2"
    export PCCL_ON_PEER_LOSS=retry
    torchrun --standalone examples/12_torch_ddp.py

    python examples/12_torch_ddp.py

does so on this machine, and then ends one of the three, as if its terminal were closed. `train` has
nothing of pccl but the name of the backend. DDP averages the gradients at each step; the all-reduce
that a loss has interrupted is repeated among the others.
"""

import hashlib
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 80
STEP_S = 0.1  # stands for the work of a step
TIMEOUT_S = 150.0


def train() -> None:
    """Be one process of the run, started by torchrun."""
    dist.init_process_group("pccl")
    # Not RANK, since each torchrun numbers its own processes. DDP begins with the parameters of
    # rank 0; each rank has its own data.
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        if step % 20 == 0:
            launch.say(f"rank {dist.get_rank()} of {dist.get_world_size()} is at step {step}")
        time.sleep(STEP_S)
        x = torch.rand(64, 1) * 6 - 3
        loss = (model(x) - torch.sin(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    launch.say(
        f"rank {dist.get_rank()} of {dist.get_world_size()} ends at step {STEPS}, loss {loss:.3f}, "
        f"hash {hashlib.sha256(weights.numpy()).hexdigest()[:16]}"
    )
    dist.destroy_process_group()


def demo(url: str) -> None:
    """Run three torchruns on this machine, and end one of them."""
    variables = {**os.environ, "PCCL_MASTER": f"{url}?founders=3&min_peers=2"}
    variables |= {"PCCL_ON_PEER_LOSS": "retry", "OMP_NUM_THREADS": "1"}
    # The same as --standalone, also on a machine whose name does not resolve.
    here = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    command = [sys.executable, "-m", "torch.distributed.run", *here, __file__]
    until = time.monotonic() + TIMEOUT_S
    runs = [subprocess.Popen(command, env=variables) for _ in range(2)]
    victim = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
    try:
        assert victim.stdout is not None
        steps = (line for line in victim.stdout if "step 20" in line)
        launch.say(
            f"{next(steps).strip()}: its torchrun is ended on purpose, and prints a traceback now. "
            "The others go on"
        )
        victim.terminate()
        codes = [run.wait(max(0.0, until - time.monotonic())) for run in runs]
        assert codes == [0, 0], f"exit codes of the others: {codes}"
    finally:
        for run in (*runs, victim):
            run.terminate()  # torchrun ends its process
            run.wait()


if __name__ == "__main__":
    import launch

    if "LOCAL_RANK" in os.environ:
        train()
    else:
        with launch.master() as master:
            demo(master)
