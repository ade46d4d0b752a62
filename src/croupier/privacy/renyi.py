"""Rényi differential privacy of the sampled Gaussian: an accountant that needs no other package.

It lets a run with DP-SGD say on every machine what it spent: `learn.budget` takes it where dp-accounting is not
installed, and otherwise as a quick first bound. It is an upper bound, looser than one by privacy losses (`losses`): by
Mironov, Talwar and Zhang 2019 (Rényi Differential Privacy of the Sampled Gaussian Mechanism, section 3.3, whole orders)
and, from Rényi divergences to (epsilon, delta), Canonne, Kamath and Steinke 2020, Proposition 12.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from croupier.errors import RangeError

# Whole orders, the lower ones all, the higher ones sparsely: small epsilons take high orders.
ORDERS = (*range(2, 65), 72, 80, 96, 112, 128, 160, 192, 256, 384, 512, 768, 1024)


@lru_cache(maxsize=1 << 12)
def epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """The epsilon of so many steps, each of which sees a record with chance `rate`. Raises: RangeError.

    Neighbours differ in whether one record counts in sums or is left out; `noise` is a deviation in units of the clip.
    """
    if not (noise > 0 and 0 < rate <= 1 and steps >= 1 and 0 < delta < 1):
        raise RangeError(
            f"noise = {noise}, rate = {rate}, steps = {steps}, delta = {delta}: noise is above 0, a rate in (0, 1], "
            "steps 1 or more, delta between 0 and 1"
        )
    found = [_converted(order, steps * divergence(order, noise, rate), delta) for order in ORDERS]
    return max(0.0, min(found))


def divergence(order: int, noise: float, rate: float) -> float:
    """The Rényi divergence of one step, at a whole order."""
    if rate == 1:
        return order / (2 * noise**2)
    from scipy.special import gammaln, logsumexp

    k = np.arange(order + 1)
    chances = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1) + k * math.log(rate)
    terms = chances + (order - k) * math.log1p(-rate) + (k * k - k) / (2 * noise**2)
    return float(logsumexp(terms)) / (order - 1)


def _converted(order: int, spent: float, delta: float) -> float:
    """The epsilon that a Rényi divergence of this order gives at a delta."""
    return spent + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
