"""torchrun with a script that knows nothing of pccl but its name."""

from __future__ import annotations

import sys
from pathlib import Path

from world import Master, run_program

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
assert (tensor == 3).all(), tensor
dist.barrier()
print("rank", dist.get_rank(), "is done", flush=True)
dist.destroy_process_group()
"""

RESTARTS = """
import os, sys, torch, torch.distributed as dist

dist.init_process_group("pccl")
dist.barrier()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os._exit(7)
tensor = torch.ones(3)
dist.all_reduce(tensor)
print("rank", dist.get_rank(), "is done", flush=True)
dist.destroy_process_group()
"""

OPEN = """
import torch, torch.distributed as dist

dist.init_process_group("pccl")
tensor = torch.ones(3)
dist.all_reduce(tensor)
print("size", dist.get_world_size(), flush=True)
assert (tensor == dist.get_world_size()).all()
dist.barrier()
dist.destroy_process_group()
"""


def torchrun(path: Path, text: str, *options: str, **kwargs: object) -> str:
    script = path / "script.py"
    script.write_text(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", *options, str(script)]
    done = run_program(command, **kwargs)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_unmodified_script(tmp_path: Path) -> None:
    output = torchrun(tmp_path, SCRIPT, "--nproc-per-node=3")
    assert output.count("is done") == 3


def test_workers_that_are_restarted(tmp_path: Path) -> None:
    """The second attempt meets at the same store, where the first has left its traces."""
    output = torchrun(tmp_path, RESTARTS, "--nproc-per-node=2", "--max-restarts=1")
    assert output.count("is done") == 2


def test_a_run_with_a_master_of_its_own(tmp_path: Path, master: Master) -> None:
    """PCCL_MASTER wins over env://, whose rank and size then describe this machine only."""
    variables = {"PCCL_MASTER": master.url(min_peers=2), "OMP_NUM_THREADS": "1"}
    output = torchrun(tmp_path, OPEN, "--nproc-per-node=2", environment=variables)
    assert output.count("size 2") == 2
