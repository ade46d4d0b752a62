"""A plan's three numbers follow from each other, and participations are counted honestly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from croupier.errors import RangeError
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.gdp import epsilon_of, mu_of
from croupier.privacy.ledger import Ledger
from croupier.privacy.local import rounded_up
from croupier.privacy.plan import SURE, classical_sigma, planned, shuffled, turns

DELTA = 1e-5


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("rounds", [1, 5, 50])
def test_any_one_from_the_others(epsilon: float, rounds: int) -> None:
    plan = planned(epsilon, None, rounds, 1.5, DELTA)
    assert planned(None, plan.sigma, rounds, 1.5, DELTA).epsilon == pytest.approx(epsilon, rel=2e-5)
    assert planned(epsilon, plan.sigma, None, 1.5, DELTA).participations == rounds
    assert plan.after(rounds) == pytest.approx(epsilon, rel=2e-5)
    assert plan.after(rounds) <= epsilon
    assert plan.one <= epsilon * (1 + 1e-12)


EPSILONS, ROUNDS = (0.1, 0.5, 1.0, 2.5, 8.0, 30.0), (1, 2, 5, 17, 100)


@pytest.mark.parametrize("clip", [1.0, 0.37])
@pytest.mark.parametrize("delta", [1e-5, 1e-7])
def test_a_plan_as_it_is_printed_is_accepted_to_its_last_round(clip: float, delta: float) -> None:
    """Sixty plans of noise and sixty of participations: what the command prints, put into a description."""
    for epsilon in EPSILONS:
        for rounds in ROUNDS:
            plan = planned(epsilon, None, rounds, clip, delta)
            assert _admitted(f"{plan.sigma:.6g}", clip, delta, epsilon, rounds) == rounds
            given = float(f"{1.1 * plan.sigma:.3g}")
            found = planned(epsilon, given, None, clip, delta).participations
            assert _admitted(f"{given:.6g}", clip, delta, epsilon, found) == found
            printed = rounded_up(planned(None, given, rounds, clip, delta).epsilon)
            assert _admitted(f"{given:.6g}", clip, delta, float(printed), rounds) == rounds


def _admitted(sigma: str, clip: float, delta: float, budget: float, rounds: int) -> int:
    """How many rounds a client with this total admits."""
    local, ledger = Gaussian(clip=clip, sigma=float(sigma), delta=delta, budget=budget), Ledger()
    for number in range(rounds):
        event = local.event(number, f"{number}")
        assert event is not None
        ledger = local.admit("c0", ledger, event)
    return len(ledger.events)


def test_the_classical_formula_stands_beside() -> None:
    printed = {0.1: 48.45, 0.5: 9.690, 1: 4.845, 2: 2.422, 4: 1.211, 8: 0.606, 16: 0.303}
    for epsilon, sigma in printed.items():
        assert classical_sigma(epsilon, DELTA, 0.5) == pytest.approx(sigma, abs=0.006 if epsilon < 0.5 else 0.0006)
    plan = planned(16.0, None, 1, 0.5, DELTA)
    assert plan.sigma == pytest.approx(0.344, abs=0.0006)
    assert plan.sigma > plan.classical, "the classical noise is too little here"
    assert float(f"{epsilon_of(mu_of(0.5, plan.classical), DELTA):.3g}") == 18.9


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((1.0, None, None, 1.0, DELTA), "give two of"),
        ((None, None, None, 1.0, DELTA), "give two of"),
        ((1.0, 4.0, 3, 1.0, DELTA), "give two of"),
        ((1.0, 4.0, None, 1.0, DELTA), r"one participation alone costs 1\.994; the least noise .* sigma = 7\.46127"),
        ((None, 0.0, 1, 1.0, DELTA), "sigma = 0"),
        ((-1.0, None, 1, 1.0, DELTA), "epsilon = -1"),
        ((1.0, None, 0, 1.0, DELTA), "rounds = 0"),
        ((1.0, None, 1, 0.0, DELTA), "clip = 0"),
        ((1.0, None, 1, 1.0, 1.0), "delta = 1"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused(given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(RangeError, match=said):
        planned(*given)


def test_participations_are_those_of_sampling() -> None:
    """Twenty of 200, fifty times: the bound on everybody's count holds in at least 99 of 100 draws."""
    found = turns(200, 20, 50)
    assert (found.expected, found.most) == (5, 50)
    draw = np.random.default_rng(1)
    tries = 400
    most = [
        np.bincount(np.concatenate([draw.choice(200, 20, replace=False) for _ in range(50)]), minlength=200).max()
        for _ in range(tries)
    ]
    assert np.mean(np.array(most) <= found.likely) >= SURE - 0.015
    assert max(most) > found.expected
    assert turns(10, 10, 7) == turns(10, 10, 7).__class__(7, 7, 7)
    for wrong in ((10, 11, 5), (10, 0, 5), (10, 5, 0)):
        with pytest.raises(RangeError, match=f"cohort = {wrong[1]}"):
            turns(*wrong)


def test_the_known_answer_and_the_closed_form_that_is_used() -> None:
    found = shuffled(planned(4.0, None, 1, 1.0, 1e-6), 10**5)
    assert isinstance(found.claimed, str), "Gaussian rows have a delta of their own"
    assert found.pure is not None
    assert 0.16754 < found.pure < 0.17279
    assert found.pure == pytest.approx(0.16977, abs=1e-4)
    assert isinstance(found.closed, float)
    assert round(found.closed, 5) == 0.53463


def test_the_other_closed_form_is_not_ours() -> None:
    """The form of the authors' program: it solves for epsilon with 1 + e^(-eps0 - eps) below the line."""
    n, local, delta = 10**5, 4.0, 1e-6
    a = 8 * math.sqrt(math.exp(local) * math.log(4 / delta) / n)
    b = 8 * math.exp(local) / n
    assert round(math.log(1 + math.expm1(local) / (math.exp(local) + 1) * (a + b)), 5) == 0.53463
    other = math.log(1 + (1 - math.exp(-local)) / (1 + math.exp(-local - 0.5378)) * (a + b))
    assert round(other, 4) == 0.5378


def test_no_shuffle_helps_small_cohorts_or_large_epsilons() -> None:
    few = shuffled(planned(2.0, None, 1, 1.0, DELTA), 20)
    assert few.pure == pytest.approx(2.0, abs=1e-3)
    assert few.closed == "does not hold for 20 clients and this epsilon"
    large = shuffled(planned(20.0, None, 1, 1.0, DELTA), 1000)
    assert large.pure is None
    assert "too large for 1000 clients" in str(large.claimed)
    none = shuffled(planned(None, 1e9, 1, 1.0, DELTA), 1000)
    assert "cannot be less" in str(none.claimed)
