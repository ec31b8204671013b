"""Three peers average a tensor repeatedly; one of them is killed; two continue.

    python examples/02_survive_a_kill.py

When a peer is lost, its current operation ends on all survivors alike: either all have the result,
or all get the same `PeerLostError`, and their tensors are bit for bit as before. From then on every
call raises the same error until `update_topology()`, so that no peer continues by accident with
outdated ranks and an outdated world size. After `update_topology()`, repeat the failed operation
with the same tensor. That is all:

    while True:
        try:
            pccl.all_reduce(tensor, op="avg")
            break
        except pccl.PeerLostError:
            pccl.update_topology()

`min_peers=2` is the number of members that the run needs to continue: with fewer, update_topology
waits for newcomers.
"""

import os
import signal

import launch
import torch
import torch.distributed as dist

import pccl_backend as pccl

PEERS = 3
STEPS = 6
KILL_STEP = 3
ELEMENTS = 4_000_000


def peer(url: str, number: int) -> None:
    dist.init_process_group("pccl", init_method=f"{url}?min_peers=2")
    # Two peers have founded the run; the third may not have arrived yet.
    while dist.get_world_size() < PEERS:
        pccl.update_topology()
    # Ranks follow the order of arrival. Any peer may be the one that dies; here it is rank 1.
    doomed = dist.get_rank() == 1

    for step in range(STEPS):
        mine = float(step * 10 + dist.get_rank())
        tensor = torch.full((ELEMENTS,), mine)
        while True:
            try:
                work = pccl.all_reduce(tensor, op="avg", tag="survive", async_op=True)
                if doomed and step == KILL_STEP:
                    os.kill(os.getpid(), signal.SIGKILL)  # in the middle of the all-reduce
                work.wait()
                break
            except pccl.PeerLostError as error:
                assert torch.equal(tensor, torch.full((ELEMENTS,), mine))
                print(f"peer {number}, step {step}: {error}", flush=True)
                topology = pccl.update_topology()
                print(
                    f"peer {number}, step {step}: tensor untouched; now rank {topology.rank} "
                    f"of {topology.world_size}, once more",
                    flush=True,
                )
        print(f"peer {number}, step {step}: average {tensor[0].item()}", flush=True)

    assert dist.get_world_size() == PEERS - 1
    dist.destroy_process_group()


if __name__ == "__main__":
    with launch.master() as url:
        launch.run_peers(peer, url, starts_s=[0.0] * PEERS, killed=1)
