#!/usr/bin/env python3
"""Keep the inputs of the fuzz targets: one archive a target, tests/fuzz/corpus/TARGET.tar.xz.

    make fuzz-add TARGET=codec FILE=build/fuzz/crashes/codec-crash-1f
    tools/fuzz_corpus.py merge build/fuzz codec
    tools/fuzz_corpus.py unpack build/fuzz/seeds

`add` puts one input into the archive for good: a later merge keeps it, even if it covers nothing
new. `merge` lets libFuzzer choose inputs that together cover all that the archive and the inputs of
earlier runs (FOLDER/corpus) cover. The choice replaces the archive. `unpack` writes the inputs of
all targets into folders. `max-len` prints the length limit of a target's inputs in bytes.

An input is named after the SHA-1 of its content, as libFuzzer names it, with "added-" before the
name of an added one. The same inputs give the same archive.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import lzma
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHIVES = ROOT / "tests" / "fuzz" / "corpus"
EXAMPLE = "make fuzz-add TARGET=codec FILE=build/fuzz/crashes/codec-crash-1f"
ADDED = "added-"
# libFuzzer cuts a longer input when it loads it. Short inputs keep the runs of a core short.
BYTES_MAX = 4096
BYTES_MAX_OF_CORE = 2048
CORES = ("engine", "master", "peer")

Inputs = dict[str, bytes]  # by name


class CallError(Exception):
    """The command cannot be carried out; the message names the cause and the remedy."""


def targets() -> list[str]:
    """Return the names of all targets: each has a source in tests/fuzz."""
    return sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*.cc"))


def check_target(target: str) -> None:
    if target not in targets():
        raise CallError(
            f'TARGET "{target}" is not a fuzz target. Choose one of: {" ".join(targets())}. '
            f"For example: {EXAMPLE}"
        )


def bytes_max(target: str) -> int:
    return BYTES_MAX_OF_CORE if target in CORES else BYTES_MAX


def named(contents: Iterable[bytes], *, prefix: str = "") -> Inputs:
    return {prefix + hashlib.sha1(content).hexdigest(): content for content in contents}


def archive_of(target: str) -> Path:
    return ARCHIVES / f"{target}.tar.xz"


def read(target: str) -> Inputs:
    """Return the inputs of a target. A new target has no archive, and no inputs."""
    path = archive_of(target)
    if not path.exists():
        return {}
    try:
        packed = io.BytesIO(lzma.decompress(path.read_bytes()))
        with tarfile.open(fileobj=packed) as archive:
            files = ((member.name, archive.extractfile(member)) for member in archive)
            return {Path(name).name: file.read() for name, file in files if file}
    except (lzma.LZMAError, tarfile.TarError) as error:
        raise CallError(
            f"{path} is damaged ({error}). Restore it: git checkout -- {path.relative_to(ROOT)}"
        ) from error


def write(target: str, inputs: Inputs) -> None:
    """Replace the archive of a target. Order, times and owners are fixed."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(inputs):
            member = tarfile.TarInfo(name)  # of owner 0, at time 0
            member.size = len(inputs[name])
            archive.addfile(member, io.BytesIO(inputs[name]))
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    partial = archive_of(target).with_suffix(".partial")
    partial.write_bytes(lzma.compress(unpacked.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    partial.replace(archive_of(target))


def add(target: str, file: str) -> str:
    """Put the content of `file` into the archive of a target, for good; return a report."""
    check_target(target)
    if not file:
        raise CallError(f"FILE is missing: the input to add. For example: {EXAMPLE}")
    path = Path(file)
    if not path.is_file():
        raise CallError(f'FILE "{file}" is not a file. Give one input. For example: {EXAMPLE}')
    content = path.read_bytes()
    if not content:
        raise CallError(f'FILE "{file}" is empty. Each run tries the empty input; do not add it.')
    if len(content) > bytes_max(target):
        raise CallError(
            f'FILE "{file}" has {len(content)} bytes, and an input of {target} has at most '
            f"{bytes_max(target)}: libFuzzer would cut it. Shorten it, with "
            f"build/fuzz/fuzz_{target} -minimize_crash=1 if it is a crash."
        )
    inputs = read(target)
    (new,) = named([content], prefix=ADDED)
    if new in inputs:
        return f"{target}: {new} is there already, nothing changes"
    inputs.pop(new.removeprefix(ADDED), None)
    inputs[new] = content
    write(target, inputs)
    return f"{target}: {new} added, {len(inputs)} inputs in {archive_of(target).relative_to(ROOT)}"


def unpack(folder: Path) -> None:
    """Write the inputs of each target into `folder`/TARGET."""
    for target in targets():
        into = folder / target
        into.mkdir(parents=True, exist_ok=True)
        for name, content in read(target).items():
            (into / name).write_bytes(content)


def merge(folder: Path, target: str) -> str:
    """Replace the archive of a target by libFuzzer's choice; return a report."""
    check_target(target)
    program = folder / f"fuzz_{target}"
    if not program.is_file():
        raise CallError(f"{program} does not exist. `make fuzz` builds it, into build/fuzz.")
    before = read(target)
    with tempfile.TemporaryDirectory() as place:
        seeds, chosen = Path(place, "seeds"), Path(place, "chosen")
        for made in (seeds, chosen, folder / "corpus" / target):
            made.mkdir(parents=True, exist_ok=True)
        for name, content in before.items():
            (seeds / name).write_bytes(content)
        # libFuzzer leaves out an input that takes too long, also if the machine is only busy.
        settings = ("-set_cover_merge=1", "-timeout=60", "-rss_limit_mb=2048", "-detect_leaks=0")
        command = [str(program.resolve()), *settings, f"-max_len={bytes_max(target)}"]
        folders = (chosen, seeds, folder / "corpus" / target)
        done = subprocess.run(
            [*command, *folders], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            raise CallError(f"{program} could not merge; nothing changes:\n{done.stderr[-2000:]}")
        after = named(path.read_bytes() for path in chosen.iterdir())
    for name, content in before.items():
        if name.startswith(ADDED):
            after.pop(name.removeprefix(ADDED), None)
            after[name] = content
    if after != before:
        write(target, after)
    return f"{target}: {len(before)} inputs before, {len(after)} after the merge"


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="add one input for good")
    adding.add_argument("target")
    adding.add_argument("file")
    merging = commands.add_parser("merge", help="let libFuzzer choose the inputs")
    merging.add_argument("folder", type=Path, help="with the programs: build/fuzz")
    merging.add_argument("targets", nargs="*", metavar="target", help="default: all")
    unpacking = commands.add_parser("unpack", help="write all inputs into folders")
    unpacking.add_argument("folder", type=Path)
    measuring = commands.add_parser("max-len", help="print the length limit of an input")
    measuring.add_argument("target")
    return parser


def main(words: Sequence[str]) -> int:
    given = options().parse_args(words)
    try:
        if given.command == "add":
            print(add(given.target, given.file))
        elif given.command == "merge":
            for target in given.targets or targets():
                print(merge(given.folder, target), flush=True)
        elif given.command == "unpack":
            unpack(given.folder)
        else:
            check_target(given.target)
            print(bytes_max(given.target))
    except CallError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
