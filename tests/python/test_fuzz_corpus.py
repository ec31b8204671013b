"""The archives of the fuzz targets, and tools/fuzz_corpus.py, which keeps them.

The commands run in a tree of the test, with two targets. Stubs stand in for the fuzz programs.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from world import run_program

ROOT = Path(__file__).parents[2]
TARGETS = sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*.cc"))

# As a merge does: copies those inputs of the later folders that begin with "a" into the first one.
CHOOSES_A = """#!/bin/sh
for word; do case $word in -*) ;; *) set -- "$@" "$word" ;; esac; shift; done
chosen=$1; shift
for input in $(find "$@" -type f); do
  case $(cat "$input") in a*) cp "$input" "$chosen/$(sha1sum < "$input" | cut -d' ' -f1)" ;; esac
done
"""
FAILS = "#!/bin/sh\necho no memory >&2; exit 1\n"
# As a run does: prints its words, and the contents of the folder with the inputs of the archive.
LISTS = """#!/bin/sh
echo "words: $*"; echo "inputs: $(cat "$2"/*)"; echo "Done 1 runs"
"""


def name_of(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a tree with two targets, without archives; return its folder."""
    for folder in ("tools", "tests/fuzz", "build/fuzz"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("tools/fuzz_corpus.py", "tools/fuzz.sh", "Makefile"):
        shutil.copy(ROOT / name, tmp_path / name)
    for target in ("codec", "peer"):
        (tmp_path / "tests" / "fuzz" / f"{target}.cc").touch()
    return tmp_path


def call(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_program([sys.executable, "tools/fuzz_corpus.py", *words], cwd=tree)


def report(tree: Path, *words: str) -> str:
    done = call(tree, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def add(tree: Path, content: bytes, *, target: str = "codec") -> str:
    (tree / "input").write_bytes(content)
    return report(tree, "add", target, "input")


def archive_of(tree: Path, *, target: str = "codec") -> Path:
    return tree / "tests" / "fuzz" / "corpus" / f"{target}.tar.xz"


def inputs_of(tree: Path, *, target: str = "codec") -> dict[str, bytes]:
    shutil.rmtree(tree / "seeds", ignore_errors=True)
    report(tree, "unpack", "seeds")
    return {path.name: path.read_bytes() for path in (tree / "seeds" / target).iterdir()}


def program(tree: Path, text: str, *, target: str = "codec") -> None:
    path = tree / "build" / "fuzz" / f"fuzz_{target}"
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_has_an_archive_without_times_and_owners(target: str) -> None:
    with tarfile.open(archive_of(ROOT, target=target)) as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == sorted(member.name for member in members)
        assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {
            (0, 0, 0, "")
        }
        longest = int(report(ROOT, "max-len", target))
        for member in members:
            file = archive.extractfile(member)
            assert file is not None
            content = file.read()
            assert member.name.removeprefix("added-") == name_of(content)
            assert 0 < len(content) <= longest


def test_the_tree_has_no_other_inputs() -> None:
    names = sorted(path.name for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir())
    assert names == [f"{target}.tar.xz" for target in TARGETS]


def test_an_added_input_is_unpacked(tree: Path) -> None:
    assert "1 inputs" in add(tree, b"bytes\0\xff")
    assert inputs_of(tree) == {"added-" + name_of(b"bytes\0\xff"): b"bytes\0\xff"}
    assert inputs_of(tree, target="peer") == {}


def test_an_input_added_twice_changes_nothing(tree: Path) -> None:
    add(tree, b"b")
    before = archive_of(tree).stat()
    assert "there already, nothing changes" in add(tree, b"b")
    after = archive_of(tree).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_same_inputs_in_any_order_make_the_same_archive(tree: Path) -> None:
    contents = [bytes([number]) * 9 for number in range(1, 6)]
    for content in contents:
        add(tree, content)
    first = archive_of(tree).read_bytes()
    archive_of(tree).unlink()
    for content in reversed(contents):
        add(tree, content)
    assert archive_of(tree).read_bytes() == first


def test_make_adds_an_input_and_reports_a_bad_call(tree: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("SKIPPED: there is no make")
    # This process may itself be a child of make, whose options and level are not for this one.
    environment = {"MAKEFLAGS": "", "MAKELEVEL": "0"}
    command = ["make", f"PYTHON={sys.executable}", "fuzz-add"]
    bad = run_program(command, cwd=tree, environment=environment)
    assert bad.returncode != 0
    assert 'TARGET "" is not a fuzz target. Choose one of: codec peer.' in bad.stderr
    (tree / "an input").write_bytes(b"b")
    words = ["TARGET=codec", "FILE=an input"]
    done = run_program([*command, *words], cwd=tree, environment=environment)
    assert done.returncode == 0, done.stderr
    assert list(inputs_of(tree).values()) == [b"b"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("coded", "input"), 'TARGET "coded" is not a fuzz target. Choose one of: codec peer.'),
        (("codec", ""), "FILE is missing: the input to add. For example: make fuzz-add TARGET="),
        (("codec", "none"), 'FILE "none" is not a file. Give one input.'),
        (("codec", "tools"), 'FILE "tools" is not a file. Give one input.'),
        (("codec", "empty"), 'FILE "empty" is empty.'),
        (("codec", "long"), 'FILE "long" has 4097 bytes, and an input of codec has at most 4096'),
        (
            ("peer", "long for a core"),
            'FILE "long for a core" has 2049 bytes, and an input of peer has at most 2048',
        ),
    ],
)
def test_a_bad_input_is_refused(tree: Path, words: tuple[str, str], message: str) -> None:
    (tree / "input").write_bytes(b"b")
    (tree / "empty").touch()
    (tree / "long").write_bytes(bytes(4097))
    (tree / "long for a core").write_bytes(bytes(2049))
    done = call(tree, "add", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert not archive_of(tree).exists()


@pytest.mark.parametrize("damage", [b"", b"no archive", None])
def test_a_damaged_archive_is_named_and_kept(tree: Path, damage: bytes | None) -> None:
    add(tree, b"b" * 100)
    damage = archive_of(tree).read_bytes()[:-20] if damage is None else damage
    archive_of(tree).write_bytes(damage)
    (tree / "input").write_bytes(b"c")
    done = call(tree, "add", "codec", "input")
    assert done.returncode == 2
    assert "tests/fuzz/corpus/codec.tar.xz is damaged (" in done.stderr
    assert "git checkout -- tests/fuzz/corpus/codec.tar.xz" in done.stderr
    assert archive_of(tree).read_bytes() == damage


def test_a_merge_takes_what_was_found_and_keeps_what_was_added(tree: Path) -> None:
    add(tree, b"added")
    add(tree, b"kept")
    found = tree / "build" / "fuzz" / "corpus" / "codec"
    found.mkdir(parents=True)
    (found / "1").write_bytes(b"as found")
    (found / "2").write_bytes(b"not chosen")
    program(tree, CHOOSES_A)
    assert "2 inputs before, 3 after the merge" in report(tree, "merge", "build/fuzz", "codec")
    merged = {f"added-{name_of(b'added')}": b"added", f"added-{name_of(b'kept')}": b"kept"}
    assert inputs_of(tree) == merged | {name_of(b"as found"): b"as found"}
    (found / "1").unlink()
    before = archive_of(tree).read_bytes()
    assert "3 inputs before, 3 after the merge" in report(tree, "merge", "build/fuzz", "codec")
    assert archive_of(tree).read_bytes() == before

    # An input that a merge chose and a person adds is there once, and for good.
    add(tree, b"as found")
    assert f"added-{name_of(b'as found')}" in inputs_of(tree)
    assert len(inputs_of(tree)) == 3


def test_a_merge_that_fails_changes_nothing(tree: Path) -> None:
    add(tree, b"b")
    before = archive_of(tree).read_bytes()
    done = call(tree, "merge", "build/fuzz")
    assert done.returncode == 2
    assert "build/fuzz/fuzz_codec does not exist. `make fuzz` builds it" in done.stderr
    program(tree, FAILS)
    done = call(tree, "merge", "build/fuzz", "codec")
    assert done.returncode == 2
    assert "could not merge; nothing changes:\nno memory" in done.stderr
    assert archive_of(tree).read_bytes() == before


def test_a_run_starts_from_the_archive(tree: Path) -> None:
    add(tree, b"from the archive", target="peer")
    stale = tree / "build" / "fuzz" / "seeds" / "peer" / "stale"
    stale.parent.mkdir(parents=True)
    stale.write_text("stale")
    program(tree, LISTS, target="peer")
    run = ["tools/fuzz.sh", "build/fuzz", "1", "1"]
    done = run_program(run, cwd=tree, environment={"PYTHON": sys.executable})
    assert done.returncode == 0, done.stdout + done.stderr
    log = (tree / "build" / "fuzz" / "peer.log").read_text()
    assert "inputs: from the archive\n" in log
    assert "-max_len=2048 " in log


def test_a_finding_comes_with_the_command_that_keeps_it(tree: Path) -> None:
    crashes = tree / "build" / "fuzz" / "crashes"
    crashes.mkdir()
    (crashes / "codec-crash-1f").write_bytes(b"b")
    program(tree, FAILS)
    run = ["tools/fuzz.sh", "build/fuzz", "1", "1", "codec"]
    done = run_program(run, cwd=tree, environment={"PYTHON": sys.executable})
    assert done.returncode != 0
    assert "make fuzz-add TARGET=codec FILE=build/fuzz/crashes/codec-crash-1f\n" in done.stdout
