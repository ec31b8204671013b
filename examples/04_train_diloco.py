"""Train with DiLoCo: mostly alone, together from time to time, while peers join and leave.

    python examples/04_train_diloco.py

`DiLoCo` does the work of the three earlier examples: it averages the peers' learning, repeats
the all-reduce when a peer is lost, admits newcomers and gives them the parameters.
The inner loop remains yours: model, optimizer, data, precision. The trainer has one requirement:
all peers take the same *number* of outer steps. The numbers of inner steps may even differ.

Three peers start. One of them is killed during training, and another one joins. `pccl demo` shows
the same events at a larger scale, with a small GPT and a picture.
"""

import os
import signal

import launch
import torch
import torch.distributed as dist

from pccl_backend.trainers import DiLoCo

INNER_STEPS = 20
OUTER_STEPS = 30
PEERS_AT_END = 3
DOOMED, DOOMED_AT = 0, 5


def peer(url: str, number: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(number)
    model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    inner = torch.optim.AdamW(model.parameters(), lr=1e-2)
    outer = DiLoCo(model, outer_lr=0.7, outer_momentum=0.5)

    dist.init_process_group("pccl", init_method=f"{url}?min_peers=2")
    synced = outer.start()
    print(f"peer {number} begins at outer step {outer.revision}", flush=True)

    while outer.revision < OUTER_STEPS or dist.get_world_size() < PEERS_AT_END:
        for _ in range(INNER_STEPS):
            x = torch.rand(128, 1) * 6 - 3
            loss = (model(x) - torch.sin(x)).square().mean()
            loss.backward()
            inner.step()
            inner.zero_grad()
        if number == DOOMED and outer.revision == DOOMED_AT:
            print(f"peer {number} is killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        step = outer.step()
        synced = step.synced
        if step.joined or step.left:
            changes = f"{len(step.joined)} joined, {len(step.left)} left"
            print(f"peer {number}, outer step {step.revision}: {changes}", flush=True)
    outer.finish()  # a newcomer may still fetch the state from this peer

    with torch.no_grad():
        x = torch.linspace(-3, 3, 200)[:, None]
        error = (model(x) - torch.sin(x)).square().mean().item()
    print(f"peer {number} ends with error {error:.4f}, hash {synced.hash}", flush=True)
    assert error < 0.1
    dist.destroy_process_group()


if __name__ == "__main__":
    import torch._dynamo  # torch.optim needs it; slow to import, so once before the peers fork

    with launch.master() as url:
        launch.run_peers(peer, url, starts_s=[0.0, 0.0, 0.0, 1.0], killed=1)
