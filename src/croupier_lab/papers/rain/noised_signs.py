"""What Gaussian noise does to one sign: how often it flips, what a majority makes of it, what one sign tells.

RAIN takes signs of noised differences. Tests check its equation 8 and Lemma 1 by these formulas: what it claims holds
for one bounded number, and not beyond. A whole row of signs is covered by the guarantee of the noise under it
(`privacy.gaussian`). Only tests use this file (tests/unit/lab/papers/rain/test_noised_signs.py), on which claims of
`papers.rain.claims` rest.
"""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtr
from scipy.stats import binom

from croupier.errors import RangeError


def flip_chance(size: float, sigma: float) -> float:
    """The chance that noise turns the sign of a coordinate of this size around."""
    return float(ndtr(-abs(size) / sigma)) if sigma > 0 else 0.0


def majority(flip: float, voters: int) -> float:
    """The chance that a majority of independent signs is right; a tie is right half of the time.

    Raises: RangeError for no voters or for a `flip` that is no chance.
    """
    if voters < 1 or not 0 <= flip <= 1:
        raise RangeError(f"flip = {flip}, voters = {voters}: a chance, and 1 voter or more")
    tie = float(binom.pmf(voters // 2, voters, flip)) if voters % 2 == 0 else 0.0
    return float(binom.cdf((voters - 1) // 2, voters, flip)) + tie / 2


def one_sign_loss(bound: float, apart: float, sigma: float) -> float:
    """The largest log-ratio of one noised sign's chances between two values.

    The values lie within `bound` of 0 and at most `apart` from each other. The hazard of the normal grows, so the worst
    pair lies at the end of the range. It is the loss of *one* coordinate: a client's update has many, and their losses
    add up. Raises: RangeError for sizes that are negative or for no noise.
    """
    if not (bound >= 0 and apart >= 0 and sigma > 0 and math.isfinite(bound)):
        raise RangeError(f"bound = {bound}, apart = {apart}, sigma = {sigma}: 0 or more, and noise above 0")
    end = -bound / sigma
    return float(log_ndtr(min(end + apart / sigma, bound / sigma)) - log_ndtr(end))
