"""What the reports of all peers add up to. Pure: no process, clock or terminal in here.

`Story.add` takes events in the order in which they arrived; everything else asks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Event", "PeerStory", "Story", "parse"]


@dataclass(frozen=True)
class Event:
    """Something a peer reported (see `peer`) or the orchestrator did: `spawned`, `killed`, `told`.

    Attributes:
        peer: who.
        kind: what.
        at: when, by the machine's monotonic clock.
        fields: the rest, by name.
    """

    peer: str
    kind: str
    at: float
    fields: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def parse(peer: str, line: str) -> Event | None:
    """Return the event of a line of a peer's output, or None when it is none of ours."""
    try:
        fields = json.loads(line)
        return Event(peer, fields.pop("kind"), float(fields.pop("at")), fields)
    except (ValueError, KeyError, AttributeError, TypeError):
        return None


@dataclass
class PeerStory:
    """What is known of one peer now. `state` is for people: a word or two."""

    name: str
    state: str = "starting"
    pid: int = 0
    parameters: int = 0
    step: int = 0
    revision: int = 0
    world_size: int = 0
    hash: str = ""
    digest: str = ""
    losses: list[tuple[float, float]] = field(default_factory=list)  # (when, loss)
    validated: dict[int, float] = field(default_factory=dict)  # revision -> loss


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
    """All events so far, and what follows from them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.peers: dict[str, PeerStory] = {}
        self._by_kind: dict[str, list[Event]] = defaultdict(list)

    def add(self, event: Event) -> None:
        """Take the next event."""
        self.events.append(event)
        self._by_kind[event.kind].append(event)
        peer = self.peers.setdefault(event.peer, PeerStory(event.peer))
        if peer.state != "killed":
            peer.state = STATES.get(event.kind, peer.state)
        for name in ("pid", "parameters", "step", "revision", "world_size", "hash", "digest"):
            if name in event.fields:
                setattr(peer, name, event[name])
        if event.kind == "inner":
            peer.losses.append((event.at, event["loss"]))
        if event.kind == "validated":
            peer.validated[event["revision"]] = event["loss"]

    def of(self, kind: str, *, peer: str | None = None, step: int | None = None) -> list[Event]:
        """Return the events of a kind: of one peer, of one outer step, if given."""
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
        """The peers that nobody killed."""
        return [peer for peer in self.peers.values() if peer.state != "killed"]

    @property
    def revision(self) -> int:
        """The outer steps that some living peer has behind it."""
        return max((peer.revision for peer in self.living), default=0)

    @property
    def admissions(self) -> list[Event]:
        """How the old members met the newcomer: their `met` events, founding left out."""
        return [event for event in self.of("met") if event["joined"] and event["revision"] > 0]

    @property
    def survivors(self) -> set[str]:
        """Who was in the run when the victim was killed, but for the victim."""
        if self.killed is None:
            return set()
        members = {event.peer for event in self.of("started") if event.at < self.killed.at}
        return members - {self.killed.peer}

    def recovered_at(self, step: int) -> float | None:
        """Return when the last survivor had that step's all-reduce, None if one has not yet."""
        committed = {event.peer: event.at for event in self.of("committed", step=step)}
        if not self.survivors or not self.survivors <= committed.keys():
            return None
        return max(committed[name] for name in self.survivors)
