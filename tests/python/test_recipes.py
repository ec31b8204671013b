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
    "recipe_torchft.py": ["torchft"],
}
EXTRA = {"recipe_torchft.py": "torchft"}  # the others: recipes
PEER = (r"peer \d ends at step 4 of .*, hash (\w+)", 2)
ENDS = {"recipe_torchft.py": (r"replica \d ends at step \d+ of 3 replicas, .* hash (\w+)", 3)}
PRINTED = {
    "recipe_torchft.py": [
        r"replica 2 is killed on purpose",
        r"replica [01]: repeats step \d+: .* lost",
        r"replica 2, start 1: takes the state of the others",
    ],
}


def test_every_recipe_is_run_here() -> None:
    assert sorted(NEEDED) == sorted(path.name for path in EXAMPLES.glob("recipe_*.py"))


@pytest.mark.parametrize("name", NEEDED)
def test_recipe(name: str) -> None:
    missing = [each for each in NEEDED[name] if importlib.util.find_spec(each) is None]
    if missing:
        extra = EXTRA.get(name, "recipes")
        pytest.skip(f"SKIPPED: needs {' and '.join(missing)}: pip install '.[{extra}]'")
    ended = run_program([sys.executable, str(EXAMPLES / name)], timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for pattern in PRINTED.get(name, []):
        assert re.search(pattern, ended.stdout), f"{pattern}\n{ended.stdout}"
    pattern, count = ENDS.get(name, PEER)
    ends = re.findall(pattern, ended.stdout)
    assert len(ends) == count, ended.stdout
    assert len(set(ends)) == 1, ends
