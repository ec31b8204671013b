"""The command `pccl`, as a person types it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from world import Master, run_program

PCCL = [sys.executable, "-m", "pccl_backend.cli"]


def test_version() -> None:
    done = run_program([*PCCL, "--version"])
    assert done.returncode == 0
    assert re.fullmatch(r"pccl \d+\.\d+\.\d+\n", done.stdout)


def test_help_names_the_commands() -> None:
    done = run_program([*PCCL, "--help"])
    assert done.returncode == 0
    named = re.findall(r"^    (\w+) +\S", done.stdout, re.MULTILINE)
    expected = ["master", "runs", "status", "doctor", "top", "forget", "token", "demo", "probe"]
    assert named == expected, done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [([], "required: COMMAND"), (["mastr"], "invalid choice: 'mastr'"), (["-x", "demo"], "-x")],
)
def test_mistakes(words: list[str], says: str) -> None:
    done = run_program([*PCCL, *words])
    assert done.returncode == 2
    assert says in done.stderr


def test_the_master_explains_itself() -> None:
    done = run_program([*PCCL, "master", "--help"])
    assert done.returncode == 0
    assert "--host" in done.stdout + done.stderr
    assert "--port" in done.stdout + done.stderr


def test_the_master_refuses_a_misspelt_setting() -> None:
    done = run_program([*PCCL, "master"], environment={"PCCL_LGO": "info"})
    assert done.returncode == 2
    assert done.stderr.startswith("pccl master: PCCL_LGO is no setting of pccl: did you mean PCCL_")


def test_the_master_warns_of_an_unknown_setting() -> None:
    done = run_program([*PCCL, "master", "--port", "x"], environment={"PCCL_FOO": "1"})
    assert done.returncode == 2
    assert done.stderr.startswith("pccl: PCCL_FOO is no setting of pccl and has no effect; known")


def test_the_command_does_not_import_torch() -> None:
    program = "import sys, pccl_backend.cli; print('torch' in sys.modules)"
    assert run_program([sys.executable, "-c", program]).stdout == "False\n"


def test_the_master_ends_in_peace(tmp_path: Path) -> None:
    master = Master(tmp_path / "log.txt")
    master.stop()
    assert master.process.returncode == 0, "it ends in peace when told to"
