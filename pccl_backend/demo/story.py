"""Collects the reports of all peers and draws conclusions. Pure: no process, clock or terminal.

`Story.add` takes events in the order of their arrival; all other members only read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Event", "PeerStory", "Story", "parse"]


@dataclass(frozen=True)
class Event:
    """A report of a peer (see `peer`) or an act of the orchestrator: `spawned`, `killed`, `told`.

    Attributes:
        peer: name of the peer.
        kind: kind of event.
        at: time, by the machine's monotonic clock.
        fields: all other fields, by name.
    """

    peer: str
    kind: str
    at: float
    fields: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def parse(peer: str, line: str) -> Event | None:
    """Return the event in a line of a peer's output, or None if the line is no event."""
    try:
        fields = json.loads(line)
        return Event(peer, fields.pop("kind"), float(fields.pop("at")), fields)
    except (ValueError, KeyError, AttributeError, TypeError):
        return None


@dataclass
class PeerStory:
    """The present knowledge about one peer. `state` is a word or two for the display.

    `computing` and `travelling` are spans (begin, end) of its inner steps and of its all-reduces.
    """

    name: str
    state: str = "starting"
    pid: int = 0
    parameters: int = 0
    step: int = 0
    revision: int = 0
    world_size: int = 0
    hash: str = ""
    digest: str = ""
    losses: list[tuple[float, float]] = field(default_factory=list)  # (time, loss)
    validated: dict[int, float] = field(default_factory=dict)  # revision -> loss
    computing: list[tuple[float, float]] = field(default_factory=list)
    travelling: list[tuple[float, float]] = field(default_factory=list)
    posted_at: float | None = None  # the all-reduce that runs now

    @property
    def hidden_s(self) -> float:
        """Seconds of computing during an all-reduce."""
        return sum(
            max(0.0, min(end, until) - max(begin, since))
            for begin, end in self.travelling
            for since, until in self.computing
        )

    def see(self, event: Event) -> None:
        """Take note of its next event."""
        if self.state != "killed":
            self.state = STATES.get(event.kind, self.state)
        for name in ("pid", "parameters", "step", "revision", "world_size", "hash", "digest"):
            if name in event.fields:
                setattr(self, name, event[name])
        match event.kind:
            case "inner":
                self.losses.append((event.at, event["loss"]))
                self.computing.append((event["began"], event.at))
            case "validated":
                self.validated[event["revision"]] = event["loss"]
            case "posted":
                self.posted_at = event.at
            case "committed" | "failed" | "killed" if self.posted_at is not None:
                self.travelling.append((self.posted_at, event.at))
                self.posted_at = None


STATES = {
    "spawned": "starting",
    "ready": "joining",
    "admitted": "joining",
    "started": "training",
    "inner": "training",
    "posted": "all-reduce",
    "failed": "recovering",
    "committed": "outer step",
    "met": "training",
    "done": "done",
    "killed": "killed",
}


class Story:
    """All events so far, and the conclusions from them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.peers: dict[str, PeerStory] = {}
        self._by_kind: dict[str, list[Event]] = defaultdict(list)

    def add(self, event: Event) -> None:
        """Add the next event."""
        self.events.append(event)
        self._by_kind[event.kind].append(event)
        self.peers.setdefault(event.peer, PeerStory(event.peer)).see(event)

    def of(self, kind: str, *, peer: str | None = None, step: int | None = None) -> list[Event]:
        """Return the events of a kind, filtered by peer and outer step if given."""
        return [
            event
            for event in self._by_kind[kind]
            if peer in (None, event.peer) and (step is None or event.fields.get("step") == step)
        ]

    @property
    def killed(self) -> Event | None:
        """The end of the victim."""
        events = self.of("killed")
        return events[0] if events else None

    @property
    def living(self) -> list[PeerStory]:
        """The peers that were not killed."""
        return [peer for peer in self.peers.values() if peer.state != "killed"]

    @property
    def revision(self) -> int:
        """The largest number of outer steps that a living peer has done."""
        return max((peer.revision for peer in self.living), default=0)

    @property
    def admissions(self) -> list[Event]:
        """The old members' `met` events with a newcomer; those of the founding do not count."""
        return [event for event in self.of("met") if event["joined"] and event["revision"] > 0]

    @property
    def survivors(self) -> set[str]:
        """The peers that were in the run at the kill, without the victim."""
        if self.killed is None:
            return set()
        members = {event.peer for event in self.of("started") if event.at < self.killed.at}
        return members - {self.killed.peer}

    def recovered_at(self, step: int) -> float | None:
        """Return the time of the last survivor's commit of a step; None while one is missing."""
        committed = {event.peer: event.at for event in self.of("committed", step=step)}
        if not self.survivors or not self.survivors <= committed.keys():
            return None
        return max(committed[name] for name in self.survivors)
