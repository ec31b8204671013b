"""demo.png: the loss of each peer over time, and the times of its computing and its averages.

The kill and the join are marked in both.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from pccl_backend.demo.settings import Settings
from pccl_backend.demo.story import PeerStory, Story
from pccl_backend.demo.verdict import Costs, newcomer_of

__all__ = ["draw"]

GAP_S = 0.02  # a shorter pause between two inner steps would be invisible
TRAVELS = "#555555"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # Okabe and Ito: safe for colour blindness


def draw(story: Story, costs: Costs, settings: Settings, path: Path) -> None:
    """Draw the picture.

    Args:
        story: a finished story.
        costs: numbers for the labels.
        settings: its inner_steps, one outer step, are the width of the running mean.
        path: the file to write.

    Raises:
        OSError: the file cannot be written.
    """
    begun_at = min(peer.losses[0][0] for peer in story.peers.values() if peer.losses)
    figure, (axes, below) = plt.subplots(
        2, 1, figsize=(10, 7.5), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    try:
        for peer, colour in zip(story.peers.values(), COLOURS, strict=False):
            _draw_peer(axes, peer, colour, begun_at=begun_at, window=settings.inner_steps)
        _mark_changes(axes, story, costs, begun_at=begun_at)
        _draw_spans(below, story, begun_at=begun_at)
        axes.set_ylabel("training loss, nats per character")
        axes.set_title("DiLoCo on three peers: one is killed, another joins")
        axes.grid(alpha=0.25)
        axes.legend(loc="lower left")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=120)
    finally:
        plt.close(figure)


def _draw_peer(axes: Axes, peer: PeerStory, colour: str, *, begun_at: float, window: int) -> None:
    if not peer.losses:
        return
    times = [at - begun_at for at, _ in peer.losses]
    losses = [loss for _, loss in peer.losses]
    smooth = [
        sum(losses[max(0, i - window + 1) : i + 1]) / min(i + 1, window) for i in range(len(losses))
    ]
    axes.plot(times, losses, color=colour, alpha=0.18, linewidth=0.8)
    axes.plot(times, smooth, color=colour, linewidth=1.8, label=f"peer {peer.name}")
    if peer.state == "killed":
        axes.plot(times[-1], smooth[-1], "X", color=colour, markersize=12, markeredgecolor="white")


def _draw_spans(axes: Axes, story: Story, *, begun_at: float) -> None:
    """Draw two bars for each peer: the upper while it computed, the lower during all-reduces."""
    names = list(story.peers)
    for row, (peer, colour) in enumerate(zip(story.peers.values(), COLOURS, strict=False)):
        for place, spans, fill in ((0.1, peer.computing, colour), (0.5, peer.travelling, TRAVELS)):
            bars = [(begin - begun_at, end - begin) for begin, end in joined(spans)]
            axes.broken_barh(bars, (row + place, 0.38), color=fill, linewidth=0)
    for event in (story.killed, newcomer_of(story)):
        assert event is not None
        axes.axvline(event.at - begun_at, color="black", linestyle="--", linewidth=1)
    axes.set_yticks([row + 0.5 for row in range(len(names))], [f"peer {name}" for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("seconds of training")
    axes.set_title("In colour: the peer computes. In grey: an average travels", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans, with spans that nearly touch merged into one."""
    result: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if result and begin - result[-1][1] < GAP_S:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def _mark_changes(axes: Axes, story: Story, costs: Costs, *, begun_at: float) -> None:
    assert story.killed is not None
    newcomer = newcomer_of(story)
    marks = [
        (
            story.killed.at - begun_at,
            f"{story.killed.peer} killed in an all-reduce\n"
            f"repeated without it after {costs.recovered * 1000:.0f} ms",
        ),
        (
            newcomer.at - begun_at,
            f"{newcomer.peer} joins\nthe others' joint call: {costs.join_call * 1000:.0f} ms",
        ),
    ]
    for place, (at, label) in zip((0.97, 0.80), marks, strict=True):
        axes.axvline(at, color="black", linestyle="--", linewidth=1)
        axes.annotate(
            label,
            xy=(at, place),
            xycoords=("data", "axes fraction"),
            xytext=(6, 0),
            textcoords="offset points",
            verticalalignment="top",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 2},
        )
