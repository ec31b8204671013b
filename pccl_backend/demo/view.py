"""The display of the running demo: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pccl_backend.demo.narrate import narrate
from pccl_backend.demo.settings import Settings
from pccl_backend.demo.story import Event, PeerStory, Story

__all__ = ["LiveView", "PlainView", "View", "make_view"]

LINES_MAX, LINES_MIN = 20, 3
ROWS_AROUND = 8  # the table's frame, the bar, and some free space
FRAME_S = 0.1
BARS = "▁▂▃▄▅▆▇█"
BARS_SHOWN = 14
STYLES = {"killed": "bold red", "recovering": "yellow", "all-reduce": "cyan", "done": "green"}
# Outer steps between two progress lines of the plain view.
PLAIN_STEPS = 4


class View(Protocol):
    """Shows a story as it happens. A context manager, so that the terminal is restored."""

    def __enter__(self) -> View: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, story: Story, event: Event | None) -> None:
        """Show the next event, or only the passing of time if there is none."""


def make_view(console: Console, settings: Settings) -> View:
    """Return the view that fits the console."""
    if console.is_terminal:
        return LiveView(console, settings)
    return PlainView(console, settings)


class PlainView:
    """One line for each event worth mentioning, and one for every few steps."""

    def __init__(self, console: Console, settings: Settings) -> None:
        self._console = console
        self._settings = settings
        self._begun_at = time.monotonic()
        self._told_revision = 0

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, story: Story, event: Event | None) -> None:
        if event is None:
            return
        if line := narrate(event, story, self._settings):
            self._print(event.at, line)
        if story.revision >= self._told_revision + PLAIN_STEPS:
            self._told_revision = story.revision
            losses = [f"{p.name} {p.losses[-1][1]:.2f}" for p in story.living if p.losses]
            self._print(event.at, f"step {story.revision}: loss {', '.join(losses)}")

    def _print(self, at: float, line: str) -> None:
        text = f"{at - self._begun_at:6.1f} s  {line}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """A table of the peers, the latest events, and a progress bar."""

    def __init__(self, console: Console, settings: Settings) -> None:
        self._settings = settings
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._begun_at = time.monotonic()
        self._drawn_at = 0.0
        self._story = Story()
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.update(self._draw(self._story))
        self._live.__exit__(None, None, None)

    def show(self, story: Story, event: Event | None) -> None:
        now = time.monotonic()
        self._story = story
        if event and (line := narrate(event, story, self._settings)):
            self._lines.append(f"[dim]{event.at - self._begun_at:6.1f} s[/dim]  {escape(line)}")
            self._drawn_at = 0.0
        if now - self._drawn_at >= FRAME_S:
            self._drawn_at = now
            self._live.update(self._draw(story), refresh=True)

    def _draw(self, story: Story) -> Group:
        table = Table(expand=False)
        for heading in ("peer", "pid", "state", "world", "step", "loss", "", "hash"):
            table.add_column(heading)
        for peer in story.peers.values():
            table.add_row(*_row(peer))
        total = max(self._settings.outer_steps, story.revision)
        bar = ProgressBar(total=total, completed=story.revision, width=60)
        room = max(LINES_MIN, self._console.height - len(story.peers) - ROWS_AROUND)
        lines = [Text.from_markup(line, overflow="ellipsis") for line in list(self._lines)[-room:]]
        for line in lines:
            line.no_wrap = True
        return Group(table, bar, Text(), *lines)


def _row(peer: PeerStory) -> list[str]:
    style = STYLES.get(peer.state, "white")
    return [
        f"[bold]{peer.name}[/bold]",
        str(peer.pid),
        f"[{style}]{peer.state:<10}[/{style}]",
        str(peer.world_size or ""),
        str(peer.step or ""),
        f"{peer.losses[-1][1]:.3f}" if peer.losses else "",
        _sparkline([loss for _, loss in peer.losses]),
        peer.hash[:8],
    ]


def _sparkline(values: list[float]) -> str:
    """Return the values as a row of bars, high for high, averaged down to the available width."""
    if not values:
        return " " * BARS_SHOWN
    parts = min(BARS_SHOWN, len(values))
    edges = [len(values) * i // parts for i in range(parts + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in itertools.pairwise(edges)]
    low, span = min(means), max(max(means) - min(means), 1e-9)
    top = len(BARS) - 1
    return "".join(BARS[round((mean - low) / span * top)] for mean in means).ljust(BARS_SHOWN)
