"""The compiled loop of `core.normal`, in a file of its own so that numba is loaded only once it is needed.

Additions, products, quotients and square roots come in the order of the plain form, so that noise is the same on every
machine: no two of them are fused into one that would round once where the plain form rounds twice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from croupier.kernels.compiled import njit

_HALF_ROOT = 0.7071067811865476
_LN2 = 0.6931471805599453


# Division by 0 must not raise: the check alone would keep the loop from being vectorised. No divisor here is 0.
@njit(cache=True, nogil=True, error_model="numpy")
def from_words(words: Any, centre: Any, tail: Any, beyond: Any, out: Any) -> None:
    """A standard normal for each word.

    `centre`, `tail` and `beyond` are the coefficients of three ratios of polynomials, above and below the fraction bar:
    for the middle of the distribution, for its tails, and for their far ends.
    """
    # All of them first, as if none lay in a tail: without a branch several are done at once.
    for i in range(len(words)):
        q = _place(words[i]) - 0.5
        out[i] = q * _ratio(centre, 0.180625 - q * q)
    for i in range(len(words)):
        p = _place(words[i])
        q = p - 0.5
        if abs(q) <= 0.425:
            continue
        r = math.sqrt(-_log(p if q < 0 else 1.0 - p))
        z = _ratio(tail, r - 1.6) if r <= 5.0 else _ratio(beyond, r - 5.0)
        out[i] = -z if q < 0 else z


@njit(cache=True, nogil=True, error_model="numpy")
def _place(word: Any) -> Any:
    """Where in the unit interval a word lies. Shifted, it fits a signed number, which turns into a float quicker."""
    return (np.float64(np.int64(word >> np.uint64(12))) + 0.5) * 2.0**-52


@njit(cache=True, nogil=True, error_model="numpy")
def _ratio(pair: Any, x: float) -> Any:
    """One polynomial over another, written out and not as a loop, so that it can be done for several words at once."""
    a, b = pair
    above = ((((((a[0] * x + a[1]) * x + a[2]) * x + a[3]) * x + a[4]) * x + a[5]) * x + a[6]) * x + a[7]
    below = ((((((b[0] * x + b[1]) * x + b[2]) * x + b[3]) * x + b[4]) * x + b[5]) * x + b[6]) * x + b[7]
    return above / below


@njit(cache=True, nogil=True, error_model="numpy")
def _log(x: float) -> Any:
    """Natural logarithm by the series of the inverse hyperbolic tangent."""
    mantissa, exponent = math.frexp(x)
    if mantissa < _HALF_ROOT:
        mantissa *= 2.0
        exponent -= 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square, series = s * s, 0.0
    for odd in range(23, 0, -2):
        series = series * square + 1.0 / odd
    return exponent * _LN2 + 2.0 * s * series
