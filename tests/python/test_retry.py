"""PCCL_ON_PEER_LOSS=retry: after a loss the survivors repeat the operations; no error is raised."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet, begin_all_reduce, check_sum
from programs import Program
from world import Master, free_port


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet(environment={"PCCL_ON_PEER_LOSS": "retry"})
    yield fleet
    fleet.close()


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_kill_during_all_reduce(fleet: Fleet, victim: int) -> None:
    peers = fleet.found(3)
    begin_all_reduce(peers)
    peers[victim].kill()
    survivors = [peer for peer in peers if peer is not peers[victim]]
    check_sum(survivors)
    # With no operation open, rank and size are the current ones. No rank called update_topology.
    for seed, peer in enumerate(survivors):
        peer.tell("all_reduce", count=1000, seed=seed)
    for rank, peer in enumerate(survivors):
        assert "posted" in peer.answer()
        assert peer.answer()["ok"]
        info = peer.call("info")
        assert (info["rank"], info["world"]) == (rank, 2)


def test_a_tensor_that_is_not_contiguous_is_reduced_once(fleet: Fleet) -> None:
    peers = fleet.found(3)
    count = 4 << 20  # elements: 16 MiB of float32
    for seed, peer in enumerate(peers):
        dies = {"dies_at": 0.5} if seed == 2 else {}
        peer.tell("all_reduce", count=count, seed=seed, stride=2, **dies)
    for peer in peers:
        assert "posted" in peer.answer()
    for peer in peers[:2]:
        values = peer.answer()["values"]
        assert values == [2 * (i * (count // 1000) % 64) + 1 for i in range(len(values))]


def test_a_reduce_of_a_tensor_that_is_not_contiguous_is_repeated(fleet: Fleet) -> None:
    peers = fleet.found(3)
    ring = peers[0].call("info")["ring"]
    before = ring[ring.index(0) - 1]  # the sum that it passes on goes to rank 0, the root
    count = 4 << 20  # elements: 16 MiB of float32
    for seed, peer in enumerate(peers):
        dies = {"dies_at": 0.5} if seed == before else {}
        peer.tell("all_reduce", count=count, seed=seed, stride=2, root=0, **dies)
    for peer in peers:
        assert "posted" in peer.answer()
    other = 3 - before
    answer = peers[0].answer()
    assert answer["ok"], answer
    values = answer["values"]
    assert values == [2 * (i * (count // 1000) % 64) + other for i in range(len(values))]
    assert peers[other].answer()["untouched"], "it only contributed"


# The training code does not handle losses. One rank kills itself when the others are about to enter
# the same backward pass. All ranks have the same batch, so the gradient should equal the local one.
# The ratio of the two is the scale of the step.
TRAINING = """
import os, signal, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("pccl")
torch.manual_seed(1)
plain = torch.nn.Linear(200, 200)
model = DistributedDataParallel(plain)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.ones(8, 200)
scales = []
for step in range(40):
    if step == 20 and os.environ["RANK"] == os.environ["DIES"]:
        os.kill(os.getpid(), signal.SIGKILL)
    local = torch.autograd.grad(plain(batch).square().mean(), plain.weight)[0]
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    scales.append(f"{(plain.weight.grad / local).nanmean().item():.3f}")
    optimizer.step()
bits = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
size = dist.get_world_size()
dist.barrier()  # whoever leaves first would be gone from the size of the other
print(hash(tuple(bits)), size, *scales, flush=True)
"""


@pytest.mark.parametrize(("victim", "hosted"), [(0, False), (1, False), (2, False), (2, True)])
def test_unmodified_ddp(tmp_path: Path, master: Master, victim: int, hosted: bool) -> None:
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
    if not hosted:
        environment["PCCL_MASTER"] = master.url()
    ends = []
    with contextlib.ExitStack() as stack:
        command = [sys.executable, str(script)]
        processes = [
            stack.enter_context(Program(command, env={**environment, "RANK": str(rank)}))
            for rank in range(3)
        ]
        for process in processes:
            output, _ = process.communicate()
            if process is processes[victim]:
                assert process.returncode == -signal.SIGKILL
                continue
            assert process.returncode == 0, output
            ends.append(output.splitlines()[-1].split())
    assert ends[0] == ends[1], "the survivors have the same bits and took the same steps"
    size, *scales = ends[0][1:]
    assert size == "2"
    # In the interrupted step DDP divided by three, but only two ranks were summed. docs/running.md
    # explains it.
    assert scales == ["1.000"] * 20 + ["0.667"] + ["1.000"] * 19
