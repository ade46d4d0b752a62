"""Heterogeneous local privacy: every client has its own budget, from a public list of tiers.

IntraShuffler's part of this room (the presets whose names begin with `intra`). Tiers are public, wishes are rounded
down to them, and each client adds as much noise as its own tier takes; `release.buckets` then puts clients of like
tiers together, and `place.labels` tells the server each row's noise. Budgets over all participations hold a client back
before it trains.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import ClassVar, Self

from pydantic import Field, model_validator

from croupier.core.coins import Coins
from croupier.core.tier import Tier
from croupier.core.update import Form, Update
from croupier.errors import PrivacyError, SpecError
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.gdp import epsilon_of, participations_for, sigma_for
from croupier.privacy.local import UNIT, GaussianNoise, Guarantee, LocalPrivacy, ParticipationCost, shown, times

Name = str


class Tiers(LocalPrivacy, use="tiers"):
    """Gaussian noise on a clipped difference, as much as each client's tier takes.

    `tiers` is the public list of epsilons of one participation; a client's wish is rounded down to it. `wishes` names
    clients; who is not named is dealt a tier by a hash of its name, so that everybody knows everybody's. `budgets` are
    epsilons of all participations together, one for everybody or one a tier; `totals` names clients with one of their
    own, and the smaller holds. Who would exceed it takes no part.
    IntraShuffler's equation 1, with sensitivity 2 clip and the analytic calibration instead of the classical one.
    """

    forms: ClassVar[tuple[Form, ...]] = ("delta",)

    # Far beyond what updates can be, and squares of it are still numbers.
    clip: float = Field(ge=1e-30, le=1e30, description="the length that an update has at most")
    delta: float = Field(1e-5, gt=0, lt=1, description="the delta of every epsilon here")
    tiers: tuple[float, ...] = Field(
        (0.5, 1.0, 2.0, 4.0, 8.0), description="the epsilons of one participation that clients can have"
    )
    wishes: Mapping[Name, float] = Field(
        default_factory=dict,
        description="clients and the epsilons that they wish, rounded down to a tier; all others get one by a hash of "
        "their name",
    )
    budgets: tuple[float, ...] = Field(
        (), description="epsilons of all participations of a client together: none, one for everybody, or one a tier"
    )
    totals: Mapping[Name, float] = Field(
        default_factory=dict, description="clients with a total of their own; the smaller one holds"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if wrong := next(self._misfits(), None):
            raise SpecError(f"protocol.privacy.{wrong}")
        return self

    def _misfits(self) -> Iterator[str]:
        tiers = self.tiers
        if not tiers or any(not 0 < one < math.inf for one in tiers) or list(tiers) != sorted(set(tiers)):
            yield f"tiers = {list(tiers)}: list epsilons above 0, each once, rising"
            return
        for name, wish in self.wishes.items():
            if not wish >= tiers[0]:
                yield (
                    f"wishes.{name} = {wish:g}: below the lowest tier, {tiers[0]:g}, and a wish is never rounded up; "
                    "add a lower tier, or do not enrol the client"
                )
        if len(self.budgets) not in {0, 1, len(tiers)}:
            yield f"budgets = {list(self.budgets)}: give none, one for all, or one for each of the {len(tiers)} tiers"
            return
        for tier in tiers:
            most = self.budget(tier)
            if most is not None and not tier <= most < math.inf:
                yield (
                    f"budgets = {list(self.budgets)}: one participation in tier {tier:g} costs {tier:g}, so {most:g} "
                    "is no total for it; raise it, or leave that tier out"
                )
        for name, most in self.totals.items():
            if not self.epsilon(name) <= most < math.inf:
                yield (
                    f"totals.{name} = {most:g}: one participation in its tier costs {self.epsilon(name):g}; raise it, "
                    f"or set wishes.{name} to {most:g} or less"
                )

    def epsilon(self, name: Name) -> float:
        """The tier that a client is in, by its wish rounded down or by its name."""
        if name in self.wishes:
            return max(one for one in self.tiers if one <= self.wishes[name])
        drawn = hashlib.sha256(b"croupier/1 tier" + name.encode()).digest()
        return self.tiers[int.from_bytes(drawn[:8], "big") % len(self.tiers)]

    @property
    def differs(self) -> bool:
        """With more than one tier."""
        return len(self.tiers) > 1

    def mentions(self) -> Mapping[str, str]:
        """Whose wishes and totals are given."""
        said = {"wishes": self.wishes, "totals": self.totals}
        return {name: f"protocol.privacy.{key}.{name}" for key, held in said.items() for name in held}

    def of(self, name: Name) -> Gaussian:
        """The mechanism of one client."""
        return self._mechanism(self.epsilon(name))

    def tier(self, name: Name) -> Tier:
        """A client's public tier."""
        return _tier(self.epsilon(name), self.delta, self.clip)

    @property
    def sigmas(self) -> tuple[float, ...]:
        """Every deviation that there may be, by rising epsilon."""
        return tuple(_tier(one, self.delta, self.clip).sigma for one in self.tiers)

    def as_tiers(self) -> Tiers:
        """Itself: this is the mechanism with tiers."""
        return self

    def budget(self, tier: float) -> float | None:
        """The total of everybody in a tier."""
        if not self.budgets:
            return None
        return self.budgets[0 if len(self.budgets) == 1 else self.tiers.index(tier)]

    def limit(self, name: Name) -> float | None:
        """A client's own total or its tier's, whichever is smaller."""
        found = [most for most in (self.totals.get(name), self.budget(self.epsilon(name))) if most is not None]
        return min(found) if found else None

    def limited_by(self, name: Name) -> str:
        """Where the smaller total stands."""
        own = name in self.totals and self.totals[name] == self.limit(name)
        return f"protocol.privacy.totals.{name}" if own else "protocol.privacy.budgets"

    def __call__(self, update: Update, coins: Coins) -> tuple[Update, ParticipationCost]:
        """Raises: PrivacyError, because noise is a client's own: ask `of`."""
        raise PrivacyError("privacy = 'tiers' noises as each client's tier says; ask of(name) for one client's noise")

    def guarantee(self) -> Guarantee:
        """Of the client with the weakest tier: what holds for everybody."""
        return Guarantee(self.tiers[-1], self.delta)

    def entropy(self, size: int) -> float:
        """Of the client with the weakest tier."""
        return self._mechanism(self.tiers[-1]).entropy(size)

    def claims(self, participations: int = 1) -> str:
        """Unit, adjacency, clip, and tier by tier the noise, one participation and the most that a run asks."""
        return (
            f"unit: {UNIT}. Differences are clipped to C = {self.clip:g}; sensitivity 2C, noise by the analytic "
            f"Gaussian mechanism (the classical formula is not used), mu sqrt(T) after T participations; (eps, delta) "
            f"of a client against everybody who sees what it sends, by Gaussian DP. "
            f"{'; '.join(self._tier_claim(tier, participations) for tier in self.tiers)}. Tiers are public. That only "
            "some clients are invited to a round amplifies nothing here. A client keeps its own guarantee whatever "
            "others' rows its own is mixed with. Noise counts as real numbers, without their rounding"
        )

    def _tier_claim(self, tier: float, participations: int) -> str:
        one, most = self._mechanism(tier), self.budget(tier)
        said = f"tier {tier:g}: sigma = {one.sigma:.4g}, mu = {one.mu:.4g}, {shown(tier, self.delta)} for {times(1)}"
        if most is not None:
            affordable = participations_for(most, self.delta, self.clip, one.sigma)
            said += f", a total of {most:g} allows {times(affordable)}"
            participations = min(participations, affordable)
        if participations == 1:
            return said
        spent = epsilon_of(one.mu * math.sqrt(participations), self.delta)
        return f"{said}, {shown(spent, self.delta)} for {times(participations)}"

    def gaussian(self) -> GaussianNoise:
        """Every tier's."""
        each = tuple((one, sigma_for(one, self.delta, self.clip)) for one in self.tiers)
        return GaussianNoise(self.clip, self.delta, each)

    def composition(self, counts: Iterable[int]) -> dict[str, dict[str, float]]:
        """Epsilon by tier and number of participations."""
        return {
            f"{tier:g}": {
                str(count): epsilon_of(self._mechanism(tier).mu * math.sqrt(count), self.delta) for count in counts
            }
            for tier in self.tiers
        }

    def _mechanism(self, tier: float) -> Gaussian:
        return Gaussian(clip=self.clip, sigma=_tier(tier, self.delta, self.clip).sigma, delta=self.delta)


@lru_cache(maxsize=1 << 10)
def _tier(epsilon: float, delta: float, clip: float) -> Tier:
    return Tier(epsilon, sigma_for(epsilon, delta, clip))
