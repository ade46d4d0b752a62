"""Rates with their intervals over independent runs.

Verdicts and reports of an audit (`audit.verdict`, `audit.report.words`), estimates of what counts tell
(`release.counted_ones`) and the tables of papers and benches take their intervals from here. How often an attack
succeeds lies between 0 and 1 and is often exactly the same in several runs, where Student's interval alone is too
narrow: `share` and `gain` mend that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from croupier.errors import RangeError

# How often an interval should hold the true mean.
LEVEL = 0.95
# Two more runs than were seen, one on either side of the mean, stand for those that might have been seen. They lie
# `BEYOND` times as far out as the farthest run, and at least `LEAST_REACH`, or `TIED_REACH` times the share of runs
# that are equal, because ties hide how far runs go.
BEYOND = 1.5
LEAST_REACH = 0.1
TIED_REACH = 0.3


@dataclass(frozen=True)
class Rate:
    """A success rate with its interval."""

    rate: float
    low: float
    high: float


def over_runs(rates: Sequence[float], doubt: float = 1 - LEVEL) -> Rate:
    """The mean over independent runs, with Student's interval, which misses with chance `doubt`.

    For what varies smoothly and knows no bounds: bits, decibels, errors, cosines. Records of one run share its models,
    so only runs are trials. Raises: RangeError with fewer than two runs.
    """
    mean, total = _spread(rates)
    half = math.sqrt(total / (len(rates) - 1) / len(rates)) * float(stdtrit(len(rates) - 1, 1 - doubt / 2))
    return Rate(mean, mean - half, mean + half)


def share(rates: Sequence[float], doubt: float = 1 - LEVEL) -> Rate:
    """The mean of shares (from 0 to 1) over independent runs, with an interval that survives ties and few runs."""
    return _steady(rates, doubt, 0.0)


def gain(differences: Sequence[float], doubt: float = 1 - LEVEL) -> Rate:
    """The mean of differences of two shares over independent runs, with an interval like that of `share`."""
    return _steady(differences, doubt, -1.0)


def smooth(rates: Sequence[float], doubt: float = 1 - LEVEL) -> Rate:
    """The mean of shares that vary smoothly, as accuracies do: Student's interval, within 0 and 1."""
    found = over_runs(rates, doubt)
    return Rate(found.rate, max(0.0, found.low), min(1.0, found.high))


def _steady(values: Sequence[float], doubt: float, lowest: float) -> Rate:
    """Student's interval as though two more runs had been seen, within `lowest` and 1.

    Most gains of an attack are exactly 0, so that a few runs often agree by chance, and Student's interval then has no
    width at all. `croupier bench coverage` measures how often this one holds the mean.
    """
    mean, total = _spread(values)
    count, most = len(values), Counter(values).most_common(1)[0][1]
    tied = most / count if most > 1 else 0.0
    reach = max(BEYOND * max(abs(value - mean) for value in values), LEAST_REACH, TIED_REACH * tied)
    half = math.sqrt((total + 2 * reach**2) / (count + 1) / count) * float(stdtrit(count - 1, 1 - doubt / 2))
    return Rate(mean, max(lowest, mean - half), min(1.0, mean + half))


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the sum of squared distances from it."""
    if len(values) < 2:
        raise RangeError(f"{len(values)} run: an interval over runs needs at least 2; ask for more seeds")
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values)
