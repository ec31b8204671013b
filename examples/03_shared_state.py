"""Two peers train; a third joins later and gets their state.

    python examples/03_shared_state.py

*Shared state* must be the same on all peers at a certain point of the program: parameters,
optimizer state, a step counter. Name the tensors once:

    state = pccl.SharedState({"weights": weights}, revision=0)

`sync_shared_state(state)` then compares hashes. If all hashes are equal, nothing is sent. If they
differ, the content that most peers hold wins, and a peer with another content fetches the winning
one. After each step that changes the state, increment the revision: `state.revision += 1`.

No newcomer appears in the middle of a step: newcomers wait until the members call
`update_topology`. Their `init_process_group` returns at that time. Therefore *the first call of a
newcomer must be the call that members make after update_topology*. In this example that call is
sync_shared_state, and the loop is written for it.

A strategy sets the value of a peer's own content; there are three. "enforce_popular": it may win
and it may be replaced. "send_only": it is never replaced, and an error is raised if it would have
to be. "receive_only": it never wins, which fits a newcomer.
"""

import time

import launch
import torch
import torch.distributed as dist

import pccl_backend as pccl

PEERS = 3
STEPS = 10


def peer(url: str, number: int) -> None:
    is_newcomer = number == PEERS - 1
    torch.manual_seed(number)  # every peer starts with different weights
    weights = torch.randn(100_000)
    target = torch.linspace(-1.0, 1.0, 100_000)
    state = pccl.SharedState({"weights": weights}, revision=0)

    dist.init_process_group("pccl", init_method=f"{url}?min_peers=2")
    strategy = "receive_only" if is_newcomer else "enforce_popular"
    info = pccl.sync_shared_state(state, strategy=strategy)
    print(
        f"peer {number} begins at revision {state.revision}, fetched {info.rx_bytes} bytes",
        flush=True,
    )
    assert (state.revision > 0) == is_newcomer

    # Revision and world size are the same on all peers here, so all leave the loop together.
    while dist.get_world_size() < PEERS or state.revision < STEPS:
        gradient = weights - target + 0.1 * torch.randn_like(weights)
        pccl.all_reduce(gradient, op="avg", tag="gradient")
        weights -= 0.1 * gradient
        state.revision += 1
        time.sleep(0.02)  # stands for the work of a step

        pccl.update_topology()
        info = pccl.sync_shared_state(state)

    error = (weights - target).square().mean().item()
    print(
        f"peer {number} ends at revision {state.revision}, error {error:.4f}, hash {info.hash}",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    with launch.master() as url:
        launch.run_peers(peer, url, starts_s=[0.0, 0.0, 1.0])
