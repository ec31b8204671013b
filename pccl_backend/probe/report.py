"""The report of a probe, as lines of text. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from pccl_backend.probe.advice import (
    KNEE_SHARE,
    MeasuredPath,
    Row,
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


def summary(measured: MeasuredPath) -> list[str]:
    """Return the knee and the advice."""
    knee, best = knee_of(measured.rows), measured.best
    share = f"{KNEE_SHARE * 100:.0f} %"
    both = "both directions at once" if best.both_there is not None else "one direction at a time"
    lines = [
        f"Knee: {streams_text(knee)}, the fewest that carry {share} of the best "
        f"({mbit(best.carried)} Mbit/s with {best.streams}; the slower direction, {both})."
    ]
    lines += [text for text in (_lanes_opened(measured, knee), _congestion_used(measured)) if text]
    advice = advise(measured)
    if not advice:
        return [*lines, "Nothing that is known of the two hosts holds them up."]
    lines.append("What may help:")
    for text in advice:
        lines += _item(text)
    return lines


def _lanes_opened(measured: MeasuredPath, knee: Row) -> str | None:
    if measured.lanes_asked:
        return f"pccl opens {measured.lanes_asked} to each ring neighbour, as PCCL_LANES says."
    opens = (
        f"opens {measured.lanes} and uses as many as pay" if measured.is_wan else "opens one here"
    )
    if knee.streams <= measured.lanes:
        return f"PCCL_LANES needs no setting: pccl {opens}."
    if measured.is_wan:
        return None  # the advice covers this case
    usual = measured.usual
    return f"By itself pccl {opens}; {streams_text(usual)} carried {mbit(usual.carried)} Mbit/s."


def _congestion_used(measured: MeasuredPath) -> str | None:
    if measured.congestion:
        return f"The streams used {measured.congestion}, as PCCL_TCP_CONGESTION says."
    if not measured.is_wan and "bbr" in (measured.here.congestion, measured.there.congestion):
        return "On a local path the streams did not use bbr, which paces; pccl does not either."
    return None


def model_lines(measured: MeasuredPath, parameters: float, bytes_each: float) -> list[str]:
    """Return the time that a model of this size takes."""
    size, row = parameters * bytes_each, measured.usual
    two = seconds_per_all_reduce(size, row.carried, 2)
    many = seconds_per_all_reduce(size, row.carried, None)
    both = (
        "both directions at once"
        if row.both_there is not None
        else "one direction, perhaps less in both"
    )
    return [
        f"A model of {parameters:,.0f} parameters, {bytes_each:g} bytes each: S = "
        f"{size / 1e9:,.4g} GB. An all-reduce takes 2(N-1)/N * S / rate, with what "
        f"{streams_text(row)} carried ({mbit(row.carried)} Mbit/s, {both}):",
        f"    world 2: {two:,.3g} s; N large: {many:,.3g} s, if all paths in the ring are like "
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
