"""PCCL_ON_PEER_LOSS=retry: after a loss operations are repeated by those who are left; no error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet
from world import free_port

COUNT = 4 << 20  # 16 MiB of float32


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(environment={"PCCL_ON_PEER_LOSS": "retry"})
    yield fleet
    fleet.close()


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_kill_during_all_reduce(fleet: Fleet, victim: int) -> None:
    peers = fleet.found(3)
    for seed, peer in enumerate(peers):
        peer.tell("all_reduce", count=COUNT, seed=seed)
    for peer in peers:
        assert "posted" in peer.answer()
    peers[victim].kill()
    survivors = [peer for peer in peers if peer is not peers[victim]]
    outcomes = [peer.answer() for peer in survivors]
    assert [outcome["ok"] for outcome in outcomes] == [True, True], outcomes
    assert len({outcome["digest"] for outcome in outcomes}) == 1
    # With nothing under way, rank and size are what they are now. No update was called.
    for seed, peer in enumerate(survivors):
        peer.tell("all_reduce", count=1000, seed=seed)
    for rank, peer in enumerate(survivors):
        assert "posted" in peer.answer()
        assert peer.answer()["ok"]
        info = peer.call("info")
        assert (info["rank"], info["world"]) == (rank, 2)


# Nothing in it knows of losses, but for the one that dies, when the others are on their way into
# the same backward pass. Rank 0 hosts the master, so it stays.
TRAINING = """
import os, signal, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("pccl")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(200, 200))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    if step == 20 and os.environ["RANK"] == os.environ["DIES"]:
        os.kill(os.getpid(), signal.SIGKILL)
    loss = model(torch.ones(8, 200)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
bits = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
size = dist.get_world_size()
dist.barrier()  # whoever leaves first would be gone from the size of the other
print("bits", hash(tuple(bits)), size, flush=True)
"""


@pytest.mark.parametrize("victim", [1, 2])
def test_unmodified_ddp(tmp_path: Path, victim: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    environment = {
        **os.environ,
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "PCCL_ON_PEER_LOSS": "retry",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "DIES": str(victim),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        ends = []
        for process in processes:
            output, _ = process.communicate(timeout=60)
            if process is processes[victim]:
                assert process.returncode == -signal.SIGKILL
                continue
            assert process.returncode == 0, output
            ends.append(output.splitlines()[-1])
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert len(set(ends)) == 1, ends
    assert ends[0].startswith("bits")
    assert ends[0].endswith(" 2"), ends
