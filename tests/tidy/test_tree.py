"""Check that the tree keeps every rule of tidy."""

from collections.abc import Callable, Iterable, Iterator

import pytest
import tidy_rules
from tidy_source import Source, read_tree


@pytest.fixture(scope="module")
def tree() -> list[Source]:
    return read_tree()


@pytest.mark.parametrize("rule", tidy_rules.ALL, ids=lambda rule: rule.__name__)
def test_tree_keeps(rule: Callable[[Iterable[Source]], Iterator[str]], tree: list[Source]) -> None:
    complaints = list(rule(tree))
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


def test_tree_is_seen(tree: list[Source]) -> None:
    paths = {source.path for source in tree}
    assert {"csrc/base/ids.h", "csrc/base/ids.cc", "Makefile", "tests/tidy/test_tree.py"} <= paths
