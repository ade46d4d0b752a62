"""Standard normals from uniform words by one fixed routine, the same bits on every machine (but for `on_device`).

Only additions, products, quotients and square roots are used: IEEE 754 rounds these exactly, while a library's `log`
may differ in the last bit from one processor to the next. `core.coins` draws noise by it. The approximations of the
normal quantile, ratios of polynomials, are those of Wichura's algorithm AS 241 (1988).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.kernels.few import few

Floats = npt.NDArray[np.float64]

# Coefficients above and below the fraction bar: for the middle of the distribution, its tails, and their far ends.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip
# A word is signed in torch, where shifting a negative one brings in ones; this mask takes them away.
_UPPER = (1 << 52) - 1
_LN2 = 0.6931471805599453
_HALF_ROOT = 0.7071067811865476


def from_words(words: npt.NDArray[np.uint64]) -> Floats:
    """One standard normal a 64-bit word, from its upper 52 bits: with the half that is added, 53 are exact."""
    if few(len(words)):
        return from_words_plain(words)
    from croupier.kernels import _normal_jit as jit

    out = np.empty(len(words))
    jit.from_words(words, _CENTRE, _TAIL, _FAR, out)
    return out


def from_words_plain(words: npt.NDArray[np.uint64]) -> Floats:
    """The same as `from_words`, by NumPy."""
    return quantile(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)


def on_device(words: Tensor) -> Tensor:
    """The normals of the same words where they lie, by torch's quantile: last bits may differ from `from_words`."""
    found: Tensor = torch.special.ndtri((((words >> 12) & _UPPER).double() + 0.5) * 2.0**-52)
    return found


def quantile(p: Floats) -> Floats:
    """The standard normal quantile of probabilities strictly between 0 and 1."""
    q = p - 0.5
    out = q * _ratio(_CENTRE, 0.180625 - q * q)
    far = np.abs(q) > 0.425
    side = q[far]
    # 1 - p loses nothing: `from_words` gives multiples of 2^-53 below 1.
    r = np.sqrt(-_log(np.where(side < 0, p[far], 1.0 - p[far])))
    z = np.where(r <= 5.0, _ratio(_TAIL, r - 1.6), _ratio(_FAR, r - 5.0))
    out[far] = np.where(side < 0, -z, z)
    return out


def _ratio(pair: tuple[tuple[float, ...], tuple[float, ...]], x: Floats) -> Floats:
    above, below = pair
    top, bottom = np.full_like(x, above[0]), np.full_like(x, below[0])
    for a, b in zip(above[1:], below[1:], strict=True):
        top, bottom = top * x + a, bottom * x + b
    return top / bottom


def _log(x: Floats) -> Floats:
    """Natural logarithm by the series of the inverse hyperbolic tangent."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < _HALF_ROOT
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    exponent = exponent - low
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = np.zeros_like(s)
    for odd in range(23, 0, -2):
        series = series * square + 1.0 / odd
    return exponent * _LN2 + 2.0 * s * series
