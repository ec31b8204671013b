"""Check that each rule finds a planted violation and accepts a similar case that is allowed."""

from collections.abc import Callable, Iterable, Iterator

import pytest
import tidy_rules as rules
from tidy_source import Source
from tidy_words import IDIOMS, Idiom, english_is_plain

Rule = Callable[[Iterable[Source]], Iterator[str]]


def source(path: str, text: str) -> Source:
    return Source(path=path, text=text)


def body(lines: int) -> str:
    return "\n".join(["  work();"] * lines)


CASES: list[tuple[Rule, Source, Source]] = [
    (
        rules.layer_order,
        source("csrc/peer/core.cc", '#include "master/core.h"'),
        source("csrc/peer/core.cc", '#include "csrc/ring/core.h"'),
    ),
    (
        rules.layer_order,
        source("csrc/base/log.cc", '#include "csrc/net/loop.h"'),
        source("csrc/base/log.cc", '// #include "csrc/net/loop.h"'),
    ),
    (
        rules.includes_resolve,
        source("csrc/base/log.cc", '#include "log.h"'),
        source("csrc/base/log.h", '#include "csrc/base/log.h"'),
    ),
    (
        rules.network_libraries_in_net_only,
        source("csrc/link/shell/link_driver.cc", "#include <uv.h>"),
        source("csrc/net/loop.cc", "#include <uv.h>"),
    ),
    (
        rules.network_libraries_in_net_only,
        source("master/shell/shell.cc", "#include <openssl/ssl.h>"),
        source("master/shell/shell.cc", "#include <openssl/crypto.h>"),
    ),
    (
        rules.torch_in_torch_only,
        source("csrc/peer/shell/peer.h", "#include <torch/csrc/utils.h>"),
        source("csrc/torch/work.h", "#include <torch/csrc/utils.h>"),
    ),
    (
        rules.pure_is_pure,
        source("csrc/ring/op_table.h", "#include <mutex>"),
        source("csrc/link/shell/links.h", "#include <mutex>"),
    ),
    (
        rules.pure_is_pure,
        source("master/group/ballot.cc", "auto now = std::chrono::steady_clock::now();"),
        source("master/group/ballot.cc", '// never steady_clock\nauto text = "rand";'),
    ),
    (
        rules.pure_is_pure,
        source("csrc/ring/core.cc", '#include "csrc/net/loop.h"'),
        source("csrc/ring/core.cc", '#include "csrc/net/framing.h"'),
    ),
    (
        rules.headers_open_with_prose,
        source("csrc/net/lane.h", "// Lane.\n#pragma once\n"),
        source(
            "csrc/net/lane.h",
            "// Lane: one connection that carries chunks of any operation.\n#pragma once\n",
        ),
    ),
    (
        rules.lines_fit,
        source("csrc/net/lane.cc", "x" * 101),
        source("csrc/net/lane.cc", "x" * 100),
    ),
    (
        rules.files_fit,
        source("csrc/net/lane.cc", "x\n" * 700),
        source("csrc/net/lane.cc", "x\n" * 699),
    ),
    (
        rules.functions_fit,
        source("csrc/net/lane.cc", "void Lane::f() {\n" + body(69) + "\n}\n"),
        source("csrc/net/lane.cc", "void Lane::f() {\n" + body(68) + "\n}\n"),
    ),
    (
        rules.functions_fit,
        source("pccl_backend/api.py", "def f():\n" + "    work()\n" * 70),
        source("pccl_backend/api.py", "def f():\n" + "    work()\n" * 69),
    ),
    (
        rules.sources_have_tests,
        source("csrc/net/lane.cc", ""),
        source("csrc/torch/work.cc", ""),
    ),
    (
        rules.command_line_is_light,
        source("pccl_backend/cli.py", "import torch.distributed as dist\n"),
        source("pccl_backend/cli.py", "def main():\n    import torch\n"),
    ),
    (
        rules.no_machine_paths,
        source("Makefile", "cd /" + "home/somebody/pccl"),
        source("Makefile", "cd ../home/somebody /usr/lib"),
    ),
    (
        english_is_plain,
        source("csrc/net/lane.h", "// Of two lanes one is free."),
        source("csrc/net/lane.h", '// One of two lanes is free.\n// Where is it?\nsay("Of two");'),
    ),
    (
        english_is_plain,
        source("pccl_backend/api.py", '"""Wait. Whoever is late is\nnamed."""\n'),
        source("pccl_backend/api.py", '"""Wait.\n\nLate members are named.  What for\n"""\n'),
    ),
    (
        english_is_plain,
        source("README.md", "- What is lost is named.\n"),
        source("README.md", "```\nWhat is lost is named.\n```\n"),
    ),
    (
        rules.mutexes_are_annotated,
        source("csrc/net/loop.h", "  std::mutex mutex_;"),
        source("csrc/base/mutex.h", "  std::mutex mutex_;"),
    ),
    (
        rules.test_names_begin_with_a_subject,
        source("tests/cpp/net/test_lane.cc", "TEST(Lane, WhatIsLateIsDropped) {"),
        source("tests/cpp/net/test_lane.cc", "TEST_F(LaneTest, OffersOfOthers) {"),
    ),
    (
        rules.cited_documents_exist,
        source("csrc/net/lane.h", "// See NOWHERE.md.\n"),
        source("README.md", "See README.md.\n"),
    ),
    (
        rules.cited_documents_exist,
        source("docs/design.md", "## 1. Promises\nSee docs/design.md, section 2.\n"),
        source("docs/design.md", "## 1. One\n### 1.1 Two\nSee design.md, sections 1 to 1.1.\n"),
    ),
    (
        rules.cited_documents_exist,
        source("docs/design.md", "See [it](../docs/nowhere.md).\n"),
        source("docs/design.md", "See [it](../docs/design.md).\n"),
    ),
    (
        rules.cited_documents_exist,
        source("csrc/net/lane.h", "// P4 (DESIGN section 2).\n"),
        source("csrc/net/lane.h", "// P4: it never hangs.\n"),
    ),
    (
        rules.headers_open_with_their_name,
        source("csrc/net/lane.h", "// Wire: a connection.\nclass Lane;"),
        source("csrc/net/wire.h", "// Lane is a connection.\nclass Lane;"),
    ),
    (
        rules.headers_open_with_their_name,
        source("csrc/net/wires.h", "// look() tells the state.\nbool see();"),
        source("csrc/net/wires.h", "// look() tells the state.\nbool look();"),
    ),
    (
        rules.headers_open_with_their_name,
        source("csrc/net/lane_options.h", "// options: of a lane.\n"),
        source("csrc/net/lanes.h", "// Lanes: all of a link.\n"),
    ),
    (
        rules.named_functions_exist,
        source("csrc/net/lane.cc", "// Call it after open_all().\nvoid open();"),
        source("csrc/net/lane.cc", "// Call it after Lane::open().\nvoid open();"),
    ),
    (
        rules.named_functions_exist,
        source("csrc/net/lane.cc", '// It does what open() says.\nsay("open()");'),
        source("csrc/net/lane.cc", "// It calls open().\nauto open = [] {};"),
    ),
    (
        rules.named_files_exist,
        source("csrc/net/lane.h", "// A frame (net/frame.h).\n"),
        source("csrc/net/frame.h", "// net/frame.h, frame.h, *.h\n"),
    ),
    (
        rules.named_files_exist,
        source("docs/design.md", "| frames | `csrc/net/frame.h` |\n"),
        source("docs/design.md", "| frames | `csrc/net/frame.hpp` |\n"),
    ),
    (
        rules.named_variables_exist,
        source("csrc/net/lane.h", "// `size`: its bytes.\nvoid send(int bytes);"),
        source("csrc/net/lane.h", "// `bytes`: its size; `Size` is free.\nvoid send(int bytes);"),
    ),
    (
        rules.named_variables_exist,
        source("csrc/net/lane.cc", '// Up to `end`.\nsay("end");'),
        source("csrc/net/lane.cc", "// Up to `end`.\nfor (; at < end; ++at) {}"),
    ),
    (
        rules.tests_wait_within_bounds,
        source("tests/python/test_x.py", "with subprocess.Popen(command) as running: pass"),
        source("tests/python/test_x.py", "with Program(command) as running: running.wait()"),
    ),
    (
        rules.tests_wait_within_bounds,
        source("tests/python/test_x.py", "subprocess.run(command, check=True)"),
        source("tests/python/test_x.py", "subprocess.run(command, timeout=20)"),
    ),
    (
        rules.tests_wait_within_bounds,
        source("tests/stress/run.py", "thread.join()"),
        source("tests/stress/run.py", "thread.join(5); ', '.join(names)"),
    ),
    (
        rules.tests_wait_within_bounds,
        source("benchmarks/wan/lab.py", "process.stdout.readline()"),
        source("benchmarks/wan/lab.py", "process.line(); sys.stdin.readline()"),
    ),
]


@pytest.mark.parametrize(
    ("rule", "guilty", "innocent"), CASES, ids=lambda value: getattr(value, "__name__", "")
)
def test_rule_tells_guilty_from_innocent(rule: Rule, guilty: Source, innocent: Source) -> None:
    assert list(rule([guilty]))
    assert not list(rule([innocent]))


PLANTED = {
    "what-clause": ("It sends what it has.", "It knows what to send."),
    "that-of": ("Its rate is that of a link.", "That link is out of use."),
    "nobody": ("Then nobody waits here.", "Then no peer waits here."),
    "code says": ("The error says why.", "He will say why."),
    "so many": ("It waits for so long.", "It waits so long that all are done."),
    "has come": ("The data has come late.", "The data comes late."),
    "inverted opening": ("Where bytes cost money.", "The place where bytes rest."),
    "preposition + which": ("The lane on which it leaves.", "The lane, which is open."),
}


@pytest.mark.parametrize("idiom", IDIOMS, ids=lambda idiom: idiom.name)
def test_idiom_above_its_bound_is_found(idiom: Idiom) -> None:
    planted, plain = PLANTED[idiom.name]
    other = source("docs/other.md", "It is plain.\n\n" * 999)

    def complaints(times: int) -> list[str]:
        text = f"# {planted}\n\n" * times + f"# {plain}\n\n" * 40
        return list(english_is_plain([other, source("pccl_backend/api.py", text)]))

    assert not complaints(int(idiom.most))
    (found,) = complaints(int(idiom.most) + 1)
    assert found.startswith(f"pccl_backend/api.py:1: {planted}: {idiom.name}, ")
    assert f"{int(idiom.most) + 1} here" in found


def test_cycle_is_found() -> None:
    one = source("csrc/base/one.h", '#include "csrc/base/two.h"')
    two = source("csrc/base/two.h", '#include "csrc/base/one.h"')
    assert list(rules.no_include_cycle([one, two]))
    assert not list(rules.no_include_cycle([one, source("csrc/base/two.h", "")]))


def test_cycle_of_imports_is_found() -> None:
    one = source("pccl_backend/one.py", "def late():\n    from pccl_backend.two import Two")
    for text in (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pccl_backend import one",
        "import pccl_backend.one",
        "from pccl_backend.one import One",
    ):
        assert list(rules.no_include_cycle([one, source("pccl_backend/two.py", text)])), text
    package = source("pccl_backend/__init__.py", "from pccl_backend.one import One")
    outside = source("tests/two.py", "from pccl_backend.one import One")
    assert not list(rules.no_include_cycle([one, package, outside]))


def test_folder_is_imported_by_its_users_only() -> None:
    leader = source(
        "pccl_backend/trainers/host/leader.py", "from pccl_backend.trainers import core"
    )
    core = source("pccl_backend/trainers/core.py", "")
    text = "from pccl_backend.trainers.host.leader import Leader"
    for path, wrong in (
        ("pccl_backend/trainers/core.py", True),
        ("pccl_backend/api.py", True),
        ("pccl_backend/__init__.py", False),
        ("pccl_backend/trainers/diloco.py", False),
        ("pccl_backend/trainers/host/group.py", False),
        ("examples/train.py", False),
    ):
        assert bool(list(rules.package_layers([leader, core, source(path, text)]))) == wrong, path


def test_deep_chain_is_found() -> None:
    chain = [
        source(f"csrc/base/a{i}.h", f'#include "csrc/base/a{i + 1}.h"\n')
        for i in range(rules.DEPTH_MAX + 1)
    ]
    assert list(rules.includes_are_shallow(chain)) == ["csrc/base/a0.h: 10 headers deep, at most 9"]
    assert not list(rules.includes_are_shallow(chain[1:]))


def test_class_in_two_files_is_found() -> None:
    def file(path: str, name: str) -> Source:
        return source(path, f"namespace pccl {{\nvoid {name}() {{ work(); }}\n}}\n")

    core = file("csrc/ring/core.cc", "Core::begin")
    assert list(rules.classes_have_one_file([core, file("csrc/ring/core_late.cc", "Core::end")]))
    for path, name in (
        ("csrc/ring/core_check.cc", "Core::end"),
        ("csrc/ring/late.cc", "Late::end"),
        ("csrc/ring/late.cc", "end"),
        ("csrc/link/core.cc", "Core::end"),
        ("tests/cpp/ring/world.cc", "Core::end"),
    ):
        assert not list(rules.classes_have_one_file([core, file(path, name)])), path


@pytest.mark.parametrize(
    "text",
    [
        "constexpr Duration kLimit = seconds(2);",
        "constexpr PeerId kLimit{2};",
        "constexpr PeerId kFirst{2}, kLimit{3};",
        "struct End {",
        "struct End : FrameSink {",
        "const std::vector<int> kList[] = {1};",
        "using List = std::vector<int>;",
        "std::string text(size_t bytes) {",
    ],
)
def test_name_of_two_test_files_is_found(text: str) -> None:
    here = source("tests/cpp/net/test_lane.cc", f"namespace {{\n{text}\n}}\n")
    same = text.replace("bytes", "size").replace("std::vector", "std::list")
    same = same.replace("kFirst", "kOther")
    there = source("tests/cpp/net/shell/test_loop.cc", same)
    assert list(rules.private_names_of_tests_differ([here, there]))
    for path, other in (
        ("tests/cpp/link/test_lane.cc", same),
        ("csrc/net/lane.cc", same),
        ("tests/cpp/net/test_loop.cc", "  " + same),
        ("tests/cpp/net/test_loop.cc", "using Other = std::list<int>;"),
    ):
        assert not list(rules.private_names_of_tests_differ([here, source(path, other)])), path


def test_alias_of_two_test_files_is_allowed() -> None:
    files = [source(f"tests/cpp/net/test_{i}.cc", "using A = int;\n") for i in range(2)]
    assert not list(rules.private_names_of_tests_differ(files))


def test_copied_limit_is_found() -> None:
    limits = [
        source("csrc/protocol/limits.h", "inline constexpr size_t kStateKeysMax = large(65536);\n"),
        source("pccl_backend/_limits.pyi", "WAN_RTT_MIN_S: float\nLANES_MAX: int\n"),
    ]
    for text in (
        "STATE_KEYS_MAX = 65536",
        "KEYS_MAX: int = 2**16",
        "class A:\n  RTT_MIN_S = 1e-3",
        "LANES = (1, 64)",
    ):
        assert list(rules.limits_stand_once([*limits, source("pccl_backend/api.py", text)])), text
    for path, text in (
        ("pccl_backend/_limits.py", "LANES_MAX = 64"),
        ("pccl_backend/api.py", "KEYS_MAX = _limits.STATE_KEYS_MAX"),
        ("pccl_backend/api.py", "LANES = (1, _limits.LANES_MAX)"),
        ("pccl_backend/api.py", "ATTEMPTS_MAX = 32"),
        ("pccl_backend/api.py", "LANES = 2"),
    ):
        assert not list(rules.limits_stand_once([*limits, source(path, text)])), text


def test_names_of_other_files_are_known() -> None:
    header = source("csrc/net/lane.h", '// `bytes`.\n#include "csrc/net/size.h"\n')
    assert list(rules.named_variables_exist([header]))
    for path in ("csrc/net/lane.cc", "csrc/net/size.h"):
        assert not list(rules.named_variables_exist([header, source(path, "int bytes;")]))
    comment = source("csrc/torch/call.cc", "// For contributors().\n")
    assert list(rules.named_functions_exist([comment]))
    for text in ("def contributors(): pass", "work.contributors()"):
        python = source("pccl_backend/api.py", text)
        assert not list(rules.named_functions_exist([comment, python]))


def test_every_rule_has_a_case() -> None:
    tested = {rule for rule, _, _ in CASES} | {
        rules.no_include_cycle,
        rules.package_layers,
        rules.classes_have_one_file,
        rules.private_names_of_tests_differ,
        rules.limits_stand_once,
        rules.includes_are_shallow,
    }
    assert tested == set(rules.ALL)


def test_functions_are_read() -> None:
    text = """
namespace pccl {
struct Plain { int a = 0; bool operator==(const Plain&) const = default; };
const int kTable[] = {1, 2, 3};
class Shape {
 public:
  Shape(int a, int b) : a_(a), b_{b} {
    use([&] { return a; });
  }
  int area() const { return a_ * b_; }
};
template <typename T>
T twice(T value) {
  if (value) {
    return value + value;
  }
  return {};
}
#define PCCL_X(a) \\
  do { f(a); } while (false)
bool operator<(const Shape& a, const Shape& b) { return a.area() < b.area(); }
}  // namespace pccl
"""
    found = [(f.name, f.lines) for f in source("csrc/base/shape.cc", text).functions]
    assert found == [("Shape", 3), ("area", 1), ("twice", 7), ("operator<", 1)]
