"""Hosts train together, each with a torchrun of its own. One is restarted, and one comes late.

    python examples/11_torchrun_hosts.py

On three machines of your own, start `pccl master` once, and on each host, at any time:

    export HOST=A    # one letter, another one on each host; host B kills one of its processes
    export HOSTS_URL="pccl://MASTER:48148/my-run?founders=2&min_peers=1"
    torchrun --standalone --nproc-per-node=2 --max-restarts=3 examples/11_torchrun_hosts.py

The processes of a host form an ordinary group of torch, whose members are fixed: Gloo here, NCCL on
GPUs. One of them, the leader, joins the pccl group between the hosts, whose members come and go.
Each step goes over the slow network once per host, and only the leader has to deal with losses:

    backward()          DDP averages the gradients within the host
    average()           the leader averages them with the leaders of the other hosts
    broadcast()         the others of the host take the leader's result

A single torchrun over all hosts would restart every process of the run whenever one of them dies.
Here torchrun restarts the processes of one host. The other hosts get a `PeerLostError`, repeat the
step without that host, and admit it when it is back, as they admit a new one: it takes their state,
which `sync_shared_state` sends.
"""

import hashlib
import os
import signal
import subprocess
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pccl_backend as pccl

HOSTS = 3
STEPS = 20
KILL_STEP = 5
TIMEOUT_S = 150.0


def average(model: nn.Module, group: dist.ProcessGroup) -> bool:
    """Average the gradients over the hosts; return False, with nothing changed, after a loss."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    try:
        pccl.all_reduce(flat, op="avg", group=group)
    except pccl.PeerLostError as error:
        print(f"host {os.environ['HOST']}: {error}", flush=True)
        return False
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
    return True


def train() -> None:
    """Be one process of a host, started by torchrun."""
    rank, host = int(os.environ["RANK"]), os.environ["HOST"]
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    # The group within the host. torchrun keeps its store over a restart, with the addresses of the
    # processes that are gone, and Gloo would wait for those: each start has its own part of it.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    mine = dist.PrefixStore(f"start {restarts}", store)
    dist.init_process_group("gloo", store=mine, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(ord(host))
    model = DistributedDataParallel(nn.Linear(100, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # The state of the run: all that a host needs to continue from a step. An optimizer with a
    # memory of its own, such as Adam, has more of it.
    state = pccl.SharedState({name: p.detach() for name, p in model.named_parameters()}, revision=0)
    group = pccl.join(os.environ["HOSTS_URL"]) if rank == 0 else None

    newcomer = True
    while True:
        # The leader: who is there, and do all have the same state? A newcomer enters here.
        world = fetched = 0
        if group is not None:
            if not newcomer:
                pccl.update_topology(group)
            fetched = pccl.sync_shared_state(state, group=group).rx_bytes
            world = group.size()
        head = torch.tensor([world, fetched, state.revision])
        dist.broadcast(head, 0)
        world, fetched, state.revision = head.tolist()
        if newcomer or fetched > 0:
            for parameter in model.parameters():
                dist.broadcast(parameter.detach(), 0)
        if newcomer and rank == 0:
            print(f"host {host}, start {restarts}: begins at step {state.revision}", flush=True)
        newcomer = False
        if world == HOSTS and state.revision >= STEPS:  # the same on all hosts
            break

        if host == "B" and rank == 1 and restarts == 0 and state.revision == KILL_STEP:
            launch.say(
                "host B, rank 1 is killed on purpose: its torchrun and other process may print "
                "errors and tracebacks now. It restarts the host"
            )
            os.kill(os.getpid(), signal.SIGKILL)  # torchrun ends the whole host, and restarts it
        inputs = torch.randn(32, 100)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), inputs[:, :10]).backward()
        averaged = torch.tensor(int(group is None or average(model, group)))
        dist.broadcast(averaged, 0)
        if not averaged:
            continue  # the step again, with those that are left
        for parameter in model.parameters():
            dist.broadcast(parameter.grad, 0)
        optimizer.step()
        state.revision += 1
        time.sleep(0.02)  # stands for the work of a step

    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    launch.say(
        f"host {host}, rank {rank} ends at step {state.revision}, {world} hosts, "
        f"hash {hashlib.sha256(weights.numpy()).hexdigest()[:16]}"
    )
    if group is not None:
        dist.destroy_process_group(group)
    dist.destroy_process_group()


def demo(url: str) -> None:
    """Run three hosts on this machine. The third begins when the others have begun."""
    command = [*launch.TORCHRUN, "--nproc-per-node=2", "--max-restarts=3", __file__]
    variables = {**os.environ, "HOSTS_URL": f"{url}?founders=2&min_peers=1"}
    variables |= {"OMP_NUM_THREADS": "1"}
    until = time.monotonic() + TIMEOUT_S
    hosts: list[subprocess.Popen[bytes]] = []
    try:
        for name, start_s in (("A", 0.0), ("B", 0.0), ("C", 3.0)):
            time.sleep(start_s)  # host C is late on purpose: it is to find a run under way
            hosts.append(subprocess.Popen(command, env={**variables, "HOST": name}))
        codes = [host.wait(max(0.0, until - time.monotonic())) for host in hosts]
        assert codes == [0, 0, 0], f"exit codes of the hosts: {codes}"
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
