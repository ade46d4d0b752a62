"""What RAIN claims of one noised sign, against the formulas."""

from __future__ import annotations

import math

import pytest

from croupier.errors import RangeError
from croupier_lab.papers.rain.noised_signs import flip_chance, majority, one_sign_loss


@pytest.mark.parametrize(
    ("size", "sigma", "flip", "right"),
    [
        (1e4, 0.01, 0.159, 1.000), (1e4, 0.2, 0.480, 0.655), (1e5, 0.01, 0.376, 0.994), (1e5, 0.2, 0.494, 0.550),
        (1e5, 1, 0.499, 0.510), (1e6, 1, 0.4996, 0.503), (1e6, 4, 0.4999, 0.501),
    ],
)  # fmt: skip
def test_flips_and_majorities_of_equal_coordinates(size: float, sigma: float, flip: float, right: float) -> None:
    found = flip_chance(size**-0.5, sigma)
    assert round(found, 4 if size == 1e6 else 3) == flip
    assert round(majority(found, 100), 3) == right


def test_majorities_by_counting() -> None:
    assert majority(0.3, 1) == pytest.approx(0.7)
    assert majority(0.3, 2) == pytest.approx(0.7)
    assert majority(0.3, 3) == pytest.approx(0.7**3 + 3 * 0.7**2 * 0.3)
    assert flip_chance(1, 0) == 0
    with pytest.raises(RangeError, match="voters = 0"):
        majority(0.3, 0)


def worst_on_a_grid(bound: float, apart: float, steps: int = 400) -> float:
    """The same by trying all pairs, both ways around, and both signs."""
    grid = [bound * (2 * i / steps - 1) for i in range(steps + 1)]
    step = round(apart / (2 * bound / steps))
    logs = [[math.log(math.erfc(-side * g / math.sqrt(2)) / 2) for g in grid] for side in (1, -1)]
    return max(abs(one - two) for row in logs for i, one in enumerate(row) for two in row[i : i + step + 1])


def test_the_paper_claim_holds_for_one_bounded_scalar() -> None:
    """RAIN, eq. 8: sigma >= 4 Delta / eps and |g| <= 1.5 sigma give at most 0.49 eps for one coordinate."""
    for epsilon in (0.25, 1.0, 2.0, 4.0):
        apart = epsilon / 4
        loss = one_sign_loss(1.5, apart, 1.0)
        assert loss == pytest.approx(worst_on_a_grid(1.5, apart, 480), rel=1e-9)
        assert loss <= 1.94 * apart <= 0.49 * epsilon
    assert round(one_sign_loss(1.5, 0.25, 1.0), 3) == 0.458
    assert round(one_sign_loss(1.5, 1.0, 1.0), 2) == 1.53


def test_without_the_bound_one_scalar_alone_breaks_it() -> None:
    """Lemma 1 drops |g| <= 1.5 sigma: at |g| = 10 sigma the loss is 2.49 where 1 is claimed, and grows on."""
    assert round(one_sign_loss(10, 0.25, 1.0), 2) == 2.49
    assert round(one_sign_loss(10, 1.0, 1.0), 1) == 9.6
    assert one_sign_loss(100, 0.25, 1.0) > 20


def test_lemma_one_is_wrong_at_epsilon_two() -> None:
    """It says that flips are rarer than 0.15 from eps = 2 on, where |g| >= 2 Delta and sigma = 4 Delta / eps."""
    assert round(flip_chance(2, 4 / 2), 4) == 0.1587
    assert flip_chance(2, 4 / 2) > 0.15
    assert flip_chance(2, 4 / 2.072) > 0.15 > flip_chance(2, 4 / 2.074)
    # Of a clipped coordinate |g| is at most half of Delta.
    assert round(flip_chance(0.5, 4 / 2), 2) == 0.40
    assert flip_chance(0.5, 4 / 8.2) > 0.15 > flip_chance(0.5, 4 / 8.3)
