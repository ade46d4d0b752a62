"""Heterogeneous local privacy: every client has its own budget, from a public list of tiers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar, Self

from pydantic import Field, model_validator

from croupier.core.coins import Coins
from croupier.core.tier import Tier
from croupier.core.update import Form, Update
from croupier.errors import PrivacyError, SpecError
from croupier.privacy.gaussian import Gaussian
from croupier.privacy.gdp import sigma_for
from croupier.privacy.local import Guarantee, LocalPrivacy, Spent, shown

Name = str


class Tiers(LocalPrivacy, use="tiers"):
    """Gaussian noise on a clipped difference, as much as each client's tier takes.

    `tiers` is the public list of epsilons of one participation; a client's wish is rounded down to it. `wishes` names
    clients; who is not named is dealt a tier by a hash of its name, so that everybody knows everybody's.
    From: IntraShuffler eq. 1, with sensitivity 2 clip and the analytic calibration instead of the classical one.
    """

    forms: ClassVar[tuple[Form, ...]] = ("delta",)

    clip: float = Field(gt=0)
    delta: float = Field(1e-5, gt=0, lt=1)
    tiers: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    wishes: Mapping[Name, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _listed(self) -> Self:
        if not self.tiers or any(not one > 0 for one in self.tiers) or list(self.tiers) != sorted(set(self.tiers)):
            raise SpecError(f"protocol.privacy.tiers = {list(self.tiers)}: list epsilons above 0, each once, rising")
        for name, wish in self.wishes.items():
            if wish < self.tiers[0]:
                raise SpecError(
                    f"protocol.privacy.wishes.{name} = {wish:g}: below the lowest tier, {self.tiers[0]:g}, and a wish "
                    "is never rounded up; add a lower tier, or leave the client out"
                )
        return self

    def epsilon(self, name: Name) -> float:
        """The tier that a client is in, by its wish rounded down or by its name."""
        if name in self.wishes:
            return max(one for one in self.tiers if one <= self.wishes[name])
        drawn = hashlib.sha256(b"croupier/1 tier" + name.encode()).digest()
        return self.tiers[int.from_bytes(drawn[:8], "big") % len(self.tiers)]

    def of(self, name: Name) -> Gaussian:
        """The mechanism of one client."""
        return Gaussian(clip=self.clip, sigma=self.tier(name).sigma, delta=self.delta)

    def tier(self, name: Name) -> Tier:
        """A client's public tier."""
        return _tier(self.epsilon(name), self.delta, self.clip)

    def __call__(self, update: Update, coins: Coins) -> tuple[Update, Spent]:
        """Raises: PrivacyError, because noise is a client's own: ask `of`."""
        raise PrivacyError("privacy = 'tiers' noises as each client's tier says; ask of(name) for one client's noise")

    def guarantee(self) -> Guarantee:
        """Of the client with the weakest tier: what holds for everybody."""
        return Guarantee(self.tiers[-1], self.delta)

    def claims(self, participations: int = 1) -> str:
        """Tier by tier."""
        return f"tiers {', '.join(shown(one, self.delta) for one in self.tiers)}"


@lru_cache(maxsize=1 << 10)
def _tier(epsilon: float, delta: float, clip: float) -> Tier:
    return Tier(epsilon, sigma_for(epsilon, delta, clip))
