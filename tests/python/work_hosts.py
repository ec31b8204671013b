"""Run by test_hosts.py: hosts of several processes, whose model FSDP2 cuts, as peers of DiLoCo."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from world import expected, wait_until

import pccl_backend as pccl
from pccl_backend.trainers import DiLoCo, Observer, OuterStep
from pccl_backend.trainers.flat import Buffers

EVERY = 4
STEPS = 6  # outer steps
LIMIT_S = 30.0


class Net(nn.Module):
    """Rows that no number of processes divides, a cut by columns, a replica, and buffers."""

    def __init__(self, hidden: int = 13) -> None:
        super().__init__()
        self.first = nn.Linear(7, hidden)
        self.second = nn.Linear(hidden, 2)  # 2 rows: the third process has none
        self.wide = nn.Linear(6, 5, bias=False)  # cut by columns
        self.scale = nn.Parameter(torch.tensor(1.5))  # each process has a copy
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x)) + self.wide(x[:, :6]).sum(1, keepdim=True)
        return self.norm(self.second(hidden)) * self.scale  # type: ignore[no-any-return]


def enter(folder: str, host: str, rank: int, size: int) -> None:
    """Meet the other processes of this host."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/{host}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=LIMIT_S),
    )


def make(size: int, seed: int = 0, hidden: int = 13) -> Net:
    """Return the model, cut between the processes of this host; whole if it has none."""
    torch.manual_seed(seed)
    model = Net(hidden)
    if size == 0:
        return model
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(model.wide, mesh=mesh, shard_placement_fn=lambda _: Shard(1))
    fully_shard(model.first, mesh=mesh)
    return fully_shard(model, mesh=mesh, ignored_params={model.scale})


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, step: int) -> None:
    """Take an inner step with gradients that do not depend on how the model is cut."""
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()  # as the end of a backward pass does
    chance = torch.Generator().manual_seed(1000 * seed + step)
    for parameter in model.parameters():
        gradient = torch.randn(parameter.shape, generator=chance)
        if isinstance(parameter, DTensor):
            mesh, places = parameter.device_mesh, parameter.placements
            parameter.grad = distribute_tensor(gradient, mesh, places, src_data_rank=None)
        else:
            parameter.grad = gradient
    junk = dist.get_rank() if dist.is_initialized() else 0  # the leader's buffers count
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.add_(torch.randn(buffer.shape, generator=chance) + junk)
        else:
            buffer.add_(seed + junk)
    optimizer.step()


def evaluate(model: nn.Module) -> torch.Tensor:
    """Run the model; FSDP2 then leaves the parameters of its root whole."""
    model.eval()
    with torch.no_grad():
        output: torch.Tensor = model(torch.ones(3, 7))
    model.train()
    return output.nan_to_num()  # the variance of the batch norm is a random number


class Recorder(Observer):
    def __init__(self) -> None:
        self.steps: list[OuterStep] = []

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        self.steps.append(done)


def train(url: str, folder: str, place: tuple[str, int, int, int], options: dict[str, Any]) -> Any:
    """Train in a host of `size` processes, or alone; return hashes, parameters and buffers.

    `options` are of DiLoCo; "hidden" is the width of the model.
    """
    host, seed, rank, size = place
    options = dict(options)
    hidden = options.pop("hidden", 13)
    group = None
    if size > 0:
        enter(folder, host, rank, size)
        group = dist.group.WORLD
    model = make(size, hidden=hidden)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)  # halves round alike if fused
    evaluate(model)
    recorder = Recorder()
    outer = DiLoCo(
        model,
        optimizer,
        url=url,
        host_group=group,
        observer=recorder,
        **{"every": EVERY, **options},
    )
    step, mixed_at = 0, []
    mix = Buffers._mix_piece

    def noted(buffers: Buffers, *arguments: Any) -> None:
        if mixed_at[-1:] != [step]:
            mixed_at.append(step)
        mix(buffers, *arguments)

    Buffers._mix_piece = noted  # type: ignore[method-assign]
    with outer, torch.no_grad():
        while outer.last is None or outer.last.revision < STEPS:
            learn(model, optimizer, seed, step)
            step += 1
            if options.get("every", EVERY) is None and step % EVERY == 0:
                evaluate(model)
                recorder.steps.append(outer.step())
        evaluate(model)
        with outer.global_parameters():
            told = evaluate(model)
            assert torch.equal(told, evaluate(model))
    assert outer.last is not None
    if "quantize" in options:
        elements = sum(parameter.numel() for parameter in model.parameters())
        sent = [done.sent_bytes for done in recorder.steps[1:]]
        assert 0 < max(sent) < 2 * elements, "something was not quantized"
    hashes = {done.synced.revision: done.synced.hash for done in recorder.steps}
    values = [whole(p).detach() for p in model.parameters()]
    if "fragments" not in options:  # otherwise the last outer step was of another fragment
        values += list(model.buffers())
    data = b"".join(v.numpy().tobytes() for v in values)
    return hashes, data, outer.inner_steps, mixed_at, told.numpy().round(4).tobytes()


# --- Losses ---------------------------------------------------------------------------------------


def sleep_for_ever() -> None:
    """Stand for a collective of NCCL whose other side is gone: nothing interrupts it."""
    while True:
        time.sleep(1.0)  # the test kills this process


def note(folder: str, name: str, text: str = "") -> None:
    """Tell the other processes of the test something."""
    path = Path(folder) / name
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def await_note(folder: str, name: str) -> str:
    path = Path(folder) / name
    assert wait_until(path.exists, timeout_s=LIMIT_S), f"{name} has not come"
    return path.read_text()


def survives(url: str, folder: str, place: tuple[str, int, int, int], dies: str) -> Any:
    """Train in host A until host B was lost and some steps have passed; or be host B.

    Args:
        url: of the run.
        folder: of the test.
        place: of this process.
        dies: "leader" or "other" is killed while all train; "in the reduce": another one is, while
            the leader waits for host A; "stuck": another one is, and the leader notices nothing;
            "leaves": another one leaves its `with` block by an exception.
    """
    host, seed, rank, size = place
    enter(folder, host, rank, size)
    model = make(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    outer = DiLoCo(model, optimizer, every=EVERY, url=url, host_group=dist.group.WORLD)
    mortal = host == "B" and rank == (0 if dies == "leader" else size - 1)
    step, left, stop = 0, 0, torch.tensor(0)
    with torch.no_grad(), outer:
        while stop < 3:
            learn(model, optimizer, seed, step)
            step += 1
            if outer.revision == 2 and host == "B":
                if dies == "stuck" and not mortal:
                    note(folder, f"stuck-{rank}")
                    sleep_for_ever()
                if dies == "stuck":
                    for other in range(size - 1):
                        await_note(folder, f"stuck-{other}")
                if mortal and dies == "leaves":
                    raise ZeroDivisionError
                if mortal and dies != "in the reduce":
                    os.kill(os.getpid(), signal.SIGKILL)
            if dies == "in the reduce" and outer.revision == 2 and step % EVERY == EVERY - 1:
                if host == "A" and rank == 0:  # it stays away from the reduce until B is lost
                    assert wait_until(
                        lambda: pccl.run_info(outer._group).broken_by is not None,
                        timeout_s=LIMIT_S,
                    )
                elif mortal:
                    kill_when_reducing()
            assert outer.last is not None or outer.revision == 0
            left = left or (outer.last is not None and len(outer.last.left) > 0)
            stop += bool(left)
            if host == "A":
                dist.broadcast(stop, 0)
    return outer.revision, bool(left)


def kill_when_reducing() -> None:
    """Be killed by a thread while this process serves the leader, which waits for host A."""
    pid = os.getpid()

    def kill() -> None:
        time.sleep(0.5)  # the leader waits for host A by then; an earlier kill has to end alike
        os.kill(pid, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


# --- A host whose processes come one by one -------------------------------------------------------


def joins_one_by_one(url: str, folder: str, place: tuple[str, int, int, int]) -> Any:
    """Host A trains. The other processes of host B make their trainers after the first, and after A
    steps.

    Host A counts its outer steps while host B is incomplete. If it waited for B, none would come.
    """
    host, seed, rank, size = place
    enter(folder, host, rank, size)
    model = make(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    outer = DiLoCo(model, optimizer, every=EVERY, url=url, host_group=dist.group.WORLD)
    if host == "B":
        if rank == 0:
            note(folder, "first")
        else:
            await_note(folder, f"steps-{10 * rank}")
    alone, stop, step = 0, torch.tensor(0), 0
    with torch.no_grad(), outer:
        first = outer.revision
        while stop < (3 if host == "A" else 2):  # host B enters at the end of one of these steps
            learn(model, optimizer, seed, step)
            step += 1
            if step % EVERY:
                continue
            assert outer.last is not None
            alone += outer.last.world_size == 1 and (Path(folder) / "first").exists()
            if host == "A" and rank == 0 and alone:
                note(folder, f"steps-{alone}")
            stop += outer.last.world_size == 2
            dist.broadcast(stop, 0)
        assert outer.last is not None
        return first, alone, outer.last.synced.hash


# --- Checkpoints ----------------------------------------------------------------------------------


def saves(url: str, folder: str, place: tuple[str, int, int, int], steps: int) -> Any:
    """Load the checkpoint of the folder, if there is one; train; the leader saves."""
    host, seed, rank, size = place
    enter(folder, f"{host}-{steps}", rank, size)
    model = make(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    outer = DiLoCo(model, optimizer, every=EVERY, url=url, host_group=dist.group.WORLD)
    path = Path(folder) / "checkpoint"
    if path.exists() and rank == 0:
        state = outer.state_dict()
        dcp.load(state, checkpoint_id=path, no_dist=True)
        outer.load_state_dict(state)
    if rank > 0:
        with expected(pccl.InvalidStateError, "rank 0"):
            outer.state_dict()
    with torch.no_grad(), outer:
        first = outer.revision
        got = torch.cat([whole(p).flatten() for p in model.parameters()])
        step = 0
        while outer.revision < first + steps:
            learn(model, optimizer, seed, step)
            step += 1
        now = torch.cat([whole(p).flatten() for p in model.parameters()])
        if rank == 0:
            dcp.save(outer.state_dict(), checkpoint_id=path, no_dist=True)
    assert outer.last is not None
    return first, got.numpy().tobytes(), now.numpy().tobytes(), outer.last.synced.hash


# --- Memory ---------------------------------------------------------------------------------------


def maps(pid: int) -> set[str]:
    """Return the inodes of the shared outer state that a process maps."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    return {line.split()[4] for line in lines if "memfd:pccl-outer-state" in line}


def holds_memory(url: str, folder: str, place: tuple[str, int, int, int]) -> None:
    """Say which memory this process maps, and wait to be killed."""
    host, _, rank, size = place
    enter(folder, host, rank, size)
    model = make(size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with DiLoCo(model, optimizer, every=EVERY, url=url, host_group=dist.group.WORLD):
        note(folder, f"maps-{rank}", " ".join(sorted(maps(os.getpid()))))
        sleep_for_ever()
