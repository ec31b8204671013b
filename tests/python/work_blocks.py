"""Run blocks of a page in one peer, for test_blocks.py."""

from __future__ import annotations

from typing import Any


def run(programs: list[tuple[str, str]], before: str) -> int:
    """Run programs, each given as its place and its text, after `before`; return their number."""
    names: dict[str, Any] = {}
    for place, text in programs:
        exec(compile(before, "pages.py", "exec"), names)
        exec(compile(text, place, "exec"), names)
    return len(programs)
