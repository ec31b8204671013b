"""The fenced blocks of the README and the pages: what becomes of each in the tests.

A block runs, unless its language is one of SHOWN, or a comment stands in the line above it:

    <!-- not run: it needs two machines -->
    <!-- run by test_documents.py::test_the_first_program_ends -->

The blocks of one language on a page run in order, in one process of Python or in one shell, as a
reader would type them. pages.py has what the reader has by then. The counts: python blocks.py
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
SHOWN = {
    "text": "the output of a program",
    "mermaid": "a diagram, drawn from the tables in the sources",
}
RUN = ("python", "sh", "diff")
_FENCE = re.compile(r"(?:^<!--(?P<note>[^\n]*)-->\n)?^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
                    re.MULTILINE | re.DOTALL)  # fmt: skip
_NOTE = re.compile(r" (?:not run: (?P<reason>\S.{9,})|run by (?P<test>\w+\.py::\w+)) ")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        page: the file, relative to the repository.
        line: the line of its first fence.
        language: the word after the fence.
        text: its lines.
        note: the comment above it; None if there is none.
    """

    page: str
    line: int
    language: str
    text: str
    note: str | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reason(self) -> str | None:
        """The reason why it does not run; None if it runs."""
        note = _NOTE.fullmatch(self.note or "")
        return SHOWN.get(self.language) or (note["reason"] if note else None)

    @property
    def test(self) -> tuple[str, str] | None:
        """The test that runs it, as its file and its function; None if it runs with its page."""
        note = _NOTE.fullmatch(self.note or "")
        file, _, function = (note["test"] or "").partition("::") if note else ("", "", "")
        return (file, function) if file else None

    @property
    def fault(self) -> str | None:
        """Why it neither runs nor has a reason; None if all is well."""
        if self.note is not None and _NOTE.fullmatch(self.note) is None:
            return 'the comment above it is neither "not run: REASON" nor "run by FILE::TEST"'
        if self.reason is None and self.language not in RUN:
            return f"no test runs {self.language or 'a block without a language'}: {RUN} run"
        return None

    @property
    def program(self) -> str:
        """Its text; a diff is the program after the change."""
        if self.language != "diff":
            return self.text
        after = [line[1:] for line in self.text.splitlines() if line[:1] in ("+", " ")]
        return "\n".join(line for line in after if line != "...") + "\n"


def blocks_of(path: Path) -> list[Block]:
    """Return the fenced blocks of a page, without the directives of the site (```{name})."""
    text = path.read_text()
    found = []
    for fence in _FENCE.finditer(text):
        if not fence["language"].startswith("{"):
            line = text.count("\n", 0, fence.start("language")) + 1
            found.append(
                Block(
                    page=path.relative_to(ROOT).as_posix(),
                    line=line,
                    language=fence["language"],
                    text=fence["text"],
                    note=fence["note"],
                )
            )
    return found


def all_blocks() -> list[Block]:
    """Return the fenced blocks of the README, of the pages and of the files beside the README."""
    return [block for path in FILES for block in blocks_of(path)]


def programs() -> dict[tuple[str, str], list[Block]]:
    """Return the blocks that run with their page, by page and language: "python" or "sh"."""
    found: dict[tuple[str, str], list[Block]] = {}
    for block in all_blocks():
        if block.reason is None and block.test is None:
            language = "sh" if block.language == "sh" else "python"
            found.setdefault((block.page, language), []).append(block)
    return found


def main() -> None:
    blocks = all_blocks()
    run = [block for block in blocks if block.reason is None]
    print(f"{len(blocks)} blocks: {len(run)} run, {len(blocks) - len(run)} do not")
    for reason, number in Counter(b.reason for b in blocks if b.reason).most_common():
        print(f"{number:4d} {reason}")


if __name__ == "__main__":
    main()
