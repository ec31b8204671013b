"""Read the files that tidy's rules check; for C++ also bare code, includes and functions.

No compiler is needed. The reader of functions relies on the layout that clang-format gives this
code: a brace that opens after a parameter list, at the level of a namespace or a class, begins a
function.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "csrc",
    "master",
    "cuda",
    "docs",
    "tests",
    "pccl_backend",
    "examples",
    "benchmarks",
    "cmake",
    "tools",
    ".ci",
)
SUFFIXES = (".cc", ".h", ".cu", ".py", ".pyi", ".cmake", ".sh", ".txt", ".md", ".toml", "")
# Folders without source text: programs generate them.
NOT_READ = ("__pycache__", "bin", ".mypy_cache", ".pytest_cache", ".ruff_cache")

_COMMENT_OR_LITERAL = re.compile(
    r"""//[^\n]* | /\*.*?\*/
      | R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)" | "(?:\\.|[^"\\\n])*"
      | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'  # but not the one in 1'000
    """,
    re.VERBOSE | re.DOTALL,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
# Neither of them belongs to the function after it.
_DIRECTIVE_OR_LABEL = re.compile(
    r"^[ \t]*\#(?:[^\n]*\\\n)*[^\n]* | \b(?:public|private|protected)\s*:(?!:)",
    re.MULTILINE | re.VERBOSE,
)
_SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function: its name (best effort), its first line, and its number of lines."""

    name: str
    line: int
    lines: int


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file: `path` relative to the root, with forward slashes, and its text."""

    path: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @property
    def folder(self) -> str:
        return str(PurePosixPath(self.path).parent)

    @property
    def stem(self) -> str:
        return PurePosixPath(self.path).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.path).suffix

    @property
    def is_cpp(self) -> bool:
        return self.suffix in {".cc", ".h", ".cu"}

    @cached_property
    def code(self) -> str:
        """The C++ text with comments and literals blanked out; every line keeps its number."""
        return _COMMENT_OR_LITERAL.sub(_blank, self.text)

    @cached_property
    def words(self) -> set[str]:
        """The names, keywords and numbers of the C++ code."""
        return set(re.findall(r"\w+", self.code))

    @cached_property
    def includes(self) -> list[str]:
        """The included files, in order: `csrc/base/ids.h` or `<vector>`."""
        without_comments = re.sub(r"//[^\n]*", "", self.text)
        return [
            f"<{name}>" if bracket == "<" else name
            for bracket, name in _INCLUDE.findall(without_comments)
        ]

    @cached_property
    def imports(self) -> list[str]:
        """The imported names of a Python file, such as `a.b.Name`; also those for types only."""
        found: list[str] = []
        for node in ast.walk(ast.parse(self.text)) if self.suffix == ".py" else ():
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [f"{node.module}.{alias.name}" for alias in node.names]
        return found

    @cached_property
    def prose(self) -> list[tuple[int, str]]:
        """Paragraphs of comments, docstrings or Markdown text: first line, and text on one line."""
        if self.is_cpp:
            lines = list(_cpp_comments(self.text))
        elif self.suffix in {".py", ".pyi"}:
            lines = list(_python_comments(self.text))
        elif self.suffix == ".md":
            lines = list(_markdown_text(self.text))
        else:
            lines = []
        return _paragraphs(lines)

    @cached_property
    def functions(self) -> list[Function]:
        return _read_functions(_DIRECTIVE_OR_LABEL.sub(_blank, self.code))


def read_tree() -> list[Source]:
    """Return every source file of the project, without build outputs and git's own files."""
    # In a linked worktree .git is a file with the location of the repository.
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    for folder in FOLDERS:
        files += (path for path in (ROOT / folder).rglob("*") if path.is_file())
    sources = []
    for path in sorted(files):
        relative = path.relative_to(ROOT)
        if path.suffix in SUFFIXES and not set(relative.parts) & set(NOT_READ):
            sources.append(Source(path=relative.as_posix(), text=path.read_text()))
    return sources


def _cpp_comments(text: str) -> Iterator[tuple[int, str]]:
    for match in _COMMENT_OR_LITERAL.finditer(text):
        if match.group().startswith("//"):
            number = text.count("\n", 0, match.start()) + 1
            alone = not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
            # An empty line before a comment that follows code: it is a paragraph of its own.
            yield from [] if alone else [(number, "")]
            yield number, match.group().lstrip("/")
            yield from [] if alone else [(number, "")]


def _python_comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if (doc := ast.get_docstring(node)) is not None:
            first = node.body[0].lineno
            yield from ((first + at, line) for at, line in enumerate(("\n" + doc).split("\n"), -1))


def _markdown_text(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        is_prose = not fenced and not line.startswith(("    ", "#", "```"))
        yield number, line.replace("|", ". ") if is_prose else ""


def _paragraphs(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Join lines that follow each other. An item of a list begins a paragraph."""
    found: list[tuple[int, str]] = []
    before = -1
    for number, line in lines:
        text = line.strip()
        item = re.match(r"([-*•]|\(?[0-9a-z]{1,2}[.)])\s+", text)
        follows = found and found[-1][1] and number == before + 1 and not item
        if item:
            text = text[item.end() :]
        if text and follows:
            found[-1] = (found[-1][0], f"{found[-1][1]} {text}")
        else:
            found.append((number, text))
        before = number
    return [paragraph for paragraph in found if paragraph[1]]


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _read_functions(code: str) -> list[Function]:
    found: list[Function] = []
    open_braces: list[bool] = []  # innermost last; True: a scope that may define functions
    start = 0  # of the statement that the next brace belongs to
    function: tuple[str, int, int] | None = None  # name, first line, brace depth
    for at, char in enumerate(code):
        if char == "{":
            head = code[start:at]
            outside = function is None and all(open_braces)
            if outside and _opens_function(head):
                first = start + len(head) - len(head.lstrip())
                function = (_name(head), code.count("\n", 0, first) + 1, len(open_braces))
            open_braces.append(outside and function is None and bool(_SCOPE.search(head)))
            start = at + 1
        elif char == "}" and open_braces:
            open_braces.pop()
            start = at + 1
            if function and len(open_braces) == function[2] and not _goes_on(code, at + 1):
                name, line, _ = function
                found.append(
                    Function(name=name, line=line, lines=code.count("\n", 0, at) + 2 - line)
                )
                function = None
        elif char == ";" and function is None:
            start = at + 1
    return found


def _opens_function(head: str) -> bool:
    without_template = re.sub(r"^\s*template\s*<[^{]*?>\s*(?=\w)", "", head)
    if "(" not in head or re.search(r"=\s*$", head):
        return False
    return not re.match(r"\s*(namespace|class|struct|union|enum)\b[^()]*$", without_template)


def _goes_on(code: str, at: int) -> bool:
    """Return True after `member_{value}` in a constructor's list, before the body."""
    return re.match(r"\s*[,{]", code[at : at + 200]) is not None


def _name(head: str) -> str:
    match = re.search(r"([\w:~]+|operator\s*\S+?)\s*\(", head)
    return match.group(1) if match else "?"
