"""Success rates with their intervals: a number without one is not printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit
from torch import Tensor

from croupier.errors import RangeError

LEVEL = 0.95


@dataclass(frozen=True)
class Rate:
    """A success rate with its interval."""

    rate: float
    low: float
    high: float


def over_runs(rates: Sequence[float], doubt: float = 1 - LEVEL) -> Rate:
    """The mean over independent runs, with Student's interval, which misses with chance `doubt`.

    Records of one run share its models, so only runs are trials. The ends are not cut at 0 or 1: a difference of two
    rates has an interval too. Raises: RangeError with fewer than two runs.
    """
    if len(rates) < 2:
        raise RangeError(f"{len(rates)} run: an interval over runs needs at least 2; ask for more seeds")
    mean = math.fsum(rates) / len(rates)
    spread = math.sqrt(math.fsum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1) / len(rates))
    half = spread * float(stdtrit(len(rates) - 1, 1 - doubt / 2))
    return Rate(mean, mean - half, mean + half)


def area(members: Tensor, others: Tensor) -> float:
    """The chance that a member scores above another record, ties counting half: the area under the ROC curve."""
    above = (members.unsqueeze(1) > others).double() + 0.5 * (members.unsqueeze(1) == others).double()
    return float(above.mean())


def caught(members: Tensor, others: Tensor, false_alarms: float = 0.01) -> float:
    """The share of members found when at most that share of the others is falsely accused."""
    allowed = math.floor(false_alarms * len(others))
    return float((members > others.sort(descending=True).values[allowed]).double().mean())
