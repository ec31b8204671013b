"""Starts and ends: repeated init, exits of all kinds, forks, groups beside other groups."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import work_lifecycle as work
from conftest import MakeWorld
from programs import Program
from world import Lost, Master, free_port, keyring_options, run_program

import pccl_backend


@pytest.mark.parametrize(
    ("end", "exit_code", "says"),
    [
        ("much behind", 0, "end of much behind"),
        ("a waiting thread", 0, "end of a waiting thread"),
        ("an error", 1, "RuntimeError: my own"),
        ("sys.exit", 3, ""),
    ],
)
def test_a_program_ends_without_destroy(
    make_world: MakeWorld, end: str, exit_code: int, says: str
) -> None:
    world = make_world(2)
    world.start(work.program, end, setup="program")
    # Each process unloads torch's modules, each on its own pages: 20 s if the core is shared.
    assert world.outcomes(60, expect_success=False) == [Lost(exit_code)] * 2, world.tails()
    for process in world.processes:
        assert says in process.log.read_text()


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


# --- Standard descriptors -------------------------------------------------------------------------

REDUCES = """
import os, sys, torch, torch.distributed as dist
url, rank, answer = sys.argv[1:]
place = {"rank": int(rank), "world_size": 2} if url.startswith("file:") else {}
dist.init_process_group("pccl", init_method=url, **place)
tensor = torch.ones(1000)
dist.all_reduce(tensor)
dist.barrier()
dist.destroy_process_group()
open(answer, "w").write(f"sum {tensor[7].item()}, " + os.readlink("/proc/self/fd/2"))
"""


def closed(command: Sequence[str], redirections: str) -> list[str]:
    """Return a command that starts a program like a daemon, without some descriptors."""
    return ["/bin/sh", "-c", f'exec "$@" {redirections}', "sh", *command]


@pytest.mark.parametrize("redirections", ["0<&-", "0<&- 2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize("open_run", [False, True])
def test_standard_descriptors_that_are_closed(
    tmp_path: Path, open_run: bool, redirections: str
) -> None:
    with ExitStack() as stack:
        url, journal = f"file://{tmp_path}/store", tmp_path / "journal"
        if open_run:
            port = free_port()
            options = ["--port", str(port), "--journal", str(journal), *keyring_options()]
            command = [sys.executable, "-m", "pccl_backend.cli", "master", *options]
            master = stack.enter_context(Program(closed(command, redirections)))
            url = f"pccl://127.0.0.1:{port}/run?min_peers=2"
        answers = [tmp_path / str(rank) for rank in range(2)]
        peers = [
            stack.enter_context(
                Program(
                    closed(
                        [sys.executable, "-c", REDUCES, url, str(rank), str(answer)], redirections
                    )
                )
            )
            for rank, answer in enumerate(answers)
        ]
        assert [peer.wait(60) for peer in peers] == [0, 0]
        for answer in answers:
            assert answer.read_text().startswith("sum 2.0")
            assert ("2>&-" in redirections) == answer.read_text().endswith(", /dev/null")
        if open_run:
            master.terminate()
            assert master.wait(20) == 0
            assert b"pccl 20" not in journal.read_bytes(), "lines of the log"


# --- How torch finds the backend ------------------------------------------------------------------

PROGRAM = """
import sys, torch, torch.distributed as dist
assert not [name for name in sys.modules if name.startswith("pccl_backend._C")], "loaded too early"
dist.init_process_group("pccl", init_method=sys.argv[1])
tensor = torch.ones(1000)
dist.all_reduce(tensor)
print("found", dist.get_backend(), dist.get_world_size())
"""


def test_torch_finds_the_backend_by_itself(master: Master) -> None:
    done = run_program([sys.executable, "-c", PROGRAM, master.url()])
    assert done.stdout == "found pccl 1\n", done.stderr
    assert done.returncode == 0


def test_without_autoload_an_import_is_enough(master: Master) -> None:
    program = PROGRAM.replace("dist.init", "import pccl_backend; dist.init")
    done = run_program(
        [sys.executable, "-c", program, master.url()],
        environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert done.stdout == "found pccl 1\n", done.stderr


def test_a_broken_pccl_does_not_break_torch(make_world: MakeWorld) -> None:
    (warnings,) = make_world(1).run(work.cannot_register, setup="nothing")
    assert warnings == [
        "pccl could not be registered with torch.distributed: OSError: disk on fire"
    ]


def test_another_torch_is_refused(make_world: MakeWorld) -> None:
    (text,) = make_world(1).run(work.meets_another_torch, setup="nothing")
    assert "pccl is built for torch" in text
    assert "2.99.1" in text
    assert "`make setup TORCH=2.99.1` in the source folder" in text


def test_a_source_folder_that_hides_the_installed_package_says_so(tmp_path: Path) -> None:
    package = tmp_path / "pccl_backend"
    package.mkdir()
    source = Path(pccl_backend.__file__).parent
    for name in ("__init__.py", "_C.py"):
        shutil.copy(source / name, package)
    (tmp_path / "setup.py").touch()
    done = run_program([sys.executable, "-c", "import pccl_backend._C"], cwd=tmp_path)
    assert done.returncode == 1
    assert f"the source of pccl in {tmp_path}, which is not built" in done.stderr
    assert "run your program from another folder" in done.stderr


def test_a_libuv_replaced_by_torchs_is_refused() -> None:
    """With global symbols, calls of libuv reach the copy in torch, which is of another version."""
    program = "import torch, pccl_backend._C"
    done = run_program([sys.executable, "-c", program], environment={"TORCH_USE_RTLD_GLOBAL": "1"})
    assert "ImportError: libuv's uv_run comes from" in done.stderr
    assert "libtorch_cpu.so, which has put its own copy in the place of libuv" in done.stderr
    assert run_program([sys.executable, "-c", program]).returncode == 0
