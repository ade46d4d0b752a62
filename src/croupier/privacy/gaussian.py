"""Gaussian noise on a clipped difference: local privacy of a whole client, with the exact accounting of the Gaussian.

The mechanism works on the difference to the model that was handed out, never on weights: only a difference has a length
that can be bounded. Clipping and noise are in double precision, from secure coins, block by block. How often a client's
updates were clipped depends on its data, and is told to the client alone. `tiers` is the same with a deviation for each
client, and `gdp` has the accounting. RAIN uses it (presets `rain` and `rain-honest`, `systems.rain`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from croupier.core.coins import BLOCK, Coins
from croupier.core.norm import length
from croupier.core.tier import Tier
from croupier.core.update import Form, Update
from croupier.errors import PrivacyError, SpecError
from croupier.kernels.threads import over
from croupier.privacy.gdp import epsilon_of, mu_of
from croupier.privacy.ledger import Event
from croupier.privacy.local import (
    UNIT,
    GaussianNoise,
    Guarantee,
    LocalPrivacy,
    ParticipationCost,
    rounded_up,
    shown,
    times,
)

NOT_USED = (
    "The paper's claim (RAIN), (eps, 0) where sigma > max(2|g|/3, 4 Delta/eps), is for one coordinate and, as stated "
    "there, depends on the data: not used"
)


class Gaussian(LocalPrivacy, use="gaussian"):
    """The difference clipped to a length, and normal noise of a fixed deviation on every coordinate.

    What follows (signs, rounding, shuffles, sums) is made of the noised difference and costs nothing more. `budget` is
    the epsilon of all participations of a client at `delta`; who would exceed it takes no part.
    RAIN's equation 5 before its sign; accounted for the whole vector with sensitivity 2 clip, not by coordinates.
    """

    forms: ClassVar[tuple[Form, ...]] = ("delta",)

    clip: float = Field(ge=1e-30, le=1e30, description="the length that an update has at most")
    sigma: float = Field(ge=0, description="deviation of the noise on every coordinate")
    delta: float = Field(1e-5, gt=0, lt=1, description="the delta for which epsilon is printed")
    budget: float | None = Field(
        None,
        gt=0,
        description="the epsilon of all participations of a client together; who would exceed it takes no part; none "
        "unless set",
    )

    @model_validator(mode="after")
    def _affordable(self) -> Self:
        if self.budget is None:
            return self
        one = epsilon_of(self.mu, self.delta)
        if one > self.budget * (1 + 1e-9):
            costs = f"one participation costs epsilon {rounded_up(one)}" if self.sigma else "there is no noise"
            raise SpecError(f"protocol.privacy.budget = {self.budget:g}: {costs}; raise it, or sigma")
        return self

    def __call__(self, update: Update, coins: Coins) -> tuple[Update, ParticipationCost]:
        """The noised difference. Raises: PrivacyError for whole weights."""
        if update.form != "delta":
            raise PrivacyError("privacy = 'gaussian' clips differences, not weights; use encode.form = 'delta'")
        size = length(update.vector)
        values = update.vector.cpu().numpy()
        noised = np.empty(len(values), np.float32)
        factor = self.clip / size if size > self.clip else None

        def part(first: int, last: int) -> None:
            # A block at a time: no copy of the whole in double precision.
            for start in range(first, last, BLOCK):
                some = values[start : start + BLOCK].astype(np.float64)
                if factor is not None:
                    some *= factor
                if self.sigma > 0:
                    some += self.sigma * coins.child("block", start // BLOCK).secure().normal(len(some))
                noised[start : start + BLOCK] = some

        if self.sigma > 0:
            coins.export()  # derived here, and not by several threads at once
        over(len(values), BLOCK, part)
        facts = {"clip": self.clip, "sigma": self.sigma} | ({"mu": self.mu} if self.sigma > 0 else {})
        sent = replace(update, vector=torch.from_numpy(noised))
        return sent, ParticipationCost(self.use, facts, {"clipped_updates": int(size > self.clip)})

    def tier(self, name: str) -> Tier | None:
        """The same for everybody."""
        return Tier(epsilon_of(self.mu, self.delta), self.sigma) if self.sigma > 0 else None

    def gaussian(self) -> GaussianNoise:
        """One tier."""
        return GaussianNoise(self.clip, self.delta, ((epsilon_of(self.mu, self.delta), self.sigma),))

    @property
    def mu(self) -> float:
        """The mu of one participation."""
        return mu_of(self.clip, self.sigma)

    def guarantee(self) -> Guarantee | None:
        """By the exact curve of the Gaussian; none without noise."""
        return Guarantee(epsilon_of(self.mu, self.delta), self.delta) if self.sigma > 0 else None

    def event(self, number: int, model: str = "") -> Event | None:
        """A Gaussian; nothing without noise."""
        if self.sigma == 0:
            return None
        return Event(number, self.use, mu=self.mu, clip=self.clip, sigma=self.sigma, model=model)

    def limit(self, name: str) -> float | None:
        """The same for everybody."""
        return self.budget

    def entropy(self, size: int) -> float:
        """Bits of chance in the signs: for a difference of the clip's length they are least when all coordinates agree.

        A coordinate of a times sigma keeps its sign with chance Phi(|a|) at most, and -log Phi(sqrt(u)) is convex in u.
        """
        if self.sigma == 0:
            return 0.0
        from scipy.special import log_ndtr

        return float(-size * log_ndtr(self.clip / (self.sigma * math.sqrt(size))) / math.log(2))

    def claims(self, participations: int = 1) -> str:
        """Unit, adjacency, parameters, and (epsilon, delta) of one participation and of all."""
        how = f"differences are clipped to C = {self.clip:g}"
        if self.sigma == 0:
            return f"{how} and no noise is added: no differential privacy is claimed, for records or for clients"
        said = [f"{times(1)}: {shown(epsilon_of(self.mu, self.delta), self.delta)}"]
        if participations > 1:
            total = self.mu * math.sqrt(participations)
            spent = shown(epsilon_of(total, self.delta), self.delta)
            said += [f"{times(participations)}, the most that this run asks of a client: mu = {total:.4g}, {spent}"]
        limit = "" if self.budget is None else f" A client stops before all of them cost more than {self.budget:g}."
        return (
            f"unit: {UNIT}. {how[0].upper()}{how[1:]}, noise of deviation sigma = {self.sigma:g} on each coordinate; "
            f"sensitivity 2C, mu = 2C/sigma = {self.mu:.4g}, and mu sqrt(T) after T participations. (eps, delta) "
            f"against everybody who sees what a client sends, by Gaussian DP, for {'; for '.join(said)}. Noise "
            f"counts as real numbers, without their rounding.{limit} {NOT_USED}"
        )
