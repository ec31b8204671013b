"""The events of the log: the page lists them all, and each is used."""

from __future__ import annotations

import re
from pathlib import Path

from blocks import ROOT

EVENTS = ROOT / "csrc" / "base" / "log_event.cc"


def events() -> dict[str, str]:
    """Return the name of each enumerator."""
    pairs = re.findall(r'\{LogEvent::(k\w+), "(\w+)"\}', EVENTS.read_text())
    assert len(pairs) == len(dict(pairs)) > 40
    return dict(pairs)


def test_the_page_lists_the_events() -> None:
    page = (ROOT / "docs" / "watching.md").read_text()
    table = page.split("| event | meaning |\n|---|---|\n")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert listed == list(events().values())


def test_every_event_is_used() -> None:
    files = [*(ROOT / "csrc").rglob("*.cc"), *(ROOT / "csrc").rglob("*.h")]
    files += [*(ROOT / "master").rglob("*.cc"), *(ROOT / "master").rglob("*.h")]
    used: set[str] = set()
    for path in files:
        if path != EVENTS:
            used.update(re.findall(r"LogEvent::(k\w+)", Path(path).read_text()))
    assert used == set(events())
