"""Options common to the scripts: numbers of rounds, of ranks, of MiB."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def at_least_one(text: str) -> int:
    """Return a number of rounds, ranks or MiB, at least 1.

    Raises:
        argparse.ArgumentTypeError: the text is no such number.
    """
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 on")
    return int(text)


def add_counts(
    parser: argparse.ArgumentParser, name: str, default: Sequence[int], help_: str
) -> None:
    """Add an option that takes several numbers."""
    shown = f"{help_} (default {' '.join(map(str, default))})"
    parser.add_argument(name, type=at_least_one, nargs="+", default=list(default), help=shown)


def add_worlds(parser: argparse.ArgumentParser, name: str, default: Sequence[int]) -> None:
    """Add an option for the world sizes."""

    def world(text: str) -> int:
        if at_least_one(text) < 2:
            raise argparse.ArgumentTypeError(f"{text} must be 2 or more: one rank reduces nothing")
        return int(text)

    shown = f"numbers of ranks (default {' '.join(map(str, default))})"
    parser.add_argument(name, type=world, nargs="+", default=list(default), help=shown)


def add_only(
    parser: argparse.ArgumentParser, name: str, contenders: Sequence[str], help_: str
) -> None:
    """Add an option that names the contenders to measure, as `only`."""
    parser.add_argument(
        name, dest="only", nargs="+", choices=contenders, default=contenders, help=help_
    )


def parse_with(parser: argparse.ArgumentParser, reference: str) -> argparse.Namespace:
    """Return the options, which name the contender that the others are compared with."""
    options = parser.parse_args()
    if reference not in options.only:
        parser.error(f'--only: "{reference}" is needed, since the others are compared with it')
    return options
