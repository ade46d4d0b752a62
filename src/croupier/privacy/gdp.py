"""Gaussian differential privacy: what Gaussian noise on a clipped update guarantees, and how guarantees add up.

A mechanism is mu-GDP when telling its two neighbours apart is no easier than telling N(0, 1) from N(mu, 1). The exact
curve of the Gaussian mechanism is that of Balle and Wang 2018, composition that of Dong, Roth and Su 2022.

It is how Gaussian noise on whole updates is accounted: mechanisms (`privacy.gaussian`, `privacy.tiers`), ledgers, plans
(`croupier plan dp`), `advice` and the laboratory's tables all ask it. Noise on single records is accounted in
`learn.budget`, by `privacy.renyi` and dp-accounting (`privacy.losses`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from croupier.errors import RangeError

# The rounding of doubles ends every bisection long before this many halvings.
_HALVINGS = 200


def mu_of(clip: float, sigma: float) -> float:
    """The mu of one participation: any two clipped updates are neighbours, so they lie up to twice the clip apart."""
    if not (clip > 0 and sigma >= 0 and math.isfinite(clip) and math.isfinite(sigma)):
        raise RangeError(f"clip = {clip}, sigma = {sigma}: a clip is above 0, a deviation 0 or more, both finite")
    return 2 * clip / sigma if sigma > 0 else math.inf


def composed(mus: Iterable[float]) -> float:
    """The mu of several mechanisms on one client, each allowed to depend on what came before."""
    return math.hypot(*mus)


def delta_of(mu: float, epsilon: float) -> float:
    """The least delta for an epsilon: Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

    The second term is phi(a) times Mills' ratio at -b: nothing overflows, and no two large numbers are subtracted.
    """
    if not (mu >= 0 and epsilon >= 0):
        raise RangeError(f"mu = {mu}, epsilon = {epsilon}: both are 0 or more")
    if mu == 0 or math.isinf(mu):
        return 0.0 if mu == 0 else 1.0
    from scipy.special import ndtr

    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    found = density * (_mills(-a) - _mills(-b)) if a < 0 else float(ndtr(a)) - density * _mills(-b)
    return max(0.0, found)


def epsilon_of(mu: float, delta: float) -> float:
    """The least epsilon for a delta, rounded up; infinite where there is no noise. Raises: RangeError."""
    _check_delta(delta)
    if math.isinf(mu):
        return math.inf
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    from scipy.special import ndtri

    # Beyond this the first term alone is below delta.
    top = mu * mu / 2 + mu * max(0.0, -float(ndtri(delta)))
    return _bisect(lambda epsilon: delta_of(mu, epsilon) > delta, 0.0, top)[1]


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu that keeps within (epsilon, delta), rounded down. Raises: RangeError."""
    _check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise RangeError(f"epsilon = {epsilon}: a wished epsilon is above 0 and finite")
    top = 1.0
    while delta_of(top, epsilon) <= delta:
        top *= 2
    return _bisect(lambda mu: delta_of(mu, epsilon) <= delta, 0.0, top)[0]


def sigma_for(epsilon: float, delta: float, clip: float, participations: int = 1) -> float:
    """The deviation of the noise that keeps so many participations together within (epsilon, delta)."""
    if participations < 1 or not clip > 0:
        raise RangeError(f"clip = {clip}, participations = {participations}: above 0, and 1 or more")
    return 2 * clip * math.sqrt(participations) / mu_for(epsilon, delta)


def participations_for(epsilon: float, delta: float, clip: float, sigma: float) -> int:
    """How many participations with this noise stay within (epsilon, delta) together; 0 where one is too many."""
    one = mu_of(clip, sigma)
    if math.isinf(one):
        return 0
    # Met exactly, a budget must not be missed by the rounding of sigma; nor overspent by more than a ledger forgives.
    most = math.floor((mu_for(epsilon, delta) / one) ** 2 * (1 + 1e-9))
    return most if not most or epsilon_of(one * math.sqrt(most), delta) <= epsilon * (1 + 1e-9) else most - 1


def _mills(x: float) -> float:
    """Mills' ratio, Phi(-x) / phi(x), with the normal's distribution and density."""
    from scipy.special import erfcx

    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _bisect(low_side: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Neighbouring numbers around the point where a monotone question changes its answer."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if low_side(middle) else (low, middle)
    return low, high


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise RangeError(f"delta = {delta}: it lies between 0 and 1, both excluded")
