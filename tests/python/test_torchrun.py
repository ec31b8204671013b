"""Starts from the environment, as torchrun and other launchers prepare it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
import work_lifecycle as work
from conftest import MakeWorld
from own_network import own_network
from programs import Program
from world import Lost, Master, Returned, free_port, plain_text, require_own_name, run_program

SCRIPT = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("pccl")
assert dist.get_rank() == int(os.environ["RANK"])
assert dist.get_world_size() == int(os.environ["WORLD_SIZE"])
model = DistributedDataParallel(torch.nn.Linear(4, 4))
model(torch.ones(2, 4)).sum().backward()
tensor = torch.full((3,), float(dist.get_rank()))
dist.all_reduce(tensor)
assert (tensor == 1).all(), tensor
dist.barrier()
os.write(1, f"rank {dist.get_rank()} is done\\n".encode())  # whole, whatever the other writes
dist.destroy_process_group()
"""


WORLD_OF_TWO = """
import os, sys, torch, torch.distributed as dist

try:
    dist.init_process_group("pccl")
except Exception as error:
    os.write(1, f"{type(error).__name__}: {error}\\n".encode())
    sys.exit(3)
assert dist.get_world_size() == 2
tensor = torch.ones(3)
dist.all_reduce(tensor)
assert (tensor == 2).all(), tensor
os.write(1, f"rank {dist.get_rank()} trains\\n".encode())
if len(sys.argv) > 1 and dist.get_rank() == 0:
    sys.stdin.readline()  # until the test has seen enough
dist.barrier()
dist.destroy_process_group()
"""
SAYS_WHETHER_IT_IS_ENCRYPTED = """
import os, torch, torch.distributed as dist
import pccl_backend as pccl

dist.init_process_group("pccl")
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert (tensor == 2).all(), tensor
os.write(1, f"encrypted: {pccl.run_info().encrypted}\\n".encode())
dist.barrier()
dist.destroy_process_group()
"""
LAUNCHER = [sys.executable, "-m", "torch.distributed.run"]
STANDALONE = [*LAUNCHER, "--standalone"]
# The same on a machine whose name does not resolve.
HERE = [*LAUNCHER, "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]

# Rank 0 hosts the master, which outlives its membership. `os.write` is whole, whatever the others
# write. The others know from the store that rank 0 has left.
RANK_0_LEAVES_FIRST = """
import os, sys, torch, torch.distributed as dist
import pccl_backend as pccl

dist.init_process_group("pccl")
rank, size = dist.get_rank(), dist.get_world_size()
tensor = torch.ones(3)
dist.all_reduce(tensor)
assert (tensor == size).all()
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
during_a_call = "during a call" in sys.argv
if rank == 0:
    if during_a_call:
        store.wait([f"rank {other} has called" for other in range(1, size)])
    dist.destroy_process_group()
    store.set("rank 0 has left", "yes")
    sys.exit()
if during_a_call:
    work = dist.all_reduce(tensor, async_op=True)
    store.set(f"rank {rank} has called", "yes")
else:
    store.wait(["rank 0 has left"])
if len(sys.argv) == 1:
    dist.destroy_process_group()
    sys.exit()
try:
    work.wait() if during_a_call else dist.all_reduce(tensor)
except pccl.PcclError as error:
    os.write(1, f"{type(error).__name__}: {error}\\n".encode())
assert (tensor == size).all(), "it is as it was"
topology = pccl.update_topology()
tensor = torch.ones(3)
dist.all_reduce(tensor)
os.write(1, f"sum {tensor[0]:.0f} of {topology.world_size}\\n".encode())
dist.destroy_process_group()
"""


def rank_0_leaves_first(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(RANK_0_LEAVES_FIRST)
    command = [*HERE, "--nproc-per-node=3", str(script), *arguments]
    # One thread each: otherwise torchrun reports on stderr that it has chosen that.
    return run_program(command, environment={"OMP_NUM_THREADS": "1"})


def test_the_others_keep_quiet_when_rank_0_leaves_first(tmp_path: Path) -> None:
    done = rank_0_leaves_first(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("when", ["after it", "during a call"])
def test_a_call_without_rank_0_fails_for_the_others_alike(tmp_path: Path, when: str) -> None:
    done = rank_0_leaves_first(tmp_path, when)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    lost = [line for line in lines if line.startswith("PeerLostError: all_reduce")]
    assert len(lost) == 2, lines
    assert lost[0] == lost[1]
    assert "rank 0" in lost[0]
    assert "has left" in lost[0]
    assert lines.count("sum 2 of 2") == 2, "they go on without it"


RANK_0_IS_KILLED = """
import os, signal
import torch
import torch.distributed as dist

dist.init_process_group("pccl")
try:  # rank 1 may hear of the end of the master before it has heard of the first success
    dist.all_reduce(torch.ones(3))
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))
except dist.DistBackendError as error:
    os.write(1, f"{error}\\n".encode())
"""


def test_a_kill_of_rank_0_says_that_the_master_was_there(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(RANK_0_IS_KILLED)
    world = {**os.environ, **environment_of(free_port(), 2), "PCCL_MASTER_TIMEOUT": "1"}
    command = [sys.executable, str(script)]
    with (
        Program(command, env={**world, "RANK": "0"}),
        Program(command, env={**world, "RANK": "1"}, stderr=subprocess.PIPE) as survivor,
    ):
        stdout, stderr = survivor.communicate()
    assert "It is in the process of rank 0: if that process has ended, the run is over" in stderr
    assert "The master was in the process of rank 0: start the whole run again" in stdout


def test_another_launch_is_not_taken_for_a_part_of_this_one(tmp_path: Path, master: Master) -> None:
    script = tmp_path / "script.py"
    script.write_text(WORLD_OF_TWO)
    environment = {"PCCL_MASTER": master.url()}
    command = [*HERE, "--nproc-per-node=2", str(script)]
    with Program(
        [*command, "waits"], stdin=subprocess.PIPE, env={**os.environ, **environment}
    ) as first:
        assert {first.line(), first.line()} == {"rank 0 trains\n", "rank 1 trains\n"}
        second = run_program(command, environment=environment)
        assert second.returncode != 0, second.stdout
        assert "trains" not in second.stdout
        assert "InvalidStateError" in second.stdout, second.stdout + second.stderr
        assert "peers of another launch" in second.stdout
        assert "ANOTHER_NAME" in second.stdout
        first.communicate("go on\n")
        assert first.returncode == 0
    third = run_program(command, environment=environment)
    assert third.returncode == 0, third.stdout + third.stderr


@pytest.mark.parametrize("launcher", [HERE, STANDALONE], ids=["here", "standalone"])
def test_torchrun_with_an_unmodified_script(tmp_path: Path, launcher: list[str]) -> None:
    if launcher is STANDALONE:
        require_own_name()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_program([*launcher, "--nproc-per-node=2", str(script)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 is done" in done.stdout
    assert "rank 1 is done" in done.stdout


def environment_of(port: int, size: int) -> dict[str, str]:
    return {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def test_the_environment_alone(make_world: MakeWorld) -> None:
    variables = environment_of(free_port(), 3)
    assert make_world(3).run(work.takes_environment, variables, setup="nothing") == [3] * 3


def test_a_fixed_world_goes_on_with_those_that_are_left(make_world: MakeWorld) -> None:
    world = make_world(3)
    world.start(work.outlives_others, environment_of(free_port(), 3), setup="nothing")
    outcomes = world.outcomes(30, expect_success=False)
    assert outcomes[1:] == [Lost(7), Lost(7)], world.tails()
    assert isinstance(outcomes[0], Returned), world.tails()
    assert outcomes[0].value == [3, 1]


def test_workers_that_are_restarted(make_world: MakeWorld) -> None:
    """The second attempt meets at the agent's store, where the first has left entries."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = environment_of(store.port, 2) | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    first = make_world(2)
    first.start(work.dies_in_environment, variables, setup="nothing")
    assert first.outcomes(20, expect_success=False) == [Lost(7)] * 2, first.tails()
    assert make_world(2).run(work.takes_environment, variables, setup="nothing") == [2] * 2


def test_a_master_of_ones_own(make_world: MakeWorld, master: Master) -> None:
    """PCCL_MASTER wins over env://, whose world of one process is one machine of several."""
    url = master.url(min_peers=2)
    world = make_world(1)
    for _ in range(2):  # two machines of one process each
        variables = environment_of(free_port(), 1) | {"PCCL_MASTER": url}
        world.spawn(work.takes_environment, variables, setup="nothing", rank=0)
    outcomes = world.outcomes(20)
    assert [outcome.value for outcome in outcomes] == [2, 2]


@plain_text
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([{}, {}], "encrypted: True"),
        ([{"PCCL_INSECURE": "1"}] * 2, "encrypted: False"),
        ([{"PCCL_INSECURE": "1"}, {}], "rank 0 has set PCCL_INSECURE=1 and rank 1 has not"),
        ([{}, {"PCCL_INSECURE": "1"}], "rank 0 has not set PCCL_INSECURE=1 and rank 1 has"),
    ],
)
def test_two_machines_encrypt_with_nothing_set(
    tmp_path: Path, settings: list[dict[str, str]], said: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SAYS_WHETHER_IT_IS_ENCRYPTED)
    with own_network() as network:
        hosts = [network.host() for _ in settings]
        where = ["--nnodes=2", "--nproc-per-node=1", "--master-port=29500"]
        where += [f"--master-addr={hosts[0].address}"]
        logs = [tmp_path / f"log-{number}" for number in range(2)]
        programs = []
        for number, (host, own) in enumerate(zip(hosts, settings, strict=True)):
            enter = ["nsenter", f"--net={host.namespace}"]
            command = [*LAUNCHER, *where, f"--node-rank={number}", str(script)]
            variables = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", **own}
            log = logs[number].open("wb")
            programs.append(Program([*enter, *command], stdout=log, stderr=log, env=variables))
            log.close()
        try:
            if said.startswith("encrypted"):
                assert [program.wait(120) for program in programs] == [0, 0], logs[0].read_text()
            else:
                assert [program.wait(120) != 0 for program in programs] == [True, True]
                assert f"ValueError: rank 1 cannot join: {said}" in logs[0].read_text()
        finally:
            for program in programs:
                program.end()
        assert said in logs[1].read_text()
