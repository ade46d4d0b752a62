"""The central guarantee of sums: the bound against exact distributions of small sums, and where it is refused."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from croupier.errors import RangeError
from croupier.privacy import central as room
from croupier.privacy.central import Lattice, aliasing, central, clamping, error
from croupier.privacy.gdp import delta_of, epsilon_of

REACH = 400


def rounded(x: float, sigma: float, step: float) -> np.ndarray:
    """The exact distribution of a noised value rounded to the grid, by its cells."""
    cells = (np.arange(-REACH, REACH + 2) - 0.5) * step
    return np.diff(norm.cdf(cells, x, sigma))


def summed(values: tuple[float, ...], sigmas: tuple[float, ...], step: float) -> np.ndarray:
    """The exact distribution of the sum of rounded values."""
    out = np.ones(1)
    for x, sigma in zip(values, sigmas, strict=True):
        out = np.convolve(out, rounded(x, sigma, step))
    return out


def smoothed(values: tuple[float, ...], sigmas: tuple[float, ...], step: float) -> np.ndarray:
    """The Gaussian sum with a uniform less than there are members, rounded: a density that as many boxes smoothed.

    A box is a difference of integrals, so that the density is an n-th difference of n-fold integrals of the normal one.
    """
    count, sigma = len(values), math.hypot(*sigmas)
    # On the left of the middle, where nothing large cancels.
    at = -np.abs(np.arange(-REACH * count, REACH * count + 1) * step - sum(values)) / sigma
    found = np.zeros(len(at))
    for place in range(count + 1):
        z = at + (count / 2 - place) * step / sigma
        once, twice = z * norm.cdf(z) + norm.pdf(z), ((z * z + 1) * norm.cdf(z) + z * norm.pdf(z)) / 2
        found += (-1) ** place * math.comb(count, place) * {2: once, 3: twice}[count]
    return found * (sigma / step) ** (count - 1)


def stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """The hockey-stick divergence."""
    return float(np.maximum(0, one - math.exp(epsilon) * other).sum())


CASES = [
    (count, step, shift) for count, step, shift in product((2, 3), (0.5, 0.75, 1.0, 1.5, 2.0, 3.0), (0.0, 0.23, 0.5))
]


@pytest.mark.parametrize(("count", "step", "shift"), CASES)
def test_the_bound_holds_for_exact_sums(count: int, step: float, shift: float) -> None:
    clip, sigmas = 1.0, (1.0, 1.3, 2.0)[:count]
    rest = tuple(0.3 * place for place in range(1, count))
    mu = 2 * clip / math.hypot(*sigmas)
    # The whole support, wrapped once: a modulus that holds every sum.
    apart = aliasing(count, 1.0 / step, 2 * REACH * count + 1)
    for here, there in ((clip, -clip), (clip, -clip + shift * step), (0.4, shift)):
        one, other = summed((here, *rest), sigmas, step), summed((there, *rest), sigmas, step)
        for epsilon in (0.0, 0.3, 1.0, 2.5):
            bound = delta_of(mu, epsilon) + (1 + math.exp(epsilon)) * apart
            assert stick(one, other, epsilon) <= bound + 1e-12


def wrapped(chances: np.ndarray, modulus: int) -> np.ndarray:
    """The distribution of residues, the middle being 0."""
    places = (np.arange(len(chances)) - len(chances) // 2) % modulus
    return np.bincount(places, chances, modulus)


@pytest.mark.parametrize("modulus", [4, 24, 1 << 12])
@pytest.mark.parametrize(("count", "step"), [(n, h) for n in (2, 3) for h in (0.4, 0.5, 0.75, 1.0, 1.5)])
def test_a_sum_of_rounded_values_is_near_a_rounded_sum(count: int, step: float, modulus: int) -> None:
    sigmas, values = (1.0, 1.3, 2.0)[:count], (0.37, -0.2, 0.9)[:count]
    one, other = summed(values, sigmas, step), smoothed(values, sigmas, step)
    apart = float(np.abs(wrapped(one, modulus) - wrapped(other, modulus)).sum() / 2)
    assert apart <= aliasing(count, 1.0 / step, modulus) + 1e-12
    if step >= 1:
        assert apart > 1e-9, "there is something to bound"


def test_on_a_coarse_grid_the_gaussian_curve_itself_fails() -> None:
    """So that the error term is no ornament."""
    sigmas, step = (1.0, 1.0), 3.0
    one, other = summed((1.0, 0.0), sigmas, step), summed((-1.0, 0.0), sigmas, step)
    mu = 2 / math.hypot(*sigmas)
    worst = max(
        stick(a, b, epsilon) - delta_of(mu, epsilon)
        for epsilon in np.linspace(0, 8, 81)
        for a, b in ((one, other), (other, one), (summed((1.0, 1.5), sigmas, step), summed((-1.0, 1.5), sigmas, step)))
    )
    assert worst > 1e-4
    with pytest.raises(RangeError, match="use a finer grid"):
        central(1.0, sigmas, 1e-5, error(2, 1.0, sigmas, Lattice(step, 300.0, 1 << 10)))


def test_clamping_counts_both_sides_and_every_member() -> None:
    exact = norm.sf(4.0) + norm.sf(6.0)
    assert clamping(1, 1.0, 1.0, 5.0) >= exact
    assert clamping(3, 1.0, 1.0, 5.0) == pytest.approx(6 * norm.sf(4.0))
    assert clamping(1, 2.0, 1.0, 2.0) == 1.0


def test_noise_of_the_honest_adds_up() -> None:
    found = central(1.0, (2.0,) * 9, 1e-5, 0.0)
    assert found.mu == pytest.approx(2 / 6)
    assert found.epsilon == pytest.approx(epsilon_of(1 / 3, 0.99e-5))
    assert central(1.0, (2.0,) * 9, 1e-5, 0.0, 16).mu == pytest.approx(4 / 3)
    with pytest.raises(RangeError, match="guarantees nothing"):
        central(1.0, (), 1e-5, 0.0)


def test_a_fine_grid_is_claimed_and_a_coarse_or_narrow_one_refused() -> None:
    tiers = ((1.0, 7.5), (8.0, 1.2))
    facts = {"members": 20, "smallest": 8, "colluders": 1, "participations": 5}
    fine = room.says(1.0, tiers, 1e-5, Lattice(0.125, 128.0, 1 << 17), **facts)
    assert "among the 7 honest members of a bucket of 8" in fine
    assert "tier 8: one participation (" in fine
    assert "5 participations (" in fine
    for lattice in (Lattice(1.0, 128.0, 1 << 17), Lattice(0.125, 40.0, 1 << 17)):
        assert "no central guarantee is claimed" in room.says(1.0, tiers, 1e-5, lattice, **facts)


def test_more_participations_take_more_of_delta() -> None:
    strayed = 1e-9
    assert central(1.0, (5.0,) * 8, 1e-5, strayed).error < 1e-7
    with pytest.raises(RangeError, match=r"the grid's error of 5e-08"):
        central(1.0, (5.0,) * 8, 1e-5, strayed, 50)
