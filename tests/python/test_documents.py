"""The documents for users: the first program runs as the README shows, and the rest is true.

The tables of settings and errors agree with the code. URLs, variables and commands are valid.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import sys
from pathlib import Path

import pytest
from programs import Program
from world import Master, require_own_name, run_program

import pccl_backend
from pccl_backend import _limits, _settings, errors
from pccl_backend.probe.command import PORT as PROBE_PORT

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = (
    *("running", "operating", "settings", "errors", "quantization", "recipes"),
    *("rarely-used", "watching", "install", "machines", "ddp", "diloco", "gpus"),
    *("versions", "api", "launching", "deadlocks"),
)
DOCS = {name: (ROOT / f"docs/{name}.md").read_text() for name in PAGES}
USER_PAGES = {"README": README, **DOCS}
PCCL = [sys.executable, "-m", "pccl_backend.cli"]
FIRST_URL = "pccl://127.0.0.1:48148/hello"


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


# --- The first program ----------------------------------------------------------------------------


def first_program(script: Path, url: str, **changes: str) -> list[str]:
    """Write the README's program with another URL and other changes; return its command."""
    (program,) = blocks(README, "python")
    for old, new in {FIRST_URL: url, **changes}.items():
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    script.write_text(program)
    return [sys.executable, str(script)]


def test_the_first_program_ends(tmp_path: Path, master: Master) -> None:
    at_once = {"time.sleep(1)": "pass"}  # the README's program makes a step a second, for people
    done = run_program(first_program(tmp_path / "train.py", master.url(), **at_once))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"step {step}: rank 0 of 1, sum 1" for step in range(20)]


def test_the_first_program_prints_what_the_readme_shows(tmp_path: Path, master: Master) -> None:
    """Start a second peer, let the first one die, start a third one; the second shows it all.

    The first dies where a step begins: in update_topology its death would cause no error.
    """
    url, endless = master.url(), {"range(20)": "range(10**9)"}
    # The rest of the first peer's output stays unread. Its 20 lines a second, of 40 bytes each, fit
    # into a pipe (64 KiB) for longer than a test waits for a line (WAIT_S, 60 s).
    pause = "time.sleep(0.05)"  # instead of the second that the README's program takes for people
    dies = 'step and tensor[0] == 2 and __import__("os").kill(__import__("os").getpid(), 9)'
    changes = {**endless, "time.sleep(1)": f"{dies} or {pause}"}
    mortal = first_program(tmp_path / "mortal.py", url, **changes)
    changes = {**endless, "time.sleep(1)": pause}
    lasting = first_program(tmp_path / "lasting.py", url, **changes)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Program(mortal))
        read_until(first, "rank 0 of 1, sum 1")
        second = stack.enter_context(Program(lasting))
        printed = read_until(second, "rank 0 of 1, sum 1")
        assert first.wait() == -signal.SIGKILL
        stack.enter_context(Program(lasting))
        printed += read_until(second, "rank 0 of 2, sum 2")
    shown = blocks(README, "text")[0]
    assert events(printed) == events(shown.splitlines())


def read_until(peer: Program, end: str) -> list[str]:
    lines = []
    while line := peer.line():
        lines.append(line)
        if line.endswith(f"{end}\n"):
            return lines
    raise AssertionError(f"ended before it printed {end!r}: {lines}")


def events(lines: list[str]) -> list[str]:
    """Return what happened, without repetitions and without what differs from run to run."""
    lines = [line.replace(f" {_settings.host_name()} (peer", " tokyo (peer") for line in lines]
    varying = r"step \d+|#\d+|epoch \w+\.\d+|peer \w+\.\d+|127\.0\.0\.1:\d+"
    texts = [re.sub(varying, "*", line.strip()) for line in lines]
    return [text for text, _ in itertools.groupby(texts)]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


# --- The DDP script -------------------------------------------------------------------------------


def ddp_script(folder: Path, **changes: str) -> Path:
    """Write the script of docs/ddp.md with changes, and without its pauses."""
    (name,) = set(re.findall(r"examples/\w+\.py", DOCS["ddp"]))
    program = (ROOT / name).read_text()
    for old, new in {"STEP_S = 0.1": "STEP_S = 0.0", **changes}.items():
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    (folder / "launch.py").write_text((ROOT / "examples/launch.py").read_text())
    script = folder / Path(name).name
    script.write_text(program)
    return script


def test_the_ddp_script_runs_under_torchrun(tmp_path: Path) -> None:
    require_own_name()
    script = ddp_script(tmp_path)
    command = f"torchrun --standalone --nproc-per-node=2 examples/{script.name}\n"
    assert command in blocks(DOCS["ddp"], "sh")
    torchrun = [sys.executable, "-m", "torch.distributed.run", *command.split()[1:-1]]
    done = run_program([*torchrun, str(script)])
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank [01] of 2 ends at step 80", done.stdout)) == 2, done.stdout


def test_the_ddp_script_runs_without_torchrun(tmp_path: Path, master: Master) -> None:
    init = 'dist.init_process_group("pccl"'
    (shown,) = re.findall(rf"`{re.escape(init)}, init_method=\"(pccl://\S+)\"\)`", DOCS["ddp"])
    assert shown == "pccl://127.0.0.1:48148/my-ddp?founders=3&min_peers=2"
    url = master.url(min_peers=2)
    with_url = {f"{init})": f'{init}, init_method="{url}")', '"LOCAL_RANK" in os.environ': "True"}
    command = [sys.executable, str(ddp_script(tmp_path, **with_url))]
    with Program(command) as first, Program(command) as second:
        for peer in (first, second):
            assert re.search(r"rank [01] of 2 ends at step 80", "".join(iter(peer.line, "")))
            assert peer.wait() == 0


# --- Settings, limits, errors ---------------------------------------------------------------------


def first_column(table_head: str, text: str) -> list[str]:
    """Return the `names` in the first column of the table with this head, in order."""
    _, found, rest = text.partition(f"| {table_head} |")
    assert found, table_head
    rows = itertools.takewhile(lambda line: line.startswith("|"), rest.split("\n")[2:])
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_the_settings_are_those_of_the_code() -> None:
    variables = first_column("variable", DOCS["settings"])
    assert sorted(variables) == sorted(_settings._VARIABLES)
    in_url = {name.removeprefix("PCCL_").lower() for name in variables}
    in_url -= set(_settings._VARIABLES_ONLY)
    in_url.update(first_column("parameter", DOCS["settings"]))
    assert in_url == set(_settings._PARAMETERS)


def test_variables_that_are_no_parameters_say_so() -> None:
    for name in _settings._VARIABLES_ONLY:
        (row,) = re.findall(rf"^\| `PCCL_{name.upper()}` .*", DOCS["settings"], re.MULTILINE)
        assert "variable only" in row


def test_the_errors_are_those_of_the_code() -> None:
    named = first_column("error", DOCS["errors"])
    assert sorted([*named, "PcclError"]) == sorted(errors.__all__)


@pytest.mark.parametrize(
    ("page", "row", "numbers"),
    [
        ("settings", r"`PCCL_PEER_TIMEOUT` \| (\d+) \(sec", [_limits.PEER_TIMEOUT_DEFAULT_S]),
        ("settings", r"`PCCL_MASTER_TIMEOUT` \| (\d+) \(sec", [_limits.MASTER_TIMEOUT_DEFAULT_S]),
        ("settings", r"`PCCL_LANES` \|.*, (\d+) to (\d+);", [1, _limits.LANES_MAX]),
        ("README", r"listens on 127\.0\.0\.1:(\d+);", [_limits.MASTER_PORT_DEFAULT]),
        ("README", r"TCP (\d+) at the master", [_limits.MASTER_PORT_DEFAULT]),
        ("README", r"(\d+) for `pccl probe`", [PROBE_PORT]),
        ("running", r"\| (\d+), or `--port` \| the master", [_limits.MASTER_PORT_DEFAULT]),
        ("running", r"\| (\d+), or `--port` \| `pccl probe", [PROBE_PORT]),
        ("operating", r"\| (\d+), or `--port` \| the master", [_limits.MASTER_PORT_DEFAULT]),
        ("operating", r"\| (\d+), or `--port` \| `pccl probe", [PROBE_PORT]),
        ("operating", r"for `PCCL_MASTER_TIMEOUT`\n\((\d+) s", [_limits.MASTER_TIMEOUT_DEFAULT_S]),
    ],
)
def test_the_pages_have_the_limits(page: str, row: str, numbers: list[float]) -> None:
    found = re.search(row, USER_PAGES[page])
    assert found is not None
    assert [float(number) for number in found.groups()] == numbers


def test_the_api_page_has_every_module() -> None:
    """Sphinx writes it from the docstrings: a module that it does not name is missing there."""
    named = re.findall(r"auto(?:module|class):: pccl_backend\.(\w+)", DOCS["api"])
    assert sorted(named) == sorted({*pccl_backend._MODULES, "errors", "SharedState"})


# --- Text that a reader copies --------------------------------------------------------------------


@pytest.mark.parametrize("page", USER_PAGES)
def test_urls_and_variables_are_valid(page: str) -> None:
    text = USER_PAGES[page]
    for url in re.findall(r"pccl://[^\s`\"')]+", text):
        if not url.startswith("pccl://HOST:PORT"):  # the form of a URL
            _settings.read_url(url, {})
    for name in re.findall(r"\bPCCL_[A-Z_]+", text):
        assert name in _settings._VARIABLES
    for name, value in re.findall(r"\b(PCCL_[A-Z_]+)=([^\s`\"]+)", text):
        if value.isascii():
            _settings.PeerSettings.read({name: value.replace("V6", "2001:db8::5")})


@pytest.mark.parametrize("page", USER_PAGES)
def test_names_exist(page: str) -> None:
    text = USER_PAGES[page]
    used = re.findall(r"`pccl\.([\w.]+)\(", text)
    for block in blocks(text, "python"):
        used += re.findall(r"\bpccl\.([\w.]+)", block)
        for module, names in re.findall(r"from pccl_backend\.(\w+) import (.*)", block):
            used += [f"{module}.{name}" for name in names.split(", ")]
    for name in used:
        module, _, rest = name.partition(".")
        if module in pccl_backend._MODULES:
            assert rest.partition(".")[0] in getattr(pccl_backend, module).__all__, (page, name)
        else:
            assert module in pccl_backend.__all__, (page, name)


@pytest.mark.parametrize("page", USER_PAGES)
def test_commands_have_their_options(page: str) -> None:
    command_and_rest = r"\bpccl ((?:token )?[a-z][a-z-]*)((?: [^`\n#|]+)?)"
    for command, rest in re.findall(command_and_rest, code(USER_PAGES[page])):
        explained = run_program([*PCCL, *command.split(), "--help"])
        assert explained.returncode == 0, command
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in explained.stdout, f"pccl {command} {option}"


def code(text: str) -> str:
    """Return what stands between backquotes and in blocks of the shell."""
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    return "\n".join([*spans, *blocks(text, "sh")])
