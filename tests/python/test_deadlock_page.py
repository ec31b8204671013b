"""docs/deadlocks.md: its script draws its pictures, and its program raises its error."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest
import work_cycles
from blocks import ROOT, blocks_of
from conftest import MakeWorld
from world import run_program

PAGE = ROOT / "docs" / "deadlocks.md"
SCRIPT = ROOT / "docs" / "pictures" / "deadlocks.py"
PICTURES = re.findall(r"\]\((pictures/\w+\.svg)\)", PAGE.read_text())


def test_the_pictures_are_drawn_by_the_script() -> None:
    done = run_program([sys.executable, str(SCRIPT)])
    assert done.returncode == 0, done.stdout
    assert len(PICTURES) == 3


def test_a_picture_that_differs_is_found(tmp_path: Path) -> None:
    script = tmp_path / SCRIPT.name
    script.write_text(SCRIPT.read_text())
    assert run_program([sys.executable, str(script)]).returncode == 1
    assert run_program([sys.executable, str(script), "--update"]).returncode == 0
    assert run_program([sys.executable, str(script)]).returncode == 0


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_is_valid(picture: str) -> None:
    tree = xml.etree.ElementTree.parse(ROOT / "docs" / picture)
    assert tree.getroot().tag.endswith("svg")


def test_the_error_is_that_of_the_page(make_world: MakeWorld) -> None:
    """Run the program of the page; compare all but the epoch and the names of the machines."""
    (program,) = (block for block in blocks_of(PAGE) if "async_op=False" in block.text)
    (shown,) = (block for block in blocks_of(PAGE) if "cannot complete" in block.text)
    texts = make_world(2).run(work_cycles.error_of_program, program.text)
    assert plain(texts[0]) == plain(shown.text)
    assert plain(texts[1]) == plain(shown.text).replace("(a, #0)", "(b, #0)", 1)


def plain(text: str) -> str:
    """Return the text as one line without what differs from run to run."""
    one_line = " ".join(text.split())
    return re.sub(r"rank (\d) \([^)]*\)", r"rank \1", re.sub(r"epoch \w+\.\d+", "epoch", one_line))
