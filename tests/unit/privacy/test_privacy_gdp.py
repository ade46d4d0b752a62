"""The Gaussian curve against printed tables, against mpmath and against Google's accountant."""

from __future__ import annotations

import math

import pytest

from croupier.errors import RangeError
from croupier.privacy.gdp import composed, delta_of, epsilon_of, mu_for, mu_of, sigma_for

DELTA = 1e-5
mpmath = pytest.importorskip("mpmath")


def exact(mu: float, epsilon: float) -> float:
    """The printed formula, with a hundred digits."""
    with mpmath.workdps(100):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        a, b = m / 2 - e / m, -m / 2 - e / m
        return float(mpmath.ncdf(a) - mpmath.exp(e) * mpmath.ncdf(b))


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 3.0, 30.0, 200.0])
@pytest.mark.parametrize("factor", [0.0, 0.2, 1.0, 3.0])
def test_delta_is_the_printed_formula(mu: float, factor: float) -> None:
    epsilon = factor * (mu * mu / 2 + 2 * mu)
    assert delta_of(mu, epsilon) == pytest.approx(exact(mu, epsilon), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("mu", [1e-4, 0.01, 1.0, 10.0, 100.0, 440.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-10])
def test_epsilon_is_the_inverse_rounded_up(mu: float, delta: float) -> None:
    epsilon = epsilon_of(mu, delta)
    assert delta_of(mu, epsilon) <= delta
    if epsilon > 0:
        assert exact(mu, epsilon * (1 - 1e-6)) > delta
        assert exact(mu, epsilon * (1 + 1e-6)) <= delta


def test_no_noise_and_much_noise() -> None:
    assert mu_of(1, 0) == math.inf
    assert epsilon_of(math.inf, DELTA) == math.inf
    assert delta_of(math.inf, 5) == 1
    assert delta_of(0, 0) == 0
    assert epsilon_of(1e-6, DELTA) == 0


@pytest.mark.parametrize(("sigma", "printed", "digits"), [(0.01, 20852, 0), (0.2, 91.8, 1), (1, 10.0, 1), (4, 2.0, 1)])
def test_local_epsilon_at_clip_one(sigma: float, printed: float, digits: int) -> None:
    assert round(epsilon_of(mu_of(1, sigma), DELTA), digits) == printed


ANALYTIC = {0.1: 30.75, 0.5: 7.032, 1: 3.731, 2: 1.994, 4: 1.081, 8: 0.600, 16: 0.344}


@pytest.mark.parametrize(("epsilon", "printed"), ANALYTIC.items())
def test_least_noise_of_sensitivity_one(epsilon: float, printed: float) -> None:
    assert sigma_for(epsilon, DELTA, clip=0.5) == pytest.approx(printed, abs=0.006 if epsilon < 0.5 else 0.0006)
    assert sigma_for(epsilon, DELTA, clip=1) == pytest.approx(2 * sigma_for(epsilon, DELTA, clip=0.5))


@pytest.mark.parametrize(
    ("participations", "row"),
    [
        (5, (1.21, 2.44, 5.00, 10.4, 22.2)),
        (10, (1.77, 3.62, 7.54, 16.1, 35.6)),
        (50, (4.41, 9.36, 20.8, 48.5, 119)),
    ],
)
def test_composition(participations: int, row: tuple[float, ...]) -> None:
    for epsilon, printed in zip((0.5, 1, 2, 4, 8), row, strict=True):
        mu = composed([mu_for(epsilon, DELTA)] * participations)
        assert float(f"{epsilon_of(mu, DELTA):.3g}") == printed
        sigma = sigma_for(epsilon, DELTA, 1, participations)
        assert epsilon_of(composed([mu_of(1, sigma)] * participations), DELTA) == pytest.approx(epsilon, rel=1e-9)


def test_neighbours_are_twice_the_clip_apart() -> None:
    """Noise for sensitivity C where updates are replaced guarantees this much less."""
    found = [epsilon_of(2 * mu_for(epsilon, DELTA), DELTA) for epsilon in (0.5, 1, 2, 4, 8)]
    assert [float(f"{epsilon:.3g}") for epsilon in found] == [1.07, 2.15, 4.39, 9.08, 19.1]


def test_the_classical_formula_fails_for_large_epsilon() -> None:
    def true(epsilon: float, delta: float = DELTA) -> float:
        return epsilon_of(epsilon / math.sqrt(2 * math.log(1.25 / delta)), delta)

    assert [float(f"{true(epsilon):.3g}") for epsilon in (8, 10, 16, 20, 50)] == [7.91, 10.4, 18.9, 25.4, 96.4]
    assert (round(true(8, 1e-2), 1), round(true(8, 1e-3), 1)) == (8.6, 8.2)


@pytest.mark.parametrize(("sigma", "participations"), [(4.0, 1), (2.0, 10), (20.0, 50), (0.5, 3)])
def test_googles_accountant_says_the_same(sigma: float, participations: int) -> None:
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    event = accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(sigma / 2), participations)
    accountant = pld.PLDAccountant(accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    theirs = accountant.compose(event).get_epsilon(DELTA)
    ours = epsilon_of(composed([mu_of(1, sigma)] * participations), DELTA)
    assert ours == pytest.approx(theirs, rel=2e-3)
    assert theirs >= ours * (1 - 1e-6)
    assert accounting.get_epsilon_gaussian(sigma / 2 / math.sqrt(participations), DELTA) == pytest.approx(
        ours, rel=1e-6
    )


@pytest.mark.parametrize(("mu", "delta"), [(1, 0), (1, 1), (-1, 0.1), (math.nan, 0.1)])
def test_what_is_no_guarantee_is_refused(mu: float, delta: float) -> None:
    with pytest.raises(RangeError):
        epsilon_of(mu, delta)


def test_wishes_that_cannot_be() -> None:
    with pytest.raises(RangeError, match="epsilon = 0"):
        mu_for(0, DELTA)
    with pytest.raises(RangeError, match="participations = 0"):
        sigma_for(1, DELTA, 1, 0)
    with pytest.raises(RangeError, match="clip = -1"):
        mu_of(-1, 1)
