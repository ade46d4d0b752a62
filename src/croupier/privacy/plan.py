"""Planning local privacy before a run: noise, epsilon or participations, any one from the other two.

`croupier plan dp` prints it, and `outlook` asks how often a client will take part. A plan is also a promise: noise that
is computed is rounded up to the digits that are printed, so that a description with those digits is accepted to its
last round. How often a client takes part is a chance where cohorts are drawn; the plan says what to reckon with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context

from croupier.errors import RangeError, option
from croupier.privacy.amplify import HOPELESS, ShuffleGuarantee, amplified, claim, closed_form
from croupier.privacy.gdp import epsilon_of, mu_of, participations_for, sigma_for
from croupier.privacy.local import rounded_up

# The least chance that no client takes part more often than `Turns.likely` says.
SURE = 0.99
CLOSED = "Theorem 3.1 of Feldman, McMillan and Talwar 2021 as printed, not the form of its authors' program"
# Above it numbers end before there is any guarantee.
MOST = 1e12


@dataclass(frozen=True)
class Plan:
    """Gaussian noise on differences clipped to `clip`, and what so many participations of one client cost it."""

    epsilon: float
    sigma: float
    participations: int
    clip: float
    delta: float

    @property
    def mu(self) -> float:
        """What one participation costs in Gaussian differential privacy (mu); sensitivity is twice the clip."""
        return mu_of(self.clip, self.sigma)

    @property
    def one(self) -> float:
        """The epsilon of one participation."""
        return epsilon_of(self.mu, self.delta)

    def after(self, participations: float) -> float:
        """The epsilon of so many participations."""
        return epsilon_of(self.mu * math.sqrt(participations), self.delta)

    @property
    def classical(self) -> float:
        """The noise that the classical formula gives for the epsilon of one participation; shown, never used."""
        return classical_sigma(self.one, self.delta, self.clip) if self.one else math.inf


def planned(epsilon: float | None, sigma: float | None, rounds: int | None, clip: float, delta: float) -> Plan:
    """The missing one of epsilon, sigma and one client's participations (`rounds`).

    Raises: RangeError unless exactly two are given.
    """
    _check(epsilon, sigma, rounds, clip, delta)
    if sigma is None and epsilon is not None and rounds is not None:
        return Plan(epsilon, enough(sigma_for(epsilon, delta, clip, rounds)), rounds, clip, delta)
    if epsilon is None and sigma is not None and rounds is not None:
        if not math.isfinite(found := epsilon_of(mu_of(clip, sigma) * math.sqrt(rounds), delta)):
            raise RangeError(f"sigma = {sigma:g} with clip = {clip:g}: no epsilon is that large; use a larger sigma")
        return Plan(found, sigma, rounds, clip, delta)
    if rounds is None and epsilon is not None and sigma is not None:
        return Plan(epsilon, sigma, _affordable(epsilon, sigma, clip, delta), clip, delta)
    names = [option(name) for name in ("epsilon", "sigma", "rounds")]
    said = f"{names[0]}, {names[1]} and {names[2]}"
    raise RangeError(f"give two of {said} (participations of one client) to get the third")


def enough(sigma: float) -> float:
    """The noise in the six digits that are printed, never less than the noise: a plan must hold as it is read."""
    return float(Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(sigma))


def _check(epsilon: float | None, sigma: float | None, rounds: int | None, clip: float, delta: float) -> None:
    if not (0 < clip < math.inf and 0 < delta < 1):
        raise RangeError(f"clip = {clip:g}, delta = {delta:g}: a clip is above 0, a delta between 0 and 1")
    if sigma is not None and not 0 < sigma < math.inf:
        raise RangeError(f"sigma = {sigma:g}: without noise nothing is guaranteed; a deviation is above 0 and finite")
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise RangeError(f"epsilon = {epsilon:g}: a wished epsilon is above 0 and finite")
    if epsilon is not None and epsilon > MOST:
        raise RangeError(f"epsilon = {epsilon:g}: so large a one guarantees nothing; use a smaller epsilon")
    if rounds is not None and rounds < 1:
        raise RangeError(f"rounds = {rounds}: a client takes part once or more")


def _affordable(epsilon: float, sigma: float, clip: float, delta: float) -> int:
    found = participations_for(epsilon, delta, clip, sigma)
    if found < 1:
        one = rounded_up(epsilon_of(mu_of(clip, sigma), delta))
        raise RangeError(
            f"epsilon = {epsilon:g} with sigma = {sigma:g} and clip = {clip:g}: one participation alone costs {one}; "
            f"the least noise for one is sigma = {enough(sigma_for(epsilon, delta, clip)):.6g}"
        )
    return found


def classical_sigma(epsilon: float, delta: float, clip: float) -> float:
    """2C sqrt(2 ln(1.25 / delta)) / epsilon, proved below epsilon 1 only."""
    return 2 * clip * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


@dataclass(frozen=True)
class Turns:
    """How often one client takes part when some of all are invited at random to every round.

    `expected` on average; with chance `SURE` no client more often than `likely`; and never more often than `most`.
    """

    expected: float
    likely: int
    most: int


def turns(clients: int, cohort: int, total: int) -> Turns:
    """Participations of a client in `total` rounds. Raises: RangeError."""
    if not 1 <= cohort <= clients or total < 1:
        raise RangeError(
            f"clients = {clients}, cohort = {cohort}, total = {total}: a cohort is 1 client or more and at most all, "
            "and there is 1 round or more"
        )
    from scipy.stats import binom

    chance = cohort / clients
    # No client of all more often than this, by adding up their chances.
    likely = int(binom.isf((1 - SURE) / clients, total, chance)) if cohort < clients else total
    return Turns(total * chance, min(likely, total), total)


@dataclass(frozen=True)
class Amplified:
    """What a shuffle of so many honest clients adds to a plan's guarantee.

    `claimed` is in fact always the reason why nothing is: Gaussian noise has a delta, and the theorem takes none.
    For comparison `pure` is what a mechanism without delta would have at the same epsilon, and `closed` what the
    theorem's closed form gives for it, or why it gives nothing.
    """

    claimed: ShuffleGuarantee | str
    pure: float | None
    closed: float | str | None


def shuffled(plan: Plan, honest: int) -> Amplified:
    """Why nothing is claimed for one participation among honest clients, and the clone bound for comparison."""
    one = plan.one
    if not one > 0:
        return Amplified("no amplification claimed: the local epsilon is 0 and cannot be less", None, None)
    claimed = claim(honest, one, plan.delta, plan.delta)
    if one >= HOPELESS:
        return Amplified(claimed, None, None)
    return Amplified(claimed, amplified(honest, one, plan.delta), _closed(honest, one, plan.delta))


def _closed(honest: int, epsilon: float, delta: float) -> float | str:
    try:
        return closed_form(honest, epsilon, delta)
    except RangeError:
        return f"does not hold for {honest} clients and this epsilon"
