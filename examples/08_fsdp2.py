"""Hosts of several processes train with DiLoCo: FSDP2 within a host, the outer step between hosts.

    python examples/08_fsdp2.py

On machines of your own, start `pccl master` once, and on each host, at any time:

    export HOST=A    # one letter, another one on each host; host B kills one of its processes
    export HOSTS_URL="pccl://MASTER:48148/my-run?founders=2&min_peers=1"
    torchrun --standalone --nproc-per-node=8 --max-restarts=3 examples/08_fsdp2.py

Each host is one peer of the run, whatever its number of processes: here host A has two, and host B
three. `host_group` names the processes of a host. The trainer keeps the outer state once in the
memory of the host. Each process reads and writes the shards that it has, and one of them talks to
the other hosts. On GPUs, make the group with "nccl" and the mesh with "cuda".

A process of host B is killed. Then the whole host leaves the run at once, host A goes on alone, and
torchrun starts the processes of host B again. They take the parameters that host A has meanwhile.
"""

import os
import signal
import subprocess
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pccl_backend.trainers import DiLoCo

INNER_STEPS, OUTER_STEPS = 10, 20
BATCH = 64
KILL_STEP = 5
TIMEOUT_S = 150.0


def enter() -> None:
    """Make the group of this host. A start after a restart has its own part of torchrun's store."""
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    mine = dist.PrefixStore(f"start {restarts}", store)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=mine, rank=rank, world_size=size)


def train() -> None:
    """Be one process of a host, started by torchrun."""
    enter()
    host, rank = os.environ["HOST"], dist.get_rank()
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1, 65), torch.nn.Tanh(), torch.nn.Linear(65, 1))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(100 * ord(host) + 10 * rank + restarts)  # each process has its own data

    began, tokens, waited, sent, last = time.monotonic(), 0, 0.0, 0, None
    url, host_group = os.environ["HOSTS_URL"], dist.group.WORLD
    with DiLoCo(model, optimizer, every=INNER_STEPS, url=url, host_group=host_group) as outer:
        if rank == 0:
            launch.say(f"host {host}, start {restarts}: begins at step {outer.revision}")
        # All processes of all hosts see the same record of an outer step: they end together.
        while last is None or last.revision < OUTER_STEPS or last.contributors < 2:
            x = torch.rand(BATCH, 1) * 6 - 3
            loss = (model(x) - torch.sin(x)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            tokens += BATCH
            if outer.last is not last:  # an outer step has happened
                last = outer.last
                waited, sent = waited + last.time.waited, sent + last.sent_bytes
                if rank == 0 and (last.joined or last.left):
                    changes = f"{len(last.joined)} joined, {len(last.left)} left"
                    launch.say(f"host {host}, step {last.revision}: {changes}")
            if host == "B" and rank == 1 and restarts == 0 and outer.revision == KILL_STEP:
                launch.say(
                    "host B, rank 1 is killed on purpose: its torchrun and other processes may "
                    "print errors and tracebacks now. It restarts the host"
                )
                os.kill(os.getpid(), signal.SIGKILL)
    launch.say(
        f"host {host}, rank {rank} ends at step {last.revision} of {last.inner_steps} inner steps, "
        f"loss {loss:.3f}, {tokens / (time.monotonic() - began):.0f} tokens/s, "
        f"waited {waited:.2f} s, sent {sent} bytes, hash {last.synced.hash}"
    )
    dist.destroy_process_group()


def demo(url: str) -> None:
    """Run two hosts on this machine."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    variables["HOSTS_URL"] = f"{url}?founders=2&min_peers=1"
    until = time.monotonic() + TIMEOUT_S
    hosts: list[subprocess.Popen[bytes]] = []
    try:
        for name, size in (("A", 2), ("B", 3)):
            options = [f"--nproc-per-node={size}", "--max-restarts=3"]
            command = [*launch.TORCHRUN, *options, __file__]
            hosts.append(subprocess.Popen(command, env={**variables, "HOST": name}))
        codes = [host.wait(max(0.0, until - time.monotonic())) for host in hosts]
        assert codes == [0, 0], f"exit codes of the hosts: {codes}"
    finally:
        for host in hosts:
            host.terminate()  # torchrun ends its processes
            host.wait()


if __name__ == "__main__":
    import launch

    if "LOCAL_RANK" in os.environ:
        train()
        launch.end_process()
    else:
        with launch.master() as master:
            demo(master)
