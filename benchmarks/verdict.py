"""Decides whether a build is slower than another: a rule over pairs of times, measured in turn.

Other load on the machine disturbs both times of a pair alike, so their ratio is more exact than
either time. The median of the ratios tolerates a few pairs that were disturbed unevenly. Its
bootstrap interval shows how far chance alone may have moved it. All functions are pure, and the
resampling has a fixed seed: the same times give the same verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

RATIO_MAX = 1.05  # new over base: a user notices a larger ratio
CONFIDENCE = 0.90
RESAMPLES = 10_000
SEED = 1


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One round of one build.

    Attributes:
        wall: seconds.
        cpu: seconds per GB; None: not counted.
    """

    wall: float
    cpu: float | None = None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A round of each build, one right after the other."""

    base: Figure
    new: Figure


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of a row's pairs.

    Attributes:
        base: median wall seconds of the base build.
        new: median wall seconds of the new build.
        ratio: median of new over base in each pair.
        low: lower end of the bootstrap interval of that median.
        high: upper end of the same interval.
    """

    base: float
    new: float
    ratio: float
    low: float
    high: float

    @property
    def slower(self) -> bool:
        """Whether new is slower, by a noticeable ratio and not by chance."""
        return self.ratio > RATIO_MAX and self.low > 1

    @property
    def faster(self) -> bool:
        """Whether new is faster, by the same rule."""
        return self.ratio < 1 / RATIO_MAX and self.high < 1


class Verdict(Enum):
    """The verdict on a row. Each but the first two makes the run fail."""

    NOT_SLOWER = "no slower"
    FASTER = "faster"
    SLOWER = "SLOWER"
    NOT_REPEATED = "slower once, no time to repeat it"
    TOO_FEW = "too few pairs, no time for more"

    @property
    def good(self) -> bool:
        return self in {Verdict.NOT_SLOWER, Verdict.FASTER}


def bootstrap_median(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the median of such values, by resampling them."""
    samples = np.random.default_rng(SEED).choice(values, size=(RESAMPLES, len(values)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(samples, axis=1), [tail, 1 - tail])
    return float(low), float(high)


def compare(pairs: Sequence[Pair]) -> Comparison:
    """Return the comparison of the pairs.

    Raises:
        ValueError: there are no pairs.
    """
    if not pairs:
        raise ValueError("there is no pair to compare")
    ratios = [pair.new.wall / pair.base.wall for pair in pairs]
    low, high = bootstrap_median(ratios)
    return Comparison(
        base=statistics.median(pair.base.wall for pair in pairs),
        new=statistics.median(pair.new.wall for pair in pairs),
        ratio=statistics.median(ratios),
        low=low,
        high=high,
    )


def is_outlier(pairs: Sequence[Pair]) -> bool:
    """Return whether a row has to be repeated before a verdict."""
    return bool(pairs) and compare(pairs).slower


def judge(
    pairs: Sequence[Pair], repeated: Sequence[Pair], *, pairs_min: int, repeated_min: int
) -> Verdict:
    """Return the verdict on a row. It is slower only if it was slower twice: together with all
    rows, and when it was repeated alone.

    Args:
        pairs: pairs of the first time, together with all rows.
        repeated: pairs of the repetition, if the first time looked slower; otherwise none.
        pairs_min: least number of pairs of the first time for a verdict.
        repeated_min: least number of pairs of the repetition for a verdict.
    """
    if len(pairs) < pairs_min:
        return Verdict.TOO_FEW
    first = compare(pairs)
    if not first.slower:
        return Verdict.FASTER if first.faster else Verdict.NOT_SLOWER
    if len(repeated) < repeated_min:
        return Verdict.NOT_REPEATED
    return Verdict.SLOWER if compare(repeated).slower else Verdict.NOT_SLOWER
