"""Sphinx builds the documentation site from the pages of this folder: `make docs`.

The pages stay readable without it. A page of another folder is included, never copied.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import tomllib
from pygments.lexers.special import TextLexer

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]

project = "pccl"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
html_title = f"pccl {release}"
html_theme = "furo"
html_copy_source = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Directives are between colons, so that a fenced block is always an example.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

default_role = "code"  # of docstrings: as in the pages, a backquoted word is code
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_mock_imports = ["torchft"]
napoleon_use_ivar = True

# The site needs no network, so it has no index of the names of Python and torch. The compiled
# module is not public.
_BUILTIN = "ValueError|TypeError|OSError|MemoryError|NotImplementedError|RuntimeError|.*Exception"
nitpick_ignore_regex = [
    ("py:.*", r"(torch|collections|datetime|typing|types|numpy|contextlib|pccl_backend\._C.*)\..*"),
    ("py:(exc|class)", _BUILTIN),
]

# Files of other folders that are pages of the site.
INCLUDED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/RESULTS.md": "results.md",
    "csrc/protocol/PROTOCOL.md": "protocol.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def links_of_site(text: str, folder: Path) -> str:
    """Return Markdown text of a file in `folder`, with links between pages of the site.

    A link to another file of the repository becomes its text.

    Example:
        >>> links_of_site("[settings](docs/settings.md), [unit](packaging/unit)", ROOT)
        '[settings](settings.md), unit'
    """

    def replaced(link: re.Match[str]) -> str:
        words, target, anchor = link[1], (folder / link[2]).resolve(), link[3] or ""
        page = INCLUDED.get(target.relative_to(ROOT).as_posix())
        if page is None and target.parent == ROOT / "docs":
            page = target.name
        return f"[{words}]({page}{anchor})" if page else words

    return _LINK.sub(replaced, text)


def _read(app: Sphinx, page: str, text: list[str]) -> None:
    text[0] = links_of_site(text[0], ROOT / "docs")


def _read_included(app: Sphinx, path: Path, page: str, text: list[str]) -> None:
    text[0] = links_of_site(text[0], (ROOT / "docs" / path).resolve().parent)


def setup(app: Sphinx) -> None:
    """Draw no diagrams: the viewers that draw them need the network, and a table is below each."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", _read)
    app.connect("include-read", _read_included)
