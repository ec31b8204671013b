"""Turns events into sentences: one line for each event worth mentioning. Pure."""

from __future__ import annotations

from pccl_backend.demo.settings import Settings
from pccl_backend.demo.story import Event, Story

__all__ = ["narrate"]


def narrate(event: Event, story: Story, settings: Settings) -> str | None:
    """Return a sentence about the latest event of the story, or None for a routine event."""
    teller = _TELLERS.get(event.kind)
    return teller(event, story, settings) if teller else None


def _spawned(event: Event, story: Story, settings: Settings) -> str | None:
    return f"{event.peer} starts (pid {event['pid']})"


def _admitted(event: Event, story: Story, settings: Settings) -> str | None:
    place = f"rank {event['rank']} of {event['world_size']}"
    return f"{event.peer} is admitted as peer {event['id']}, {place}"


def _started(event: Event, story: Story, settings: Settings) -> str | None:
    if not event["revision"]:
        return None
    received = event["received_bytes"] / 1e6
    return (
        f"{event.peer} has the state of revision {event['revision']} "
        f"({received:.1f} MB, hash {event['hash']})"
    )


def _killed(event: Event, story: Story, settings: Settings) -> str | None:
    return (
        f"{event.peer} (pid {event['pid']}) is killed with SIGKILL "
        f"in the middle of the all-reduce of step {event['step']}"
    )


def _failed(event: Event, story: Story, settings: Settings) -> str | None:
    tensor = "untouched" if event["untouched"] else "CHANGED"
    return f"{event.peer} gets {event['error']}: {event['message']} (tensor {tensor})"


def _committed(event: Event, story: Story, settings: Settings) -> str | None:
    if story.killed is None or event["step"] != settings.kill_step:
        return None
    if story.recovered_at(settings.kill_step) != event.at:
        return None
    cost = (event.at - story.killed.at) * 1000
    return f"repeated without {story.killed.peer}: committed {cost:.0f} ms after its end"


def _met(event: Event, story: Story, settings: Settings) -> str | None:
    if not event["joined"]:
        return None
    cost = event["topology_s"] * 1000
    return (
        f"{event.peer}: {event['joined']} joined, world size {event['world_size']} ({cost:.0f} ms)"
    )


def _validated(event: Event, story: Story, settings: Settings) -> str | None:
    return f"{event.peer} measures {event['loss']:.3f} nats per character on text held out"


_TELLERS = {
    "spawned": _spawned,
    "admitted": _admitted,
    "started": _started,
    "killed": _killed,
    "failed": _failed,
    "committed": _committed,
    "met": _met,
    "validated": _validated,
}
