"""Whether a build is slower than another: a rule over pairs of times, measured in turn.

Other load on the machine disturbs both times of a pair alike, so their ratio says more than either
time. The median of the ratios forgives a few pairs that were disturbed
unevenly; its bootstrap interval says how far chance alone may have moved it. All here is pure, and
the resampling has a fixed seed: the same times give the same verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

RATIO_MAX = 1.05  # new over base: from here on somebody would notice
CONFIDENCE = 0.90
RESAMPLES = 10_000
SEED = 1


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One round of one build.

    Attributes:
        wall: seconds.
        cpu: seconds per GB; None: it is not counted.
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
    """What the pairs of a row say.

    Attributes:
        base: median wall seconds.
        new: likewise.
        ratio: the median of new over base in each pair.
        low: where the bootstrap interval of that median begins.
        high: where it ends.
    """

    base: float
    new: float
    ratio: float
    low: float
    high: float

    @property
    def slower(self) -> bool:
        """By enough to be noticed, and not by chance."""
        return self.ratio > RATIO_MAX and self.low > 1

    @property
    def faster(self) -> bool:
        """The same the other way round."""
        return self.ratio < 1 / RATIO_MAX and self.high < 1


class Verdict(Enum):
    """What is said of a row. Each but the first two makes the run fail."""

    NOT_SLOWER = "no slower"
    FASTER = "faster"
    SLOWER = "SLOWER"
    NOT_REPEATED = "slower once, no time to repeat it"
    TOO_FEW = "too few pairs, no time for more"

    @property
    def good(self) -> bool:
        return self in {Verdict.NOT_SLOWER, Verdict.FASTER}


def bootstrap_median(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval in which the median of such values lies, by resampling them."""
    samples = np.random.default_rng(SEED).choice(values, size=(RESAMPLES, len(values)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(samples, axis=1), [tail, 1 - tail])
    return float(low), float(high)


def compare(pairs: Sequence[Pair]) -> Comparison:
    """Return what the pairs say.

    Raises:
        ValueError: there is none.
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
    """Return whether a row has to be repeated before anything is said of it."""
    return bool(pairs) and compare(pairs).slower


def judge(
    pairs: Sequence[Pair], repeated: Sequence[Pair], *, pairs_min: int, repeated_min: int
) -> Verdict:
    """Return the verdict on a row. It is slower only if it was so twice: among all rows, and when
    it was repeated alone.

    Args:
        pairs: of the first time, among all rows.
        repeated: of the second time, if the first looked slower; else none.
        pairs_min: fewer pairs of the first time are no verdict.
        repeated_min: likewise of the second time.
    """
    if len(pairs) < pairs_min:
        return Verdict.TOO_FEW
    first = compare(pairs)
    if not first.slower:
        return Verdict.FASTER if first.faster else Verdict.NOT_SLOWER
    if len(repeated) < repeated_min:
        return Verdict.NOT_REPEATED
    return Verdict.SLOWER if compare(repeated).slower else Verdict.NOT_SLOWER
