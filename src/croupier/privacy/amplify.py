"""What a shuffle adds to local privacy: the clone bound, evaluated numerically, or a sentence why nothing is claimed.

Reports of the other honest clients look like copies of the one in question with chance e^-eps0 each, so whoever sees
the shuffled reports sees C + 1 bits, of which A are one way: C ~ Bin(n - 1, e^-eps0), A ~ Bin(C, 1/2) + Bernoulli(q)
with q = e^eps0 / (1 + e^eps0). The theorem is that of Feldman, McMillan and Talwar 2021. Their bound of 2023 has an
erratum and is not used.

`statement` prints the claim in `croupier explain`, and `privacy.plan` beforehand (`croupier plan dp`). Where an
assumption of the theorem fails (rows with names, noise that is no pure mechanism, too few clients) the answer is the
reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from croupier.errors import RangeError
from croupier.privacy.local import rounded_up

Floats = npt.NDArray[np.float64]

# Mass of C that is left out on each side and counted as lost; doubles are right to less than this.
_TAIL = 1e-13
_CLOSE = 1e-7
# From this local epsilon on nothing is claimed: far more clients would be needed than a round has.
HOPELESS = 10.0
# A gain smaller than this share is no gain.
_GAIN = 0.005


@dataclass(frozen=True)
class ShuffleGuarantee:
    """What shuffling among honest clients gives one round, and by which theorem."""

    epsilon: float
    delta: float
    honest: int
    local: float
    theorem: str = "the clone bound of Feldman, McMillan and Talwar 2021, evaluated numerically"

    def says(self) -> str:
        """The claim in a sentence."""
        return (
            f"({rounded_up(self.epsilon)}, {self.delta:g}) for one participation instead of {rounded_up(self.local)}, "
            f"among {self.honest} clients that are present, honest and tell nobody which row is theirs; by "
            f"{self.theorem}"
        )


def claim(honest: int, epsilon: float, delta: float, local_delta: float = 0.0) -> ShuffleGuarantee | str:
    """What may be claimed for shuffled rows that are (epsilon, local_delta) on their own, or why nothing may."""
    _check(honest, epsilon, delta)
    no = "no amplification claimed: "
    if epsilon >= HOPELESS:
        return f"{no}the local epsilon {rounded_up(epsilon)} is too large for {honest} clients to hide a row"
    if local_delta > 0:
        return (
            f"{no}rows are private up to a delta of {local_delta:g} only, and the theorem is for rows without; what "
            f"is lost grows with {honest} times that delta and is not computed here"
        )
    found = amplified(honest, epsilon, delta)
    if found > epsilon * (1 - _GAIN):
        return f"{no}{honest} honest clients are too few for a local epsilon of {rounded_up(epsilon)}"
    return ShuffleGuarantee(found, delta, honest, epsilon)


@lru_cache(maxsize=1 << 10)
def amplified(honest: int, epsilon: float, delta: float) -> float:
    """An upper bound of the central epsilon, never above the local one."""
    _check(honest, epsilon, delta)
    low, high = 0.0, epsilon
    if shuffled_delta(honest, epsilon, low) <= delta:
        return 0.0
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if shuffled_delta(honest, epsilon, middle) > delta else (low, middle)
    return high


def shuffled_delta(honest: int, local: float, epsilon: float) -> float:
    """An upper bound of delta for a central epsilon.

    One direction is computed and holds for both, because the two neighbours mirror each other.
    """
    from scipy.stats import binom

    if epsilon >= local:
        return 0.0
    first, last = binom.ppf(_TAIL, honest - 1, math.exp(-local)), binom.isf(_TAIL, honest - 1, math.exp(-local))
    clones = np.arange(max(0, int(first) - 1), min(honest - 1, int(last) + 1) + 1)
    each = binom.pmf(clones, honest - 1, math.exp(-local))
    return min(1.0, float(each @ hockey_stick(clones.astype(np.float64), local, epsilon)) + 3 * _TAIL)


def hockey_stick(clones: Floats, local: float, epsilon: float) -> Floats:
    """The sum of max(0, P - e^epsilon Q) over A, for each number of clones.

    P / Q grows with A, so the sum runs from a threshold upwards and is a difference of two tails, here with the tails'
    common part taken out.
    """
    from scipy.stats import binom

    q = 1 / (1 + math.exp(-local))
    lead = q - math.exp(epsilon) * (1 - q)
    ratio = (math.exp(epsilon) * q - (1 - q)) / lead
    least = np.floor(ratio / (1 + ratio) * (clones + 1)) + 1
    tail, edge = binom.sf(least - 1, clones, 0.5), binom.pmf(least - 1, clones, 0.5)
    found: Floats = np.maximum(0.0, edge * lead - tail * math.expm1(epsilon))
    return found


def closed_form(honest: int, epsilon: float, delta: float) -> float:
    """Theorem 3.1 of 2021 as printed. Raises: RangeError outside its precondition.

    It has the factor (e^eps0 - 1)/(e^eps0 + 1); the authors' program divides by 1 + e^(-eps0 - eps) instead and gives
    0.53780 where this gives 0.5346.
    """
    _check(honest, epsilon, delta)
    most = math.log(honest / (16 * math.log(2 / delta)))
    if epsilon > most:
        raise RangeError(
            f"epsilon = {epsilon:g} with {honest} clients and delta = {delta:g}: the theorem holds up to {most:.3g}; "
            "use amplified, which holds for all"
        )
    grown = math.exp(epsilon) / honest
    return math.log1p(math.tanh(epsilon / 2) * (8 * math.sqrt(grown * math.log(4 / delta)) + 8 * grown))


def _check(honest: int, epsilon: float, delta: float) -> None:
    if honest < 1 or not 0 < epsilon < math.inf or not 1e-11 <= delta < 1:
        raise RangeError(
            f"honest = {honest}, epsilon = {epsilon}, delta = {delta}: 1 client or more, a finite epsilon above 0, and "
            "a delta from 1e-11 to below 1"
        )
