"""What a sum of noised updates guarantees to each of them, where nothing but the sum is seen.

The noises of the honest members add up: mu = 2 clip / sqrt(sum of their variances). Each member rounds its noised
values to a grid before they are added, so that the Gaussian theorem does not hold to the letter. The sum of rounded
values differs from the rounding of a noisier Gaussian sum, which is made of the Gaussian mechanism and costs nothing,
by what `aliasing` bounds; members clamp, with a chance that `clamping` bounds. Both enter delta (1 + e^epsilon) times.
The proof is in docs/theory.md.

`statement` uses it for the sums of buckets (release `bucket-sums`, `croupier explain`), and `systems` to choose a grid
for them that the proof covers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from croupier.errors import RangeError
from croupier.privacy.gdp import epsilon_of
from croupier.privacy.local import shown, times

# A model of more coordinates than this is not covered: errors are counted once a coordinate, and models vary.
COORDINATES = 10**9
# The share of delta that errors of the grid may take.
SHARE = 0.01


@dataclass(frozen=True)
class Lattice:
    """The grid that noised values are rounded to: multiples of `step` up to `edge`; sums are taken modulo `modulus`."""

    step: float
    edge: float
    modulus: int

    def __post_init__(self) -> None:
        if not (self.step > 0 and self.edge > 0 and self.modulus > 1):
            raise RangeError(f"step = {self.step}, edge = {self.edge}, modulus = {self.modulus}: all above 0")


@dataclass(frozen=True)
class Central:
    """The guarantee of one client against whoever sees sums only; `error` is the part of delta that the grid took."""

    mu: float
    epsilon: float
    delta: float
    error: float


def aliasing(members: int, fineness: float, modulus: int) -> float:
    """How far, in total variation, one coordinate of a sum of rounded values is from a rounded Gaussian sum.

    `fineness` is the least deviation in steps of the grid.
    """
    q = math.exp(-((math.pi * fineness) ** 2) / 2)
    stray = 4 / math.pi * q / (1 - q**8) if q < 1 else math.inf
    apart = math.expm1(members * math.log1p(stray)) + stray if stray < 1 else math.inf
    return min(1.0, modulus / 2 * apart)


def clamping(members: int, clip: float, sigma: float, edge: float) -> float:
    """The chance that some member's value of one coordinate lies beyond the edge, at a deviation of sigma at most."""
    if edge <= clip:
        return 1.0
    from scipy.special import log_ndtr

    return min(1.0, 2 * members * math.exp(float(log_ndtr(-(edge - clip) / sigma))))


def error(members: int, clip: float, sigmas: Sequence[float], lattice: Lattice) -> float:
    """What the grid can do in one round, by both bounds, over as many coordinates as are covered."""
    once = aliasing(members, min(sigmas) / lattice.step, lattice.modulus)
    once += clamping(members, clip, max(sigmas), lattice.edge)
    return min(1.0, COORDINATES * once)


def grid(clip: float, sigmas: Sequence[float]) -> tuple[float, int]:
    """A scale and a number of steps on which sums of such noise are covered: 12 deviations wide, 5 steps a deviation.

    Both rounded up to powers of two, which floats hold exactly.
    """
    scale = 2.0 ** math.ceil(math.log2(clip + 12 * max(sigmas)))
    return scale, 2 ** math.ceil(math.log2(5 * scale / min(sigmas)))


def central(clip: float, honest: Sequence[float], delta: float, strayed: float, participations: int = 1) -> Central:
    """For one honest member, from the deviations of all honest members. Raises: RangeError where nothing can be said.

    `strayed` is the error of one round. Participations compose as Gaussians do, and their errors add up.
    """
    if not honest or min(honest) <= 0:
        raise RangeError("a sum without noise of honest members guarantees nothing")
    mu = 2 * clip * math.sqrt(participations) / math.sqrt(math.fsum(one * one for one in honest))
    epsilon = epsilon_of(mu, (1 - SHARE) * delta)
    # e^epsilon may overflow, and then no error is small enough.
    taken = (1 + math.exp(epsilon)) * participations * strayed if epsilon < 700 else math.inf
    if taken > SHARE * delta:
        raise RangeError(
            f"the grid's error of {participations * strayed:.2g} is too large for delta = {delta:g} at epsilon = "
            f"{epsilon:.4g}; use a finer grid and a larger scale (protocol.encode.steps, scale)"
        )
    return Central(mu, epsilon, delta, taken)


def says(
    clip: float, tiers: Sequence[tuple[float, float]], delta: float, lattice: Lattice, *, members: int, smallest: int,
    colluders: int, participations: int,
) -> str:  # fmt: skip
    """The sentence of the statement, tier by tier, for the smallest bucket and the least noise that its others can add.

    `tiers` are pairs of a local epsilon and its deviation; `members` is the most that a bucket can have.
    """
    sigmas = [sigma for _, sigma in tiers]
    strayed = error(members, clip, sigmas, lattice)
    said = []
    try:
        for local, sigma in tiers:
            honest = [sigma] + [min(sigmas)] * (smallest - colluders - 1)
            one = central(clip, honest, delta, strayed)
            said.append(f"tier {local:g}: {times(1)} {shown(one.epsilon, delta)}")
            if participations > 1:
                said[-1] += f", {times(participations)} {_many(clip, honest, delta, strayed, participations)}"
    except RangeError as why:
        return f"no central guarantee is claimed for sums: {why}"
    return (
        f"central, of one client among the {smallest - colluders} honest members of a bucket of {smallest} (larger "
        f"ones guarantee more): {'; '.join(said)}. By Gaussian DP with mu = 2C / sqrt(sum of the honest members' "
        f"variances), the others counted with the least noise of any tier; {colluders} colluders' noise does not "
        "count, and a member that looks at the sum for itself is a colluder too. Only against who sees sums and no "
        f"single update. Rounding to the grid and clamping take {SHARE:.0%} of delta at most, for up to "
        f"{COORDINATES:.0e} coordinates; noise counts as real numbers until then. Shuffling inside a bucket would "
        "guarantee nothing beyond the local epsilon"
    )


def _many(clip: float, honest: Sequence[float], delta: float, strayed: float, participations: int) -> str:
    try:
        return shown(central(clip, honest, delta, strayed, participations).epsilon, delta)
    except RangeError:
        # The error counts e^epsilon times: for an epsilon that promises nothing, no grid is fine enough.
        return "nothing claimed"
