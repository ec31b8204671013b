"""`pccl demo`: options, signals, the summary and the exit code."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from pccl_backend.demo.child import Children
from pccl_backend.demo.plot import DemoError, Plot
from pccl_backend.demo.settings import FULL, SHORT, Settings
from pccl_backend.demo.story import Story
from pccl_backend.demo.verdict import Check, Costs, check_story, costs_of
from pccl_backend.demo.view import make_view

__all__ = ["main"]

TAG = "diloco"
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if every check passed, 1 if not, 130 after Ctrl-C."""
    options = _parse(arguments)
    settings = SHORT if options.short else FULL
    console = Console()
    began_at = time.monotonic()
    _end_orderly_on_signals()
    try:
        with tempfile.TemporaryDirectory(prefix="pccl-demo-") as folder:
            story = _play(settings, console, Path(folder))
    except DemoError as error:
        console.print(f"pccl demo: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("pccl demo: interrupted; all its processes are ended")
        return INTERRUPTED
    checks = check_story(story, settings, tag=TAG)
    _print_checks(console, checks)
    passed = all(check.passed for check in checks)
    if story.admissions and story.killed:
        from pccl_backend.demo.picture import draw  # slow to import, so not before the training

        costs = costs_of(story, settings)
        draw(story, costs, settings, options.picture)
        _print_summary(console, story, costs, options.picture)
    took = time.monotonic() - began_at
    console.print(f"{'All checks passed' if passed else 'CHECKS FAILED'}, in {took:.0f} s.")
    return 0 if passed else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pccl demo",
        description="Train a small GPT with DiLoCo on three peers of this machine, which compute "
        "while their averages travel; kill one in the middle of an all-reduce, let another join, "
        "and check that nothing was lost.",
    )
    parser.add_argument(
        "--short", action="store_true", help="a smaller model and fewer steps: half a minute"
    )
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path("demo.png"),
        metavar="FILE",
        help="where the picture goes (default: %(default)s)",
    )
    return parser.parse_args(arguments)


def _play(settings: Settings, console: Console, folder: Path) -> Story:
    with make_view(console, settings) as view, Children(folder) as children:
        return Plot(settings, children, view.show).run()


def _end_orderly_on_signals() -> None:
    """Let Ctrl-C, SIGTERM or SIGHUP raise once; later signals do not disturb the cleanup."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for each in SIGNALS:
        signal.signal(each, interrupt)


def _print_checks(console: Console, checks: list[Check]) -> None:
    table = Table(title="Was every promise kept?", title_justify="left", show_header=False)
    table.add_column("passed")
    table.add_column("check")
    table.add_column("seen", overflow="fold")
    for check in checks:
        mark = "[green]yes[/green]" if check.passed else "[bold red]NO[/bold red]"
        table.add_row(mark, check.name, check.seen)
    console.print(table)


def _print_summary(console: Console, story: Story, costs: Costs, picture: Path) -> None:
    before = max(peer.validated.get(0, 0.0) for peer in story.peers.values())
    after = max(peer.validated[max(peer.validated)] for peer in story.living if peer.validated)
    lines = [
        f"loss on text held out: {before:.3f} before, {after:.3f} after {story.revision} steps",
        f"the loss of a peer cost {costs.recovered:.3f} s: error on all survivors after "
        f"{costs.noticed:.3f} s, repeated all-reduce committed after {costs.recovered:.3f} s",
        f"the join cost the others {costs.join_call + costs.join_sync:.3f} s: "
        f"{costs.join_call:.3f} s update_topology, {costs.join_sync:.3f} s sync_shared_state "
        f"(a meeting without a join: {costs.ordinary_meeting:.3f} s)",
        f"while averages travelled, the peers computed for {_hidden(story):.0%} of the time",
        f"the newcomer had its state {costs.newcomer:.3f} s after asking to join",
        *(f"peer {peer.name}: revision {peer.revision}, hash {peer.hash}" for peer in story.living),
        f"picture: {picture}",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def _hidden(story: Story) -> float:
    """Return the fraction of the all-reduces' time during which their peers computed."""
    peers = story.peers.values()
    travelled = sum(end - begin for peer in peers for begin, end in peer.travelling)
    return sum(peer.hidden_s for peer in peers) / max(travelled, 1e-9)


if __name__ == "__main__":
    sys.exit(main())
