"""The demo: its text and model, its processes, and a short run of the whole."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from programs import Program
from world import is_running, wait_until

from pccl_backend import demo
from pccl_backend.demo.child import Children
from pccl_backend.demo.data import SYMBOLS, Text, read_standard_library
from pccl_backend.demo.model import CharGpt, loss_of
from pccl_backend.demo.settings import FULL, SHORT, Settings

pytestmark = pytest.mark.usefixtures("one_thread")

DEMO_TIMEOUT_S = 330.0  # more than the demo's own limit
PNG_BEGINS = b"\x89PNG\r\n\x1a\n"


# ---- Settings, text, model ----


@pytest.mark.parametrize("settings", [FULL, SHORT])
def test_settings_travel_as_one_line(settings: Settings) -> None:
    assert "\n" not in settings.to_json()
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize("wrong", [{"width": 63}, {"kill_step": 0}, {"join_step": 3}])
def test_settings_that_tell_no_story_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"width|kill_step"):
        replace(SHORT, **wrong)


def test_targets_are_the_inputs_one_symbol_later() -> None:
    text = Text(read_standard_library(200_000), context=16)
    inputs, targets = next(text.batches(4, seed=1))
    assert inputs.shape == targets.shape == (4, 16)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    other, _ = next(text.batches(4, seed=2))
    assert not torch.equal(inputs, other)
    assert int(inputs.max()) < SYMBOLS


def test_what_is_held_out_is_not_trained_on() -> None:
    # Each symbol names its block. There are 20 blocks, and the last one is held out.
    blocks = b"".join(bytes([ord("a") + i]) * 2048 for i in range(20))
    text = Text(blocks, context=8)
    trained, _ = next(text.batches(2000, seed=1))
    held_out, _ = text.validation(50)
    assert len(set(trained.flatten().tolist())) == 19
    assert set(held_out.flatten().tolist()) == {ord("a") + 19 - 32 + 1}


def test_too_little_text_is_refused() -> None:
    with pytest.raises(ValueError, match="100 bytes of text are too few"):
        Text(b"x" * 100, context=8)


def test_the_model_learns_and_looks_only_back() -> None:
    torch.manual_seed(0)
    model = CharGpt(symbols=SYMBOLS, context=16, layers=1, width=16, heads=2)
    text = Text(read_standard_library(100_000), context=16)
    batch = next(text.batches(4, seed=1))
    logits = model(batch[0])
    changed = batch[0].clone()
    changed[:, 8:] = 0
    torch.testing.assert_close(model(changed)[:, :8], logits[:, :8])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = loss_of(model, batch).item()
    for _ in range(20):
        optimizer.zero_grad()
        loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert loss_of(model, batch).item() < first - 0.5


# ---- Processes ----

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_children_end_however_the_block_is_left(tmp_path: Path, error: type[BaseException]) -> None:
    pids: list[int] = []

    def leave_with_children() -> None:
        with Children(tmp_path) as children:
            for name in "xyz":
                pids.append(children.start(name, SLEEPER).pid)
            raise error

    with pytest.raises(error):
        leave_with_children()
    assert len(pids) == 3
    assert not any(map(is_running, pids))


def test_a_child_is_heard_told_and_killed(tmp_path: Path) -> None:
    program = (
        "import sys; print('one'); print(input(), flush=True); sys.stderr.write('oh'); input()"
    )
    with Children(tmp_path) as children:
        child = children.start("x", [sys.executable, "-c", program], environment={"A": "b"})
        child.tell("two")
        heard: list[str] = []

        def hear() -> bool:
            heard.extend(child.read_lines() or [])
            return len(heard) == 2

        assert wait_until(hear, timeout_s=10)
        assert heard == ["one", "two"]
        assert child.exit_code is None
        ended_at = child.kill()
        assert ended_at <= time.monotonic()
        assert child.exit_code == -signal.SIGKILL
        assert child.last_words() == "oh"
        assert child.read_lines() is None
        child.tell("three")  # nothing is sent to a child that is gone


def test_children_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from pccl_backend.demo.child import Children\n"
        f"with Children(Path({str(tmp_path)!r})) as children:\n"
        f"    print(children.start('x', {SLEEPER!r}).pid, flush=True); time.sleep(60)\n"
    )
    with Program([sys.executable, "-c", program]) as parent:
        pid = int(parent.line())
        assert is_running(pid)
        parent.kill()
    assert wait_until(lambda: not is_running(pid), timeout_s=5)


# ---- The whole ----


def demo_command(picture: Path) -> list[str]:
    return [sys.executable, "-m", "pccl_backend.cli", "demo", "--short", "--picture", str(picture)]


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "rich" else name)
    assert demo.main(["--short"]) == 1
    assert "needs rich: pip install 'pccl-torch[demo]'" in capsys.readouterr().err


def test_the_orchestrator_does_without_torch() -> None:
    program = "import sys; import pccl_backend.demo.command; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


@pytest.fixture(scope="module")
def short_demo(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[subprocess.CompletedProcess[str], Path]:
    picture = tmp_path_factory.mktemp("demo") / "demo.png"
    ended = subprocess.run(
        demo_command(picture), capture_output=True, text=True, timeout=DEMO_TIMEOUT_S, check=False
    )
    return ended, picture


@pytest.mark.timeout(DEMO_TIMEOUT_S + 30)
def test_the_demo_in_short(short_demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    ended, picture = short_demo
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "All checks passed" in ended.stdout
    assert "is killed with SIGKILL in the middle of the all-reduce of step 3" in ended.stdout
    assert re.search(r"the loss of a peer cost \d+\.\d{3} s", ended.stdout)
    assert re.search(r"the join cost the others \d+\.\d{3} s", ended.stdout)
    hashes = re.findall(r"^peer \w: revision \d+, hash (\w+)", ended.stdout, re.MULTILINE)
    assert len(hashes) == 3
    assert len(set(hashes)) == 1
    assert picture.read_bytes().startswith(PNG_BEGINS)


@pytest.mark.timeout(DEMO_TIMEOUT_S + 30)
def test_the_demo_leaves_no_process(
    short_demo: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    ended, _ = short_demo
    pids = [int(pid) for pid in re.findall(r"starts \(pid (\d+)\)", ended.stdout)]
    assert len(pids) == 4, ended.stdout
    assert not any(map(is_running, pids))


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in tasks.split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_ends_its_children_when_interrupted(tmp_path: Path, number: int) -> None:
    with Program(
        demo_command(tmp_path / "demo.png"), env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as running:
        lines = [running.line() for _ in "abc"]
        pids = children_of(running.pid)
        assert len(pids) == 4, f"master and three peers, not {pids}: {lines}"
        running.send_signal(number)
        output, _ = running.communicate(timeout=20)
        assert running.returncode == 130, output
    assert "interrupted" in output
    assert not any(map(is_running, pids))
