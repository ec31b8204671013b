"""The report of a probe, as lines of text. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from pccl_backend.probe.advice import (
    KNEE_SHARE,
    Row,
    Way,
    advise,
    knee_of,
    seconds_per_all_reduce,
    streams_text,
)
from pccl_backend.probe.client import Rate
from pccl_backend.probe.settings import Buffers, HostSettings

__all__ = ["cells", "head", "model_lines", "setting_lines", "summary"]

WIDTH = 100
CELL = 10


def head(both: bool) -> list[str]:
    """Return the head of the table; `both`: with columns for both directions at once."""
    kinds = f"{'':7}" + f"{'one at a time':>{2 * CELL}}"
    names = f"{'streams':7}" + f"{'there':>{CELL}}{'back':>{CELL}}"
    if both:
        kinds += f"{'both at once':>{2 * CELL}}"
        names += f"{'there':>{CELL}}{'back':>{CELL}}"
    return [kinds + "   Mbit/s", names]


def cells(rate: Rate, *, last: bool) -> str:
    """Return the text that a new figure adds to the table; `last`: it ends its line."""
    text = f"{rate.streams:7}" if rate.direction == "there" else ""
    figures = [value for value in (rate.there, rate.back) if value is not None]
    text += "".join(f"{mbit(value):>{CELL}}" for value in figures)
    return text + ("\n" if last else "")


def mbit(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def summary(way: Way) -> list[str]:
    """Return the knee and the advice."""
    knee, best = knee_of(way.rows), way.best
    share = f"{KNEE_SHARE * 100:.0f} %"
    both = "both ways at once" if best.both_there is not None else "one way at a time"
    lines = [
        f"Knee: {streams_text(knee)}, the fewest that carry {share} of the best "
        f"({mbit(best.carried)} Mbit/s with {best.streams}; the slower direction, {both})."
    ]
    lines += [text for text in (_lanes_opened(way, knee), _congestion_used(way)) if text]
    advice = advise(way)
    if not advice:
        return [*lines, "Nothing that is known of the two hosts holds them up."]
    lines.append("What may help:")
    for text in advice:
        lines += _item(text)
    return lines


def _lanes_opened(way: Way, knee: Row) -> str | None:
    if way.lanes_asked:
        return f"PCCL_LANES is {way.lanes_asked}: so many pccl opens to each neighbour in the ring."
    opens = f"opens {way.lanes} and uses as many as pay" if way.is_far else "opens one here"
    if knee.streams <= way.lanes:
        return f"PCCL_LANES needs no setting: pccl {opens}."
    if way.is_far:
        return None  # the advice covers this case
    usual = way.usual
    return f"By itself pccl {opens}; {streams_text(usual)} carried {mbit(usual.carried)} Mbit/s."


def _congestion_used(way: Way) -> str | None:
    if way.congestion:
        return f"The streams used {way.congestion}, as PCCL_TCP_CONGESTION says."
    if not way.is_far and "bbr" in (way.here.congestion, way.there.congestion):
        return "On so near a way the streams did not use bbr, which paces; pccl does not either."
    return None


def model_lines(way: Way, parameters: float, bytes_each: float) -> list[str]:
    """Return the time that a model of this size takes."""
    size, row = parameters * bytes_each, way.usual
    two = seconds_per_all_reduce(size, row.carried, 2)
    many = seconds_per_all_reduce(size, row.carried, None)
    both = "both ways at once" if row.both_there is not None else "one way, perhaps less both ways"
    return [
        f"A model of {parameters:,.0f} parameters, {bytes_each:g} bytes each: S = "
        f"{size / 1e9:,.4g} GB. An all-reduce takes 2(N-1)/N * S / rate, with what "
        f"{streams_text(row)} carried ({mbit(row.carried)} Mbit/s, {both}):",
        f"    world 2: {two:,.3g} s; N large: {many:,.3g} s, if all ways in the ring are like "
        "this one",
    ]


def setting_lines(here: HostSettings, there: HostSettings) -> list[str]:
    """Return a table of the two systems' settings."""
    rows = [
        ("", "this host", "the other host"),
        ("congestion control", here.congestion, there.congestion),
        ("  available", " ".join(here.available), " ".join(there.available)),
        ("tcp_wmem", _triple(here.wmem), _triple(there.wmem)),
        ("tcp_rmem", _triple(here.rmem), _triple(there.rmem)),
        (
            "tcp_slow_start_after_idle",
            _switch(here.slow_start_after_idle),
            _switch(there.slow_start_after_idle),
        ),
    ]
    return [f"{name:27}{one or 'unknown':30}{other or 'unknown'}" for name, one, other in rows]


def _triple(buffers: Buffers | None) -> str:
    return f"{buffers.least} {buffers.first} {buffers.most}" if buffers else ""


def _switch(value: bool | None) -> str:
    return "" if value is None else str(int(value))


def _item(text: str) -> Sequence[str]:
    """Return a text as a list item; lines that the user is to type are not wrapped."""
    lines: list[str] = []
    for part in text.split("\n"):
        if part.startswith("    "):
            lines.append(part)
            continue
        begin = "  " if lines else "- "
        wrapped = textwrap.wrap(part.strip(), WIDTH, initial_indent=begin, subsequent_indent="  ")
        lines += wrapped
    return lines
