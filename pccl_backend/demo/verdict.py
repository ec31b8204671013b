"""Checks whether every promise was kept: from the story to a list of checks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from pccl_backend.demo.settings import Settings
from pccl_backend.demo.story import Event, Story

__all__ = ["Check", "Costs", "check_story", "costs_of"]

# Maximum duration of the joint call in which the members admit a newcomer.
JOIN_SECONDS_MAX = 1.0


@dataclass(frozen=True)
class Check:
    """One promise: whether it was kept, and the observed facts."""

    name: str
    passed: bool
    seen: str


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Cost of the changes to the remaining peers, in seconds.

    Attributes:
        noticed: from the end of the killed process to the last survivor's error.
        recovered: from the same moment to the last survivor's commit of the repeated all-reduce.
        join_call: duration of the joint call (update_topology) that admitted the newcomer, at the
            member that made it last. The others also waited for the inner steps of this member.
        join_sync: longest duration of the sync_shared_state after it, in which the newcomer
            received its state.
        ordinary_meeting: duration of the two calls together in a meeting without a change, at the
            member that made them last; the median of such meetings.
        newcomer: from the order to join until the newcomer has the state.
    """

    noticed: float
    recovered: float
    join_call: float
    join_sync: float
    ordinary_meeting: float
    newcomer: float


def costs_of(story: Story, settings: Settings) -> Costs:
    """Return the costs of a finished story."""
    killed = story.killed
    recovered_at = story.recovered_at(settings.kill_step) if killed else None
    assert killed is not None
    assert recovered_at is not None
    assert story.admissions
    newcomer = newcomer_of(story)
    quiet: dict[int, float] = {}
    for event in story.of("met"):
        if not event["joined"] + event["left"]:
            seconds = event["topology_s"] + event["sync_s"]
            quiet[event["revision"]] = min(seconds, quiet.get(event["revision"], seconds))
    return Costs(
        noticed=max((e.at for e in story.of("failed")), default=killed.at) - killed.at,
        recovered=recovered_at - killed.at,
        join_call=join_call_of(story),
        join_sync=max(event["sync_s"] for event in story.admissions),
        ordinary_meeting=median(quiet.values()) if quiet else 0.0,
        newcomer=newcomer.at - story.of("told", peer=newcomer.peer)[-1].at,
    )


def join_call_of(story: Story) -> float:
    """Return the seconds of the admitting joint call, at the last member that made it."""
    return min(float(event["topology_s"]) for event in story.admissions)


def newcomer_of(story: Story) -> Event:
    """Return the `started` event of the peer that joined later."""
    return next(event for event in story.of("started") if event["revision"] > 0)


def check_story(story: Story, settings: Settings, *, tag: str) -> list[Check]:
    """Return every check of the demo, in the order of the events."""
    if story.killed is None or story.recovered_at(settings.kill_step) is None:
        return [Check("a peer is killed and the others go on", False, "they did not")]
    if not story.admissions:
        return [Check("a newcomer is admitted", False, "none was")]
    return [
        *_check_loss(story, settings, tag=tag),
        *_check_join(story),
        *_check_end(story),
    ]


def _check_loss(story: Story, settings: Settings, *, tag: str) -> list[Check]:
    failed = story.of("failed")
    posted = {event.peer for event in story.of("posted", step=settings.kill_step)}
    at_kill = [event for event in failed if event["step"] == settings.kill_step]
    kinds = sorted({event["error"] for event in at_kill})
    lost = story.of("admitted", peer=story.killed.peer)[0]["id"] if story.killed else ""
    messages = [event["message"] for event in at_kill if event.peer in posted]
    sizes = sorted({e["world_size"] for e in story.of("met") if e["left"]})
    touched = [event.peer for event in failed if not event["untouched"]]
    return [
        Check(
            "all survivors get the same error",
            kinds == ["PeerLostError"] and {event.peer for event in at_kill} == story.survivors,
            ", ".join(f"{event.peer}: {event['error']}" for event in at_kill) or "nobody got one",
        ),
        Check(
            "it names the lost peer and the running all-reduce",
            bool(messages) and all(lost in text and tag in text for text in messages),
            messages[0] if messages else "nobody that ran it got an error",
        ),
        Check(
            "the interrupted tensor is as it was, bit for bit",
            not touched,
            f"changed on {', '.join(touched)}" if touched else f"on {len(failed)} survivors",
        ),
        Check(
            "the survivors repeat it without the lost peer",
            sizes == [2],
            f"world size {', '.join(map(str, sizes))}",
        ),
    ]


def _check_join(story: Story) -> list[Check]:
    revision = newcomer_of(story)["revision"]
    hashes = {newcomer_of(story)["hash"], *(event["hash"] for event in story.admissions)}
    call = join_call_of(story)
    later = [event for event in story.of("failed") if event["step"] > revision]
    sizes = {event["world_size"] for event in story.admissions}
    return [
        Check("the newcomer gets the others' state", len(hashes) == 1, ", ".join(sorted(hashes))),
        Check("all are three again", sizes == {3}, f"world size {', '.join(map(str, sizes))}"),
        Check(
            f"the join holds the others up for less than {JOIN_SECONDS_MAX:.0f} s",
            call < JOIN_SECONDS_MAX,
            f"{call * 1000:.0f} ms",
        ),
        Check("no operation fails by it", not later, f"{len(later)} failed"),
    ]


def _check_end(story: Story) -> list[Check]:
    living = story.living
    before = max(peer.validated.get(0, 0.0) for peer in story.peers.values())
    after = [peer.validated[max(peer.validated)] for peer in living if peer.validated]
    hashes, digests = {peer.hash for peer in living}, {peer.digest for peer in living}
    return [
        Check(
            "the loss on text never seen is lower",
            bool(after) and max(after) < before,
            f"{before:.3f} before, {max(after, default=0.0):.3f} after",
        ),
        Check("all peers hold the same hash", len(hashes) == 1, ", ".join(sorted(hashes))),
        Check(
            "and the same bytes, by SHA-256",
            len(digests) == 1 and "" not in digests,
            ", ".join(sorted(digest[:16] for digest in digests)),
        ),
    ]
