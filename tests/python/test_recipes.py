"""The recipes for other projects' trainers run as their users would run them.

They need packages that nothing else here needs, and are skipped without them.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from world import run_program

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDED = {
    "recipe_hf_trainer.py": ["transformers", "accelerate"],
    "recipe_lightning.py": ["lightning"],
}


def test_every_recipe_is_run_here() -> None:
    assert sorted(NEEDED) == sorted(path.name for path in EXAMPLES.glob("recipe_*.py"))


@pytest.mark.parametrize("name", NEEDED)
def test_recipe(name: str) -> None:
    missing = [each for each in NEEDED[name] if importlib.util.find_spec(each) is None]
    if missing:
        pytest.skip(f"SKIPPED: needs {' and '.join(missing)}: pip install '.[recipes]'")
    ended = run_program([sys.executable, str(EXAMPLES / name)], timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ends = re.findall(r"peer \d ends at step 4 of .*, hash (\w+)", ended.stdout)
    assert len(ends) == 2, ended.stdout
    assert len(set(ends)) == 1, ends
