"""torchft over pccl: three replicas train together, one is killed, comes back, and is healed.

    pip install "pccl-torch[torchft]"
    python examples/recipe_torchft.py 2> log.txt     # the lighthouse logs each request

torchft decides who takes part: its lighthouse, one process for all, makes a quorum for each step,
and a Manager in each replica asks for it. pccl carries the data: `ProcessGroupPccl` the gradients,
and `PcclTransport` the state of the model and of the optimizer, for a replica that is behind. No
`pccl master` is needed: in each quorum, the first replica hosts it.

On machines of your own, start `torchft_lighthouse --min_replicas 2` on one, and on each:

    export TORCHFT_LIGHTHOUSE="http://LIGHTHOUSE:29510" REPLICA=0   # another number on each machine
    export REPLICA_HOST=10.0.0.7      # the name or address by which the others reach this machine
    torchrun --nproc-per-node=1 --max-restarts=3 examples/recipe_torchft.py
"""

import hashlib
import os
import signal
import subprocess
import time
from datetime import timedelta

import torch
from torch import nn
from torchft import Manager, Optimizer
from torchft.coordination import LighthouseServer

import pccl_backend as pccl

REPLICAS = 3
STEPS = 20
KILL_AFTER = 3  # steps of all replicas
TIMEOUT_S = 90.0


def average(module: nn.Module, manager: Manager) -> None:
    """Average the gradients over the quorum. If that fails, `Optimizer` drops the step.

    torchft's DistributedDataParallel would do it, too. But that of torchft 0.2.0 ends the process
    if a replica is lost and the tensors are on the CPU, with Gloo as with pccl.
    """
    gradients = [parameter.grad for parameter in module.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    manager.allreduce(flat).wait()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def train() -> None:
    """Be the only process of a replica, started by torchrun."""
    replica, restarts = os.environ["REPLICA"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    host = os.environ["REPLICA_HOST"]
    torch.manual_seed(int(replica))
    module = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
    inner = torch.optim.Adam(module.parameters(), lr=1e-2)

    def load(state: dict[str, dict[str, object]]) -> None:
        module.load_state_dict(state["module"])
        inner.load_state_dict(state["optimizer"])
        launch.say(f"replica {replica}, start {restarts}: takes the state of the others")

    manager = Manager(
        pg=pccl.torchft.ProcessGroupPccl(timeout=timedelta(seconds=20)),
        checkpoint_transport=pccl.torchft.PcclTransport(host=host),
        state_dict=lambda: {"module": module.state_dict(), "optimizer": inner.state_dict()},
        load_state_dict=load,
        min_replica_size=2,
        timeout=timedelta(seconds=20),
        hostname=host,
        replica_id=f"replica{replica}",
    )
    optimizer = Optimizer(manager, inner)
    together = 0  # steps of all replicas without a break: the same number on each of them
    while manager.current_step() < STEPS or together <= KILL_AFTER:
        step = manager.current_step()
        # Steps that last, as real ones do: the lost replica comes back before the others are done.
        time.sleep(0.02)
        optimizer.zero_grad()  # asks for a quorum
        if replica == "2" and restarts == 0 and together == KILL_AFTER:
            manager.wait_quorum()
            launch.say("replica 2 is killed on purpose; its torchrun restarts it")
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.rand(64, 1) * 6 - 3
        loss = (module(x) - torch.sin(x)).square().mean()
        loss.backward()
        average(module, manager)
        optimizer.step()  # only if the average has succeeded
        replicas = manager.num_participants()
        if manager.current_step() == step:
            error = manager.errored()
            why = "too few replicas" if error is None else error.original_exception
            launch.say(f"replica {replica}: repeats step {step}: {why}")
        elif (replicas == REPLICAS) != (together > 0):
            launch.say(f"replica {replica}: step {step} with {replicas} replicas")
        together = together + 1 if manager.current_step() > step and replicas == REPLICAS else 0
    weights = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    launch.say(
        f"replica {replica} ends at step {manager.current_step()} of {replicas} replicas, "
        f"loss {loss:.3f}, hash {hashlib.sha256(weights.numpy()).hexdigest()[:16]}"
    )
    manager.shutdown()


def demo() -> None:
    """Run the lighthouse and three replicas on this machine."""
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=1000)
    command = [*launch.TORCHRUN, "--nproc-per-node=1", "--max-restarts=1", __file__]
    variables = {**os.environ, "TORCHFT_LIGHTHOUSE": lighthouse.address(), "OMP_NUM_THREADS": "1"}
    variables |= {"REPLICA_HOST": "127.0.0.1"}
    until = time.monotonic() + TIMEOUT_S
    replicas: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(REPLICAS):
            replicas.append(subprocess.Popen(command, env={**variables, "REPLICA": str(number)}))
        codes = [replica.wait(max(0.0, until - time.monotonic())) for replica in replicas]
        assert codes == [0] * REPLICAS, f"exit codes of the replicas: {codes}"
    finally:
        for replica in replicas:
            replica.terminate()  # torchrun ends its process
            replica.wait()
        lighthouse.shutdown()


if __name__ == "__main__":
    import launch

    if "LOCAL_RANK" in os.environ:
        train()
        launch.end_process()
    else:
        demo()
