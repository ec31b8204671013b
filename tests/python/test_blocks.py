"""Each fenced block of the README and of the pages runs, or has the reason why it does not."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pages
import pytest
import work_blocks
from blocks import ROOT, Block, all_blocks, blocks_of, programs
from conftest import MakeWorld
from machine import refusal
from world import Master, plain_text, require_own_name, run_program

TESTS = Path(__file__).parent
PROGRAMS = programs()
URL = "pccl://host:48148/my-run"
SCRIPT_S = 100.0
ALONE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def of(language: str) -> dict[str, list[Block]]:
    return {page: found for (page, each), found in PROGRAMS.items() if each == language}


def test_every_block_runs_or_has_a_reason() -> None:
    faults = [f"{block.place}: {block.fault}" for block in all_blocks() if block.fault]
    assert faults == []


def test_every_test_that_a_block_names_exists() -> None:
    for block in all_blocks():
        if block.test is not None:
            file, function = block.test
            tree = ast.parse((TESTS / file).read_text())
            names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert function in names, block.place


@pytest.mark.parametrize(
    ("above", "language", "fault"),
    [
        ("", "python", None),
        ("", "text", None),
        ("", "", "no test runs a block without a language"),
        ("", "yaml", "no test runs yaml"),
        ("<!-- not run: it needs two machines -->\n", "yaml", None),
        ("<!-- not run: -->\n", "sh", "is neither"),
        ("<!-- run by test_blocks.py::test_a_fault_is_found -->\n", "sh", None),
        ("<!-- run by somebody -->\n", "sh", "is neither"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, above: str, language: str, fault: str | None) -> None:
    page = ROOT / "build" / f"{tmp_path.name}.md"  # a page is in the repository
    page.parent.mkdir(exist_ok=True)
    page.write_text(f"Text.\n\n{above}```{language}\ntrue\n```\n")
    try:
        (block,) = blocks_of(page)
    finally:
        page.unlink()
    assert block.line == 3 + above.count("\n")
    assert block.fault is None if fault is None else fault in (block.fault or "")


def test_every_page_with_programs_is_known() -> None:
    assert set(of("python")) == set(pages.PYTHON)
    assert set(of("sh")) == set(pages.SHELL)


@plain_text
@pytest.mark.parametrize("page", pages.PYTHON)
def test_python(page: str, master: Master, make_world: MakeWorld) -> None:
    """Run the blocks in two peers."""
    texts = []
    for block in of("python")[page]:
        lines = "\n" * block.line + pages.changed(page, block.program)
        texts.append((block.place, lines.replace(URL, master.url(min_peers=2))))
    before = pages.PYTHON[page].replace(URL, master.url(min_peers=2))
    setup = "group" if page in pages.IN_A_GROUP else "nothing"
    world = make_world(2, init_method=master.url(min_peers=2))
    ran = world.run(work_blocks.run, texts, before, setup=setup, timeout=SCRIPT_S)
    assert ran == [len(texts)] * 2


@plain_text
@pytest.mark.parametrize("page", pages.SHELL)
def test_shell(page: str, tmp_path: Path) -> None:
    """Run the blocks in one shell, in a network of its own, where the port of a master is free."""
    require_own_name()
    alone = [*ALONE, *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if refused := refusal([*alone, "ip", "link", "set", "lo", "up"], "namespaces"):
        pytest.skip(refused)
    (tmp_path / "home").mkdir()
    for block in blocks_of(ROOT / page):
        if block.text.startswith("# train.py"):
            (tmp_path / "train.py").write_text(pages.changed(page, block.text))
    script = pages.SHELL[page]
    for block in of("sh")[page]:
        script += f"\necho '== {block.place}'\n{pages.changed(page, block.text)}"
    commands = pages.make_commands(tmp_path)
    environment = {"ROOT": str(tmp_path), "PATH": f"{commands}:{os.environ['PATH']}"}
    shell = [*alone, "bash", "-euc", script]
    done = run_program(shell, environment=environment, cwd=ROOT, timeout=SCRIPT_S)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.stdout.count("== ") >= len(of("sh")[page])
