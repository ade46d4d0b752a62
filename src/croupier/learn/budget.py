"""What DP-SGD guarantees a record, by Google's dp-accounting, or, for `so_far`, by our own accountant without it.

Unit: a record. Adjacency: one record of one client is left out of all its sums, as if its gradient were zero (zero-out;
Kairouz et al. 2021, Definition 1.1); the client's number of records stays. It must: the number of steps and the rate
follow from it, and tell it to everybody. With both fixed a step is the Gaussian sampled by Poisson, of sensitivity
`clip`, with the record or without: the pair that the accountants are for (the proof is in docs/theory.md).

Accounted per client over all steps that it takes in all rounds, against everybody who sees its updates: models that it
is handed are made of what it and others sent, and others hold no records of it. That clients are many or shuffled is
not made use of.

`engine.job.job` writes `so_far` into each round's metrics, `outlook` forecasts `worst` before a run, and RNS's figures
with DP-SGD (`croupier_lab.papers.rns.dp_sgd`) choose their noise by `noise_for`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from croupier.errors import RangeError, SpecError
from croupier.privacy import renyi
from croupier.privacy.losses import library as _library

if TYPE_CHECKING:
    from croupier.learn.dp_fit import Private

# The same for all clients, so that they can be compared. It should be below 1 / records, as it is with fewer than
# 100,000 records a client.
DELTA = 1e-5
UNIT = "a record"
# Privacy losses are rounded up to multiples of this.
_GRID = 5e-4
# A wished epsilon is met from below, with noise at most this share above the least.
_NEAR = 0.005
# Beyond this an epsilon promises nothing, and beyond this noise nothing is learnt.
_MOST, _LOUDEST = 100.0, 1e6


def worst(fit: Private, sizes: Iterable[int], rounds: int, delta: float = DELTA) -> tuple[float, int]:
    """The largest epsilon of clients with so many records, and with how many. Raises: SpecError without the extra."""
    # Of clients that take as many steps the one with the fewest records has the highest rate, and is worst off.
    fewest: dict[int, int] = {}
    for count in sorted(sizes, reverse=True):
        fewest[fit.steps(count)] = count
    bounds = ((renyi.epsilon(fit.noise, fit.rate(n), rounds * fit.steps(n), delta), n) for n in fewest.values())
    found: list[tuple[float, int]] = []
    for bound, count in sorted(bounds, reverse=True):
        # As in `so_far`: who cannot have spent more need not be reckoned.
        if found and bound <= max(found)[0]:
            break
        found.append((epsilon(fit.noise, fit.rate(count), rounds * fit.steps(count), delta), count))
    return max(found)


@dataclass(frozen=True)
class RecordCost:
    """The most that a client's steps so far cost one of its records, and by which accountant that was computed."""

    epsilon: float
    delta: float
    participations: int
    accountant: str

    def plain(self) -> dict[str, Any]:
        """For a log."""
        return asdict(self)


PLD, RDP = "PLD (dp-accounting)", "RDP (built in)"


def so_far(fit: Private, clients: Iterable[tuple[int, int]], delta: float = DELTA) -> RecordCost | None:
    """The most that training has cost a record so far; None where nothing is claimed or was sent.

    `clients` has for each client its number of records, and how often it took part.
    """
    counts = {(fit.rate(records), times * fit.steps(records)): times for records, times in clients if times}
    if not fit.claimed or not counts:
        return None
    bounds = sorted(((renyi.epsilon(fit.noise, *cost, delta), cost) for cost in counts), reverse=True)
    found: list[tuple[float, int, str]] = []
    for bound, (rate, steps) in bounds:
        # Whose quick bound is below what another spent for certain cannot have spent more.
        if found and bound <= max(found)[0]:
            break
        cost, accountant = reckoned(fit.noise, rate, steps, delta)
        found.append((cost, counts[rate, steps], accountant))
    cost, times, accountant = max(found)
    return RecordCost(cost, delta, times, accountant)


def reckoned(noise: float, rate: float, steps: int, delta: float = DELTA) -> tuple[float, str]:
    """An upper bound of epsilon, and the name of the accountant that gave it: the better one that is installed.

    Where the quick bound is so large that it promises nothing it is taken as it is: the better one takes long there.
    """
    quick = renyi.epsilon(noise, rate, steps, delta)
    if quick > _MOST:
        return quick, RDP
    try:
        return epsilon(noise, rate, steps, delta), PLD
    except SpecError:
        return quick, RDP


@lru_cache(maxsize=1 << 12)
def epsilon(noise: float, rate: float, steps: int, delta: float = DELTA) -> float:
    """An upper bound of epsilon for the sampled Gaussian. Raises: SpecError without the extra; RangeError."""
    if not (noise > 0 and 0 < rate <= 1 and steps >= 1 and 0 < delta < 1):
        raise RangeError(
            f"noise = {noise}, rate = {rate}, steps = {steps}, delta = {delta}: noise is above 0, a rate in (0, 1], "
            "steps 1 or more, delta between 0 and 1"
        )
    accounting, pld = _library()
    # With steps and rate given, a record left out and one added or removed are the same pair of distributions.
    step = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(noise))
    accountant = pld.PLDAccountant(accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, _GRID)
    return float(accountant.compose(accounting.SelfComposedDpEvent(step, steps)).get_epsilon(delta))


@lru_cache(maxsize=1 << 12)
def noise_for(wished: float, rate: float, steps: int, delta: float = DELTA) -> float:
    """The noise that keeps a client within an epsilon, by bisection. Raises: SpecError without `dp`; RangeError."""
    if not 0 < wished <= _MOST:
        raise RangeError(f"epsilon = {wished}: a wished epsilon is above 0, and at most {_MOST:g}")
    # About right where noise is loud, and a start on that side otherwise: a large epsilon takes long to compute.
    low = high = max(1.0, 4 * rate * math.sqrt(steps) / wished)
    while epsilon(high, rate, steps, delta) > wished:
        low, high = high, 1.5 * high
        if high > _LOUDEST:
            raise RangeError(f"epsilon = {wished}: {steps} steps cannot be kept within it; wish for more")
    while low == high or epsilon(low, rate, steps, delta) <= wished:
        low, high = low / 1.5, low
    while high > low * (1 + _NEAR):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon(middle, rate, steps, delta) > wished else (low, middle)
    return high
