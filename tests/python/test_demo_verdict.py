"""The demo's verdict on hand-written event lists: every promise, once kept and once broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pccl_backend.demo import command
from pccl_backend.demo.narrate import narrate
from pccl_backend.demo.plot import DemoError
from pccl_backend.demo.settings import SHORT
from pccl_backend.demo.story import Event, Story, parse
from pccl_backend.demo.verdict import check_story, costs_of

PNG_BEGINS = b"\x89PNG\r\n\x1a\n"
KILL = SHORT.kill_step
JOINED_AT = 6


def good_events() -> list[Event]:
    """Return a minimal run without a fault: a, b and c, then d in place of b."""
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
        failure: dict[str, object] = {
            "error": "PeerLostError",
            "message": "peer 0b lost in (diloco, #2)",
        }
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
    """Return the events with the first (or last) event of that kind and peer changed."""
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


def test_a_joint_call_costs_what_it_took_the_last_member_to_make_it() -> None:
    """The others also wait for that member's inner steps."""
    events = spoil(good_events(), "met", "a", {"topology_s": 0.5}, last=True)
    joins = [i for i, event in enumerate(events) if is_join(event) and event.peer == "a"]
    events[joins[0]] = spoil_join(events[joins[0]], {"topology_s": 2.5})
    assert failures(events) == []
    costs = costs_of(told(events), SHORT)
    assert costs.join_call == 0.1
    assert costs.ordinary_meeting == pytest.approx(0.03)


def test_what_is_hidden_is_counted() -> None:
    events = [
        Event("a", "posted", 1.0, {"step": 1}),
        Event("a", "inner", 2.0, {"step": 1, "loss": 5.0, "began": 0.5}),
        Event("a", "inner", 3.5, {"step": 1, "loss": 5.0, "began": 2.5}),
        Event("a", "committed", 3.0, {"step": 1}),
        Event("a", "posted", 4.0, {"step": 2}),
        Event("a", "failed", 5.0, {"step": 2}),
        Event("a", "killed", 6.0, {}),
    ]
    peer = told(events).peers["a"]
    assert peer.computing == [(0.5, 2.0), (2.5, 3.5)]
    assert peer.travelling == [(1.0, 3.0), (4.0, 5.0)]
    assert peer.hidden_s == pytest.approx(1.5)


def test_spans_that_nearly_touch_are_drawn_as_one() -> None:
    from pccl_backend.demo.picture import joined

    assert joined([(2.0, 3.0), (0.0, 1.0), (1.01, 1.5)]) == [(0.0, 1.5), (2.0, 3.0)]


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


def losses() -> list[Event]:
    return [
        Event(peer, "inner", float(at), {"step": at, "loss": 5.0 - at / 10, "began": at - 0.5})
        for peer, begins, ends in (("a", 1, 20), ("b", 1, 10), ("c", 1, 20), ("d", 15, 20))
        for at in range(begins, ends)
    ]


@pytest.mark.parametrize("goes_well", [True, False])
def test_the_exit_code_is_the_verdict(
    goes_well: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = [*losses(), *good_events()]
    if not goes_well:
        events = spoil(events, "done", "a", {"digest": "t"})
    monkeypatch.setattr(command, "_play", lambda *_: told(events))
    monkeypatch.setattr(command, "_end_orderly_on_signals", lambda: None)
    path = tmp_path / "picture.png"
    assert command.main(["--short", "--picture", str(path)]) == (0 if goes_well else 1)
    printed = capsys.readouterr().out
    assert ("All checks passed" in printed) == goes_well
    assert ("CHECKS FAILED" in printed) != goes_well
    assert path.read_bytes().startswith(PNG_BEGINS)


def test_a_demo_that_cannot_go_on_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(*_: object) -> Story:
        raise DemoError("a (pid 7) ended before the demo did")

    monkeypatch.setattr(command, "_play", play)
    monkeypatch.setattr(command, "_end_orderly_on_signals", lambda: None)
    assert command.main(["--short"]) == 1
    assert "a (pid 7) ended before the demo did" in capsys.readouterr().out
