"""Success rates with their intervals: a number without one is not printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from croupier.errors import RangeError

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_Z = 1.959964


@dataclass(frozen=True)
class Rate:
    """A success rate with its 95 % interval."""

    rate: float
    low: float
    high: float


def over_runs(rates: Sequence[float]) -> Rate:
    """The mean over independent runs, with Student's interval.

    Records of one run share its models, so only runs are trials. The ends are not cut at 0 or 1: a difference of two
    rates has an interval too. Raises: RangeError with fewer than two runs.
    """
    if len(rates) < 2:
        raise RangeError(f"{len(rates)} run: an interval over runs needs at least 2; ask for more seeds")
    mean = math.fsum(rates) / len(rates)
    spread = math.sqrt(math.fsum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1) / len(rates))
    half = spread * (_T[len(rates) - 2] if len(rates) - 2 < len(_T) else _Z)
    return Rate(mean, mean - half, mean + half)
