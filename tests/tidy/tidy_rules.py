"""Check the rules of this project that a machine can check.

Each rule takes sources and yields complaints, "path:line: what, why". If a rule prevents good code,
it is changed here, with the reason. No comment can switch a rule off.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tidy_source import Source
from tidy_words import english_is_plain

LINE_MAX = 100
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
DEPTH_MAX = 9  # headers in a chain of includes

# --- Layers: which layer may include which. Peer and master share a schema, not code ---
LAYERS = {
    "csrc/base": (),
    "csrc/protocol": ("csrc/base",),
    "csrc/net": ("csrc/base", "csrc/protocol"),
    "csrc/link": ("csrc/base", "csrc/protocol", "csrc/net"),
    "csrc/memory": ("csrc/base",),
    "csrc/ring": ("csrc/base", "csrc/protocol", "csrc/net", "csrc/link", "csrc/memory"),
    "csrc/peer": (
        "csrc/base",
        "csrc/protocol",
        "csrc/net",
        "csrc/link",
        "csrc/memory",
        "csrc/ring",
    ),
    "csrc/watch": ("csrc/base", "csrc/protocol", "csrc/net"),
    "csrc/probe": ("csrc/base", "csrc/protocol", "csrc/net", "csrc/watch"),
    "master": ("csrc/base", "csrc/protocol", "csrc/net"),
    "cuda": (),
    "csrc/torch": (
        "csrc/base",
        "csrc/protocol",
        "csrc/net",
        "csrc/memory",
        "csrc/ring",
        "csrc/peer",
        "master",
        "cuda",
    ),
}

# --- Folders of the package, and who may import from each of them. A trainer alone has no host ---
USERS = {
    "pccl_backend/trainers/host": ("pccl_backend/trainers/diloco.py",),
    "pccl_backend/trainers": ("pccl_backend/demo/",),
    "pccl_backend/demo": ("pccl_backend/cli.py",),
    "pccl_backend/probe": ("pccl_backend/cli.py", "pccl_backend/command/doctor/"),
    "pccl_backend/command/doctor": ("pccl_backend/cli.py",),
    "pccl_backend/command": ("pccl_backend/cli.py", "pccl_backend/probe/"),
}

# --- Purity: all code in these folders is pure, except the folders shell/ and main ---
PURE_FOLDERS = (
    "csrc/protocol",
    "csrc/link",
    "csrc/memory",
    "csrc/ring",
    "csrc/peer",
    "csrc/watch",
    "csrc/probe",
    "master",
)
PURE_FILES = (
    "csrc/net/framing",
    "csrc/net/checksum",
    "csrc/net/digest",
    "csrc/net/keys",
    "csrc/net/openssl",
)
SHELLS = re.compile(r"/shell/|/main\.cc$")  # they use sockets, clocks, threads and files
COMPUTE = (
    "kernels",
    "state_hash",
)  # functions of bytes that may use OpenMP; pure code may call them
BANNED_INCLUDES = re.compile(
    r"<(mutex|shared_mutex|thread|atomic|condition_variable|future|semaphore|barrier|latch"
    r"|stop_token|random|unordered_map|unordered_set|ctime|time\.h|sys/.*|unistd\.h|pthread\.h"
    r"|netdb\.h|fstream|filesystem|uv\.h)>"
)
BANNED_WORDS = re.compile(
    r"\b(monotonic_now|steady_clock|system_clock|high_resolution_clock"
    r"|rand|srand|random_device|getenv|std::time"
    r"|std::thread|std::jthread|std::mutex|std::atomic|thread_local|unordered_\w+|sleep_\w+)\b"
    r"|(?<![\w.>])log\(LogLevel::"  # cores emit a Log effect
)

# <openssl/crypto.h> is for all: it wipes secrets.
NETWORK_LIBRARIES = re.compile(r"<(uv\.h|openssl/(?!crypto\.h).*)>")
NETWORK_FOLDERS = ("csrc/net", "tests/cpp/net")
TORCH_FOLDERS = ("csrc/torch", "tests/doubles/torch")

# --- Each csrc/x/y.cc has a tests/cpp/x/test_y.cc (tests/cpp/master for master), except these ---
NO_TWIN = {
    "csrc/torch": "tested through Python: it cannot be linked without torch",
    "master/main.cc": "a process: tests/python starts it",
    "csrc/probe/main.cc": "a process: tests/python starts it",
}

PROGRAMS = "tests/python/programs.py"

# --- Limits: C++ defines them, and a build prints those that Python needs too ---
LIMITS = "csrc/protocol/limits.h"
LIMITS_SHARED = "pccl_backend/_limits.pyi"
LIMITS_BUILT = "pccl_backend/_limits.py"

# --- Plain English in the names of tests: these words put something before the subject ---
INVERTED_NAME = re.compile(r"(Of|What|Who|Whom|Whose|Whoever|Where|Whatever)(?![a-z])")
MUTEX = "csrc/base/mutex.h"
STANDARD_MUTEX = re.compile(
    r"std::(\w*mutex|lock_guard|unique_lock|scoped_lock|shared_lock|condition_variable)\b"
)
TEST_NAME = re.compile(r"(?:TYPED_)?TEST(?:_[FP])?\(\w+, (\w+)\)")

# --- Private names of C++ tests: what begins at the left margin of a file ---
PRIVATE_NAME = re.compile(
    r"^(?:(?:class|struct|enum class|enum) (?P<type>\w+)(?= [:{])"
    r"|using (?P<alias>\w+ = [^;]+)"
    r"|(?!using|return|namespace|TEST|template)\w[\w:<>,&* ]* \*?&?"
    r"(?:(?P<value>\w+)(?= = |\{|;|\[)(?P<more>[^\n]*)"
    r"|(?P<function>\w+)\([^()]*\)(?: const)? \{))",
    re.MULTILINE,
)

# --- Documents that code and documents cite: "PROTOCOL.md, section 5.3", "docs/design.md" ---
CITED = re.compile(
    r"([\w./-]*\w\.md)\b`?(?:,? sections? ([0-9.]*[0-9](?:(?:, | to | and )[0-9.]*[0-9])*))?"
)
UNKNOWN_DOCUMENT = re.compile(r"\bDESIGN\b|\bdeadlock-freedom I[1-6]")

# --- Names in comments: a name that was changed in the code must not live on in a comment ---
# A header opens with its file name, with a name that it declares, or with an ordinary sentence.
ORDINARY_OPENINGS = ("The", "A", "An", "All", "How")
DECLARED_TYPE = re.compile(r"\b(?:class|struct|concept|enum(?: class)?|using)\s+(\w+)")
NAMED_FUNCTION = re.compile(r"(?<![\w`./])(?:\w+(?:::|\.|->))*(\w+)\(\)")
NAMED_VARIABLE = re.compile(r"`([a-z]\w*)`")
NAMED_FILE = re.compile(r"(?<![\w./*-])([\w./-]*\w\.(?:h|cc))\b")
# C++ comments name functions of Python, too: those of this package, and those that its tests call.
PYTHON_WITH_NAMES = ("pccl_backend/", "tests/python/")

# The names are split, so that the rule does not match this file.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(ho" r"me|ro" r"ot|Us" r"ers|wo" r"rk|mn" r"t)/[\w.-]+")


def layer_order(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        layer = _layer(source)
        if not source.is_cpp or layer is None:
            continue
        for name in source.includes:
            other = _layer_of(name)
            if other and other != layer and other not in LAYERS[layer]:
                yield f"{source.path}: includes {name}, but {layer} does not stand above {other}"


def includes_resolve(sources: Iterable[Source]) -> Iterator[str]:
    sources = list(sources)
    paths = {source.path for source in sources}
    for source in sources:
        for name in source.includes if source.is_cpp else ():
            if not name.startswith("<") and name not in paths:
                yield f'{source.path}: includes "{name}": no such file (paths start at the root)'


def package_layers(sources: Iterable[Source]) -> Iterator[str]:
    """A folder of the package serves the users that USERS names."""
    for path, imported in _package_imports(sources).items():
        for other in imported:
            folder = next((folder for folder in USERS if other.startswith(folder + "/")), None)
            if folder and not path.startswith((folder + "/", *USERS[folder])):
                users = " and ".join(USERS[folder])
                yield f"{path}: imports {other}, but in the package {folder} serves {users}"


def _package_imports(sources: Iterable[Source]) -> dict[str, list[str]]:
    """Return the modules that each module of the package imports from the package, by path.

    The package's own __init__.py imports nothing: it is an index, whose names load at first use.
    """
    package = {
        source.path: source
        for source in sources
        if source.suffix == ".py" and source.path.startswith("pccl_backend/")
    }

    def file_of(name: str) -> str | None:
        module = name.replace(".", "/")
        found = [path for path in (f"{module}.py", f"{module}/__init__.py") if path in package]
        return found[0] if found else None

    graph: dict[str, list[str]] = {}
    for path, source in package.items():  # the name in a module, otherwise the module
        files = [file_of(name) or file_of(name.rpartition(".")[0]) for name in source.imports]
        graph[path] = [file for file in files if file and file != path]
    return graph | {"pccl_backend/__init__.py": []}


def no_include_cycle(sources: Iterable[Source]) -> Iterator[str]:
    """Neither includes nor imports of the package go round, those for types included."""
    sources = list(sources)
    graph = {source.path: source.includes for source in sources if source.is_cpp}
    graph |= _package_imports(sources)
    done: set[str] = set()

    def visit(path: str, trail: tuple[str, ...]) -> Iterator[str]:
        if path in trail:
            yield "includes go round: " + " -> ".join((*trail[trail.index(path) :], path))
        elif path in graph and path not in done:
            for name in graph[path]:
                yield from visit(name, (*trail, path))
            done.add(path)

    for path in graph:
        yield from visit(path, ())


def network_libraries_in_net_only(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if not source.is_cpp or source.folder in NETWORK_FOLDERS:
            continue
        for name in filter(NETWORK_LIBRARIES.fullmatch, source.includes):
            yield f"{source.path}: includes {name}; only csrc/net knows libuv and OpenSSL"


def torch_in_torch_only(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if not source.is_cpp or source.folder in TORCH_FOLDERS:
            continue
        for name in source.includes:
            if re.match(r"<(torch|c10|ATen|pybind11|Python\.h)", name):
                yield f"{source.path}: includes {name}; torch and Python start at csrc/torch"


def pure_is_pure(sources: Iterable[Source]) -> Iterator[str]:
    sources = list(sources)
    for source in sources:
        if not _is_pure(source.path):
            continue
        for name in source.includes:
            if BANNED_INCLUDES.search(name) or _is_shell(name):
                yield (
                    f"{source.path}: includes {name}; it is pure: "
                    "no thread, lock, clock, chance or socket"
                )
        for number, line in enumerate(source.code.split("\n"), 1):
            for match in BANNED_WORDS.finditer(line):
                yield (
                    f"{source.path}:{number}: says {match.group()}; it is pure: "
                    "time and chance are handed in, threads are elsewhere"
                )


def headers_open_with_prose(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if source.suffix != ".h":
            continue
        comment = re.match(r"(?://[^\n]*\n)*", source.text)
        words = re.findall(r"[A-Za-z]{2,}", comment.group()) if comment else []
        if len(words) < 8:
            yield (
                f"{source.path}:1: a header opens with what it is, who may call it, "
                "what failure looks like"
            )
        if "#pragma once" not in source.text:
            yield f"{source.path}: lacks #pragma once"


def lines_fit(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if source.suffix not in {".cc", ".h", ".cu", ".py", ".pyi"}:
            continue
        for number, line in enumerate(source.lines, 1):
            if len(line) > LINE_MAX:
                yield f"{source.path}:{number}: {len(line)} columns, at most {LINE_MAX}"


def files_fit(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if (source.is_cpp or source.suffix in {".py", ".pyi"}) and len(
            source.lines
        ) > FILE_LINES_MAX:
            yield (
                f"{source.path}: {len(source.lines)} lines, at most {FILE_LINES_MAX}: "
                "which two ideas does it hold?"
            )


def functions_fit(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if source.is_cpp:
            sizes = [
                (function.name, function.line, function.lines) for function in source.functions
            ]
        elif source.suffix == ".py":
            sizes = [
                (node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
                for node in ast.walk(ast.parse(source.text))
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            ]
        else:
            continue
        for name, line, lines in sizes:
            if lines > FUNCTION_LINES_MAX:
                yield (
                    f"{source.path}:{line}: {name} takes {lines} lines, "
                    f"at most {FUNCTION_LINES_MAX}: one screen"
                )


def classes_have_one_file(sources: Iterable[Source]) -> Iterator[str]:
    """One .cc defines the methods of a class; a file X_check.cc may have those that verify it."""
    files: dict[tuple[str, str], set[str]] = {}
    for source in sources:
        if source.suffix != ".cc" or not source.path.startswith(("csrc/", "master/")):
            continue
        if source.folder == "csrc/torch" or source.stem.endswith("_check"):  # torch: by collective
            continue
        for function in source.functions:
            owner, _, method = function.name.rpartition("::")
            if owner and method:
                files.setdefault((_layer(source) or "", owner), set()).add(source.path)
    for (_, owner), paths in files.items():
        if len(paths) > 1:
            yield f"{' and '.join(sorted(paths))}: both define {owner}: which two ideas is it?"


def sources_have_tests(sources: Iterable[Source]) -> Iterator[str]:
    sources = list(sources)
    paths = {source.path for source in sources}
    for source in sources:
        if source.suffix != ".cc" or not source.path.startswith(("csrc/", "master/")):
            continue
        if source.path in NO_TWIN or source.folder in NO_TWIN:
            continue
        twin = f"tests/cpp/{source.folder.removeprefix('csrc/')}/test_{source.stem}.cc"
        if twin not in paths:
            yield f"{source.path}: has no {twin}"


def command_line_is_light(sources: Iterable[Source]) -> Iterator[str]:
    """Keep torch out of the modules that start `pccl master`: importing torch takes seconds."""
    for source in sources:
        if source.path not in {
            "pccl_backend/__init__.py",
            "pccl_backend/cli.py",
            "pccl_backend/_register.py",
        }:
            continue
        for node in ast.parse(source.text).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(name.split(".")[0] == "torch" for name in names):
                yield (
                    f"{source.path}:{node.lineno}: imports torch at the top; "
                    "import it where it is used"
                )


def limits_stand_once(sources: Iterable[Source]) -> Iterator[str]:
    """Refuse a number in the package that has the name of a limit, or the end of that name.

    Such a number is a copy of one that C++ defines, and nothing would keep the two equal.
    """
    sources = list(sources)
    limits = {name for source in sources for name in _limits_of(source)}
    for source in sources:
        in_package = source.suffix == ".py" and source.path.startswith("pccl_backend/")
        if not in_package or source.path == LIMITS_BUILT:
            continue
        for name, line, value in _numbers(source):
            words = f"{name}_MAX" if isinstance(value, ast.Tuple) else name
            short = "_" in words
            for limit in sorted(limits):
                if limit == words or (short and limit.endswith("_" + words)):
                    yield f"{source.path}:{line}: {name} is a number, and C++ has {limit}: take it"


def _limits_of(source: Source) -> Iterator[str]:
    if source.path == LIMITS:
        for name in re.findall(r"\bconstexpr [\w:<>, ]* k(\w+) =", source.code):
            yield re.sub(r"(?<!^)([A-Z])", r"_\1", name).upper()
    elif source.path == LIMITS_SHARED:
        yield from re.findall(r"^(\w+): (?:int|float)$", source.text, re.MULTILINE)


def _numbers(source: Source) -> Iterator[tuple[str, int, ast.expr]]:
    """Yield the constants that are numbers or tuples of numbers: name, line, value."""
    for node in ast.walk(ast.parse(source.text)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            is_constant = isinstance(target, ast.Name) and target.id.isupper()
            if is_constant and node.value is not None and _is_number(node.value):
                yield target.id, node.lineno, node.value


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, (ast.Tuple, ast.BinOp, ast.UnaryOp)):
        parts = value.elts if isinstance(value, ast.Tuple) else list(ast.iter_child_nodes(value))
        return all(_is_number(part) for part in parts if isinstance(part, ast.expr))
    return isinstance(value, ast.Constant) and isinstance(value.value, (int, float))


def no_machine_paths(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        for number, line in enumerate(source.lines, 1):
            match = MACHINE_PATHS.search(line)
            if match:
                yield f"{source.path}:{number}: {match.group()} is a path of somebody's machine"


def tests_wait_within_bounds(sources: Iterable[Source]) -> Iterator[str]:
    """Refuse waits without a bound: they outlive the time limit of the test and hang all others.

    The rule skips programs that a test writes, and work_*.py, because a world ends these processes.
    """
    for source in sources:
        if source.suffix != ".py" or not source.path.startswith(("tests/", "benchmarks/wan/")):
            continue
        if source.path == PROGRAMS or source.stem.startswith("work_"):
            continue
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, ast.Call) and (wrong := _endless(node)):
                yield f"{source.path}:{node.lineno}: {wrong}"


def _endless(call: ast.Call) -> str | None:
    """Return why a call may wait for ever for a process or thread, or None if it has a bound."""
    name = ast.unparse(call.func)
    bounded = any(keyword.arg == "timeout" for keyword in call.keywords)
    if name == "subprocess.Popen":
        return f"{name}: {PROGRAMS} has a Program, whose waits have a bound"
    if re.fullmatch(r"subprocess\.(run|call|check_call|check_output)", name) and not bounded:
        return f"{name} without a timeout"
    joins = name.endswith(".join") and name != "pccl.join"
    if joins and not call.args and not bounded:
        return f"{name} without a timeout"
    if re.search(r"(stdout|stderr)\.read\w*$", name):
        return f"{name}: Program.line and Program.communicate have a bound"
    return None


def mutexes_are_annotated(sources: Iterable[Source]) -> Iterator[str]:
    """Keep the standard's mutexes in one header: clang checks the locks of annotated ones only."""
    for source in sources:
        if source.path == MUTEX or not source.path.startswith(("csrc/", "master/", "cuda/")):
            continue
        for line, text in enumerate(source.lines, 1):
            if named := STANDARD_MUTEX.search(text):
                yield f"{source.path}:{line}: {named[0]}: use {MUTEX}"


def test_names_begin_with_a_subject(sources: Iterable[Source]) -> Iterator[str]:
    """Apply the rule for comments to the names of C++ tests, which are read as sentences."""
    for source in sources:
        for line, text in enumerate(source.lines, 1):
            named = TEST_NAME.match(text)
            if named and INVERTED_NAME.match(named[1]):
                yield f"{source.path}:{line}: {named[1]} does not begin with its subject"


def private_names_of_tests_differ(sources: Iterable[Source]) -> Iterator[str]:
    """One test program may compile several files as one unit, in which such names would meet."""
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    for source in sources:
        parts = source.path.split("/")
        if source.suffix != ".cc" or not source.path.startswith("tests/cpp/") or parts[2] == "cuda":
            continue
        for name, alias in _private_names(source):
            path, text = seen.setdefault((parts[2], name), (source.path, alias))
            if path != source.path and (alias != text or not alias):
                yield f"{source.path}: {name} is also a name of {path}"


def _private_names(source: Source) -> Iterator[tuple[str, str]]:
    """Return each name, and the text of an alias. Overloads of two files are one name, too."""
    for found in PRIVATE_NAME.finditer(source.code):
        if alias := found["alias"]:
            yield alias.split(" ")[0], alias
        elif found["function"]:
            yield found["function"], ""
        else:
            yield found["type"] or found["value"], ""
            for name in re.findall(r", (\w+)(?=\{| = )", found["more"] or ""):
                yield name, ""


def cited_documents_exist(sources: Iterable[Source]) -> Iterator[str]:
    """The document, and its numbered sections."""
    sources = list(sources)
    documents = {source.path: source for source in sources if source.suffix == ".md"}
    for source in sources:
        for number, line in source.prose:
            if match := UNKNOWN_DOCUMENT.search(line):
                yield f"{source.path}:{number}: cites {match.group()}, which does not ship"
            for match in CITED.finditer(line):
                yield from _wrong_citation(source, number, match, documents)


def _wrong_citation(
    source: Source, number: int, match: re.Match[str], documents: dict[str, Source]
) -> Iterator[str]:
    path, cited = match.groups()
    if path.startswith("build/"):  # a program writes it
        return
    path = path.removeprefix("../")  # a link from a folder such as docs/
    found = [name for name in documents if name == path or name.endswith("/" + path)]
    if not found:
        yield f"{source.path}:{number}: cites {path}: no such document"
        return
    headings = set(re.findall(r"^#+ ([0-9.]*[0-9])\.? ", documents[found[0]].text, re.MULTILINE))
    for section in re.findall(r"[0-9.]*[0-9]", cited or ""):
        if section not in headings:
            yield f"{source.path}:{number}: cites section {section} of {path}: no such section"


def headers_open_with_their_name(sources: Iterable[Source]) -> Iterator[str]:
    """The first word of a header is the name of the file or a name that the file declares."""
    for source in sources:
        opening = re.match(r"//\s*(\w+)(\(\))?", source.text)
        if source.suffix != ".h" or opening is None:
            continue
        word, is_function = opening.groups()
        declared = set(DECLARED_TYPE.findall(source.code))
        if is_function:
            declared |= set(re.findall(r"(\w+)\(", source.code))
        known = word in declared or word.lower() == source.stem or word in ORDINARY_OPENINGS
        if not known:
            yield f"{source.path}:1: opens with {word}: neither the file nor a type has that name"


def named_functions_exist(sources: Iterable[Source]) -> Iterator[str]:
    """A comment of C++ says `name()` only if code calls or declares a function of that name."""
    sources = list(sources)
    known: set[str] = set()
    for source in sources:
        if source.is_cpp:
            known.update(re.findall(r"(\w+)\s*[(<{]", source.code))
            known.update(re.findall(r"(\w+)\s*=\s*\[", source.code))  # a lambda
        elif source.suffix == ".py" and source.path.startswith(PYTHON_WITH_NAMES):
            known.update(_python_functions(source))
    for source in sources:
        for number, line in source.prose if source.is_cpp else ():
            for name in NAMED_FUNCTION.findall(line):
                if name not in known:
                    yield f"{source.path}:{number}: names {name}(): there is no such function"


def _python_functions(source: Source) -> Iterator[str]:
    """Yield the names of the functions that a Python file defines or calls."""
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Call):
            yield ast.unparse(node.func).rpartition(".")[2]


def named_files_exist(sources: Iterable[Source]) -> Iterator[str]:
    """A comment of C++ or a document names a *.h or *.cc only if the tree has it."""
    sources = list(sources)
    paths = [source.path for source in sources]
    for source in sources:
        if not source.is_cpp and source.suffix != ".md":
            continue
        for number, line in source.prose:
            for name in NAMED_FILE.findall(line):
                if not any(path == name or path.endswith("/" + name) for path in paths):
                    yield f"{source.path}:{number}: names {name}: no such file"


def named_variables_exist(sources: Iterable[Source]) -> Iterator[str]:
    """A `name` in a comment of C++ is in the code of the .h and .cc, or in what they include."""
    by_path = {source.path: source for source in sources if source.is_cpp}
    for source in by_path.values():
        pair = source.path.removesuffix(source.suffix)
        paths = [source.path, pair + ".h", pair + ".cc"]
        for path in list(paths):
            paths += by_path[path].includes if path in by_path else []
        words = {word for path in paths if path in by_path for word in by_path[path].words}
        for number, line in source.prose:
            for name in NAMED_VARIABLE.findall(line):
                if name not in words:
                    yield f"{source.path}:{number}: names `{name}`, which its code does not have"


def includes_are_shallow(sources: Iterable[Source]) -> Iterator[str]:
    """No header of the product needs a chain of more than DEPTH_MAX headers."""
    by_path = {source.path: source for source in sources if source.suffix == ".h"}
    depths: dict[str, int] = {}

    def depth(path: str) -> int:
        if path not in depths:
            depths[path] = 0  # for a cycle, which another rule reports
            included = (one for one in by_path[path].includes if one in by_path)
            depths[path] = 1 + max((depth(one) for one in included), default=0)
        return depths[path]

    for path in by_path:
        if path.startswith(("csrc/", "master/")) and depth(path) > DEPTH_MAX:
            yield f"{path}: {depth(path)} headers deep, at most {DEPTH_MAX}"


ALL = (
    includes_are_shallow,
    layer_order,
    package_layers,
    includes_resolve,
    no_include_cycle,
    network_libraries_in_net_only,
    torch_in_torch_only,
    pure_is_pure,
    headers_open_with_prose,
    lines_fit,
    files_fit,
    functions_fit,
    classes_have_one_file,
    sources_have_tests,
    command_line_is_light,
    limits_stand_once,
    no_machine_paths,
    english_is_plain,
    mutexes_are_annotated,
    test_names_begin_with_a_subject,
    private_names_of_tests_differ,
    cited_documents_exist,
    headers_open_with_their_name,
    named_functions_exist,
    named_files_exist,
    named_variables_exist,
    tests_wait_within_bounds,
)


def _layer(source: Source) -> str | None:
    return _layer_of(source.path)


def _layer_of(path: str) -> str | None:
    return next((layer for layer in LAYERS if path.startswith(layer + "/")), None)


def _named(path: str, names: Iterable[str]) -> bool:
    stem = path.rsplit("/", 1)[-1].partition(".")[0]
    return any(stem == name or stem.startswith(name + "_") for name in names)


def _is_shell(path: str) -> bool:
    if path.startswith("csrc/net/"):
        return not path.startswith(PURE_FILES)
    return path.startswith(PURE_FOLDERS) and bool(SHELLS.search(path))


def _is_pure(path: str) -> bool:
    if not path.endswith((".cc", ".h")):
        return False
    in_pure_folder = path.startswith(tuple(folder + "/" for folder in PURE_FOLDERS))
    excepted = bool(SHELLS.search(path)) or _named(path, COMPUTE)
    return path.startswith(PURE_FILES) or (in_pure_folder and not excepted)
