"""Beginnings and ends: init again, exits of all kinds, forks, groups beside others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import work_lifecycle as work
from conftest import MakeWorld
from world import Master, programs, run_program

PROGRAM = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("pccl", init_method=sys.argv[1])
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert (tensor == 2).all()
{end}
"""

ENDS = {
    "without destroy_process_group": "print('end')",
    "with an operation in flight": (
        "works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(dist.get_rank())]"
        "; print('end')"
    ),
    "with a Future's callback": (
        "future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: print('then'))"
        "; future.wait(); print('end')"
    ),
    "in a thread": (
        "import threading; thread = threading.Thread(target=dist.barrier); thread.start(); "
        "print('end')"
    ),
    "by sys.exit": "print('end', flush=True); sys.exit(0)",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends(master: Master, end: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(end=ENDS[end]), master.url(min_peers=2)]
    with programs([command, command]) as both:
        for program in both:
            output, _ = program.communicate(timeout=20)
            assert program.returncode == 0, output
            assert "end" in output


def test_a_program_ends_with_its_error(master: Master) -> None:
    end = "raise RuntimeError('mine')"
    command = [sys.executable, "-c", PROGRAM.format(end=end), master.url(min_peers=2)]
    with programs([command, command]) as both:
        for program in both:
            output, _ = program.communicate(timeout=20)
            assert program.returncode == 1
            assert "RuntimeError: mine" in output


def test_init_again(make_world: MakeWorld) -> None:
    make_world(2).run(work.init_again_and_again, setup="nothing")


def test_groups_within_the_world(make_world: MakeWorld) -> None:
    make_world(4).run(work.groups_within)


def test_a_forked_data_loader(make_world: MakeWorld) -> None:
    make_world(2).run(work.loads_data_with_forks)


def test_a_forked_child_is_told(make_world: MakeWorld) -> None:
    for said in make_world(2).run(work.forked_child_is_told):
        assert len(said) == 4
        assert all("fork" in line for line in said), said


def test_beside_another_default_group(make_world: MakeWorld, master: Master) -> None:
    make_world(2).run(work.beside_gloo, master.url(), setup="nothing")


def test_without_a_default_group(make_world: MakeWorld, master: Master) -> None:
    make_world(2).run(work.without_default, master.url(), setup="nothing")


# --- How torch finds the backend ------------------------------------------------------------------


def test_torch_finds_the_backend_by_itself(master: Master) -> None:
    program = PROGRAM.replace("== 2", "== 1").format(end="print('found')")
    done = run_program([sys.executable, "-c", program, master.url()])
    assert "found" in done.stdout, done.stderr


def test_without_autoload_an_import_is_enough(master: Master) -> None:
    program = "import pccl_backend; pccl_backend.tag\n" + PROGRAM.replace("== 2", "== 1")
    done = run_program(
        [sys.executable, "-c", program.format(end="print('found')"), master.url()],
        environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert "found" in done.stdout, done.stderr


def test_importing_torch_does_not_load_the_module() -> None:
    program = "import sys, torch; print([name for name in sys.modules if 'pccl' in name])"
    done = run_program([sys.executable, "-c", program])
    assert "_C" not in done.stdout, done.stdout
    assert done.stderr == ""


def test_a_broken_pccl_does_not_break_torch(tmp_path: Path) -> None:
    program = (
        "import torch.distributed as dist\n"
        "def broken(*a, **k): raise OSError('disk on fire')\n"
        "dist.Backend.register_backend = broken\n"
        "import pccl_backend._register as r\n"
        "r._registered = False\n"
        "r.register()\n"
        "print('alive')\n"
    )
    done = run_program([sys.executable, "-c", program])
    assert done.stdout == "alive\n"
    assert (
        "pccl could not be registered with torch.distributed: OSError: disk on fire" in done.stderr
    )


def test_another_torch_is_refused(tmp_path: Path) -> None:
    program = (
        "import torch; torch.__version__ = '2.99.1+cpu'\nimport pccl_backend\npccl_backend.join\n"
    )
    done = run_program([sys.executable, "-c", program])
    assert "ImportError: pccl is built for torch" in done.stderr
    assert "2.99.1" in done.stderr
    assert "pip install --no-build-isolation" in done.stderr
