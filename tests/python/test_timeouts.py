"""Timeouts: on every way in, a value that is too large means "for ever", and zero or less is
refused."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import work_timeouts as work
from conftest import MakeWorld
from torch.distributed import BarrierOptions
from world import Master

from pccl_backend import _C

YEAR_S = 365 * 86400.0
FOREVER_S = 10 * YEAR_S


def as_torch_passes(timeout: timedelta) -> float:
    """Return the seconds that arrive in C++, after torch's own conversion."""
    options = BarrierOptions()
    options.timeout = timeout
    return options.timeout.total_seconds()


@pytest.mark.parametrize(
    ("seconds", "understood"),
    [
        (1800.0, 1800.0),
        (0.25, 0.25),
        (1e-6, 0.001),  # whole milliseconds, and never zero, which would be "none"
        (9.5 * YEAR_S, 9.5 * YEAR_S),
        (300 * YEAR_S, FOREVER_S),
        (1e300, FOREVER_S),
        (float("inf"), FOREVER_S),
        (timedelta.max.total_seconds(), FOREVER_S),
        (as_torch_passes(timedelta(days=365 * 300)), FOREVER_S),
        (as_torch_passes(timedelta(days=365 * 292_480)), FOREVER_S),
        (as_torch_passes(timedelta.max), FOREVER_S),
    ],
)
def test_what_a_timeout_means(seconds: float, understood: float) -> None:
    assert _C.checked_timeout(seconds) == understood


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0"), (-1e-6, "-1e-06"), (-2.5, "-2.5"), (-9e9, "-9e+09"), (float("nan"), "nan")],
)
def test_refuses_a_timeout(seconds: float, shown: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"timeout is {shown} s; it must be above 0")):
        _C.checked_timeout(seconds)


def test_for_ever_in_a_fixed_world(make_world: MakeWorld) -> None:
    make_world(2).run(work.waits_for_ever, setup="nothing")


def test_for_ever_in_an_open_run(make_open_world: MakeWorld) -> None:
    make_open_world(2).run(work.waits_for_ever_in_an_open_run, setup="nothing")


def test_refuses_on_every_way_in(make_world: MakeWorld, master: Master) -> None:
    (found,) = make_world(1).run(work.tries_every_way_in, master.url(), setup="nothing")
    assert len(found) == (15 if work.SETS_TIMEOUTS else 13), found
    for way, text in found.items():
        shown = "0" if way.endswith("0") else "-5"
        assert text == f"ValueError: timeout is {shown} s; it must be above 0", way
