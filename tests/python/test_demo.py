"""The demo: its judgement, on stories told by hand; its processes; and all of it, in short."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pccl_backend import demo
from pccl_backend.demo.child import Children
from pccl_backend.demo.data import SYMBOLS, Text, read_standard_library
from pccl_backend.demo.model import CharGpt, loss_of
from pccl_backend.demo.narrate import narrate
from pccl_backend.demo.settings import FULL, SHORT, Settings
from pccl_backend.demo.story import Event, Story, parse
from pccl_backend.demo.verdict import check_story, costs_of

DEMO_TIMEOUT_S = 110.0
PNG_BEGINS = b"\x89PNG\r\n\x1a\n"
KILL = SHORT.kill_step
JOINED_AT = 6


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- The judgement ----


def good_events() -> list[Event]:
    """Return a story in which all goes well, boiled down: a, b and c, then d for b."""
    events = [Event(peer, "validated", 0.0, {"revision": 0, "loss": 5.0}) for peer in "abc"]
    events += [
        Event(peer, "admitted", 0.0, {"id": f"0{peer}", "rank": 0, "world_size": 3})
        for peer in "abc"
    ]
    events += [
        Event(peer, "started", 0.0, {"revision": 0, "hash": "h0", "received_bytes": 0})
        for peer in "abc"
    ]
    events += [Event(peer, "posted", 9.9, {"step": KILL, "attempt": 1}) for peer in "ab"]
    events += [Event("b", "killed", 10.0, {"pid": 2, "step": KILL})]
    for peer, late in (("a", 0.0), ("c", 0.01)):
        failure = {"error": "PeerLostError", "message": "peer 0b lost in (diloco, #2)"}
        failure |= {"step": KILL, "attempt": 1, "untouched": True}
        events += [Event(peer, "failed", 10.1 + late, failure)]
        events += [met(peer, 10.15 + late, revision=KILL - 1, world_size=2, left=1)]
        events += [Event(peer, "committed", 10.2 + late, {"step": KILL, "attempt": 2})]
    events += [Event("d", "told", 14.0)]
    events += [
        met(peer, 15.0, revision=JOINED_AT, world_size=3, joined=1, topology_s=0.1, sync_s=0.2)
        for peer in "ac"
    ]
    events += [
        Event("d", "started", 15.0, {"revision": JOINED_AT, "hash": "h1", "received_bytes": 9})
    ]
    for peer in "acd":
        events += [met(peer, 20.0, revision=12, world_size=3, hash="h2")]
        events += [Event(peer, "validated", 20.0, {"revision": 12, "loss": 2.0})]
        events += [Event(peer, "done", 20.1, {"revision": 12, "digest": "s"})]
    return events


def met(peer: str, at: float, **fields: object) -> Event:
    usual = {"epoch": 1, "joined": 0, "left": 0, "topology_s": 0.01, "sync_s": 0.02, "hash": "h1"}
    return Event(peer, "met", at, {**usual, **fields})


def told(events: list[Event]) -> Story:
    story = Story()
    for event in events:
        story.add(event)
    return story


def failures(events: list[Event]) -> list[str]:
    checks = check_story(told(events), SHORT, tag="diloco")
    return [check.name for check in checks if not check.passed]


def test_a_good_story_passes_every_check() -> None:
    assert len(check_story(told(good_events()), SHORT, tag="diloco")) > 8
    assert failures(good_events()) == []


def spoil(
    events: list[Event], kind: str, peer: str, changes: dict[str, object], *, last: bool = False
) -> list[Event]:
    """Return the events with the first (or last) one of that kind and peer changed."""
    places = [i for i, event in enumerate(events) if (event.kind, event.peer) == (kind, peer)]
    place = places[-1 if last else 0]
    spoiled = replace(events[place], fields={**events[place].fields, **changes})
    return [*events[:place], spoiled, *events[place + 1 :]]


SPOILED: list[tuple[str, Callable[[list[Event]], list[Event]]]] = [
    (
        "all survivors get the same error",
        lambda e: [event for event in e if (event.kind, event.peer) != ("failed", "c")],
    ),
    (
        "all survivors get the same error",
        lambda e: spoil(e, "failed", "c", {"error": "OperationTimeoutError"}),
    ),
    (
        "it names the lost peer and the running all-reduce",
        lambda e: spoil(e, "failed", "a", {"message": "peer 0b lost"}),
    ),
    (
        "it names the lost peer and the running all-reduce",
        lambda e: spoil(e, "failed", "a", {"message": "a peer lost in (diloco, #2)"}),
    ),
    (
        "the interrupted tensor is as it was, bit for bit",
        lambda e: spoil(e, "failed", "c", {"untouched": False}),
    ),
    (
        "the survivors repeat it without the lost peer",
        lambda e: spoil(e, "met", "a", {"world_size": 3}),
    ),
    ("the newcomer gets the others' state", lambda e: spoil(e, "started", "d", {"hash": "h9"})),
    (
        "the join holds the others up for less than 1 s",
        lambda e: [spoil_join(event, {"topology_s": 1.5}) for event in e],
    ),
    ("all are three again", lambda e: [spoil_join(event, {"world_size": 4}) for event in e]),
    (
        "no operation fails by it",
        lambda e: [*e, replace(e[-1], kind="failed", fields=failed_after_the_join())],
    ),
    (
        "the loss on text never seen is lower",
        lambda e: spoil(e, "validated", "d", {"loss": 5.1}, last=True),
    ),
    ("all peers hold the same hash", lambda e: spoil(e, "met", "d", {"hash": "h3"}, last=True)),
    ("and the same bytes, by SHA-256", lambda e: spoil(e, "done", "a", {"digest": "t"})),
    ("a newcomer is admitted", lambda e: [event for event in e if not is_join(event)]),
    (
        "a peer is killed and the others go on",
        lambda e: [event for event in e if event.kind != "killed"],
    ),
]


def is_join(event: Event) -> bool:
    return event.kind == "met" and event["joined"] > 0


def spoil_join(event: Event, changes: dict[str, object]) -> Event:
    return replace(event, fields={**event.fields, **changes}) if is_join(event) else event


def failed_after_the_join() -> dict[str, object]:
    failure = {"step": JOINED_AT + 1, "attempt": 1, "untouched": True}
    return {**failure, "error": "PeerLostError", "message": "peer d lost in (diloco, #7)"}


@pytest.mark.parametrize(("name", "spoiling"), SPOILED, ids=[name for name, _ in SPOILED])
def test_a_broken_promise_is_noticed(
    name: str, spoiling: Callable[[list[Event]], list[Event]]
) -> None:
    assert failures(spoiling(good_events())) == [name]


def test_costs_are_counted_from_the_end_of_the_victim_to_the_last_survivor() -> None:
    costs = costs_of(told(good_events()), SHORT)
    assert costs.noticed == pytest.approx(0.11)
    assert costs.recovered == pytest.approx(0.21)
    assert (costs.join_call, costs.join_sync) == (0.1, 0.2)
    assert costs.ordinary_meeting == pytest.approx(0.03)
    assert costs.newcomer == pytest.approx(1.0)


def test_a_story_counts_the_steps_of_the_living() -> None:
    events = good_events()
    story = told(events)
    assert story.revision == 12
    assert [peer.name for peer in story.living] == ["a", "c", "d"]
    assert story.peers["b"].state == "killed"
    until_retry = events[: next(i for i, e in enumerate(events) if e.kind == "committed") + 1]
    assert told(until_retry).recovered_at(KILL) is None, "c has not committed yet"
    assert story.recovered_at(KILL) == pytest.approx(10.21)


def test_lines_that_are_no_reports_are_passed_over() -> None:
    line = '{"kind": "inner", "at": 1.5, "loss": 2.0}'
    assert parse("a", line) == Event("a", "inner", 1.5, {"loss": 2.0})
    for other in ("", "hello", "3", '{"at": 1}', '{"kind": "inner", "at": "soon"}', "[]"):
        assert parse("a", other) is None


def test_the_narration_tells_of_kill_retry_and_join() -> None:
    story, lines = Story(), []
    for event in good_events():
        story.add(event)
        lines.append(narrate(event, story, SHORT))
    text = "\n".join(line for line in lines if line)
    assert "b (pid 2) is killed with SIGKILL in the middle of the all-reduce" in text
    assert text.count("repeated without b: committed 210 ms after its end") == 1
    assert "c gets PeerLostError: peer 0b lost in (diloco, #2) (tensor untouched)" in text
    assert "a: 1 joined, world size 3 (100 ms)" in text


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    from pccl_backend.demo.picture import draw

    events = good_events()
    for peer, begins, ends in (("a", 1, 20), ("b", 1, 10), ("c", 1, 20), ("d", 15, 20)):
        for at in range(begins, ends):
            events.append(Event(peer, "inner", float(at), {"step": at, "loss": 5.0 - at / 10}))
    path = tmp_path / "picture.png"
    draw(told(events), costs_of(told(events), SHORT), SHORT, path)
    assert path.read_bytes().startswith(PNG_BEGINS)


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
    # The symbol says which block it is from: 20 blocks, of which the last is held out.
    blocks = b"".join(bytes([ord("a") + i]) * 2048 for i in range(20))
    text = Text(blocks, context=8)
    trained, _ = next(text.batches(2000, seed=1))
    held_out, _ = text.validation(50)
    assert len(trained.unique()) == 19
    assert held_out.unique().tolist() == [ord("a") + 19 - 32 + 1]


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


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool], *, timeout_s: float) -> bool:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


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
        assert wait_until(
            lambda: heard.extend(child.read_lines() or []) or len(heard) == 2, timeout_s=10
        )
        assert heard == ["one", "two"]
        assert child.exit_code is None
        ended_at = child.kill()
        assert ended_at <= time.monotonic()
        assert child.exit_code == -signal.SIGKILL
        assert child.last_words() == "oh"
        assert child.read_lines() is None
        child.tell("three")  # a child that is gone is not told


def test_children_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from pccl_backend.demo.child import Children\n"
        f"with Children(Path({str(tmp_path)!r})) as children:\n"
        f"    print(children.start('x', {SLEEPER!r}).pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
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
    assert "needs rich: pip install 'pccl[demo]'" in capsys.readouterr().err


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
    with subprocess.Popen(
        demo_command(tmp_path / "demo.png"),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in "abc"]
        pids = children_of(running.pid)
        assert len(pids) == 4, f"master and three peers, not {pids}: {lines}"
        running.send_signal(number)
        output, _ = running.communicate(timeout=20)
        assert running.returncode == 130, output
    assert "interrupted" in output
    assert not any(map(is_running, pids))
