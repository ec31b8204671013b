"""RESULTS.md: the sections that `make bench` writes, between sections written by people.

A generated section lies between two lines, `<!-- make bench: NAME -->` and `<!-- end -->`. Only
the text between them is ever replaced. All functions are pure: texts in, texts out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

END = "<!-- end -->"
_BEGIN = re.compile(r"^<!-- make bench: (\S+) -->(?:\n|\Z)", re.MULTILINE)
_END = re.compile(rf"^{re.escape(END)}(?:\n|\Z)", re.MULTILINE)
_HEADING = re.compile(r"^## ", re.MULTILINE)


class ResultsError(Exception):
    """A section cannot be written; the message has the reason."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Position of a generated section: `text[start:end]` with its markers, the body inside them."""

    start: int
    body_start: int
    body_end: int
    end: int


def begin_line(name: str) -> str:
    """Return the line that begins a section."""
    return f"<!-- make bench: {name} -->"


def find_sections(text: str) -> dict[str, Section]:
    """Return all generated sections, by name.

    Raises:
        ResultsError: markers do not match, or a name appears twice.
    """
    found: dict[str, Section] = {}
    begins = list(_BEGIN.finditer(text))
    for index, begin in enumerate(begins):
        name = begin[1]
        end = _END.search(text, begin.end())
        next_start = begins[index + 1].start() if index + 1 < len(begins) else len(text)
        if end is None or end.start() > next_start:
            raise ResultsError(f"the section {name} has no line {END!r}: mend it by hand")
        if name in found:
            raise ResultsError(f"there are two sections {name}: remove one by hand")
        found[name] = Section(
            start=begin.start(), body_start=begin.end(), body_end=end.start(), end=end.end()
        )
    return found


def replace_section(text: str, name: str, body: str, order: Sequence[str]) -> str:
    """Return the text with this section replaced; the rest remains byte for byte.

    Args:
        text: text of the whole file.
        name: one of `order`.
        body: text between the markers.
        order: order of all generated sections. A new section follows the nearest present one that
            comes earlier in this order. If there is none, it comes before all others: before the
            first section heading, or at the start of the first generated section.

    Raises:
        ResultsError: the markers in the text are broken, or the body would break them.
    """
    if _BEGIN.search(body) or _END.search(body):
        raise ResultsError(f"what was to become the section {name} has a marker in it")
    body = body.strip("\n") + "\n"
    sections = find_sections(text)
    if name in sections:
        at = sections[name]
        return text[: at.body_start] + body + text[at.body_end :]
    whole = f"{begin_line(name)}\n{body}{END}\n"
    before = [other for other in order[: order.index(name)] if other in sections]
    if before:
        end = sections[before[-1]].end
        head = text[:end] if text[:end].endswith("\n") else text[:end] + "\n"
        return f"{head}\n{whole}{text[end:]}"
    heading = _HEADING.search(text)
    starts = [section.start for section in sections.values()]
    starts += [heading.start()] if heading else []
    if not starts:
        return f"{text.rstrip()}\n\n{whole}" if text.strip() else whole
    start = min(starts)
    return f"{text[:start]}{whole}\n{text[start:]}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    assert all(len(cells) == len(head) for cells in rows), rows
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines) + "\n"
