"""Randomised response: the true signs of a few coordinates, flipped at random, among uniform ones.

A pure mechanism (delta is 0), so that shuffling amplifies it by a theorem (`amplify`), which does not hold for Gaussian
noise. It fits the encoder `signs`, and a description names it (`protocol.privacy = "response"`). Which coordinates show
their sign is not told to anybody, and flips are drawn as integers, so that their chance is exact and never below what
epsilon asks.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field

from croupier.core.coins import Choices, Coins, Ints
from croupier.core.update import Form, Update
from croupier.errors import PrivacyError, RangeError
from croupier.privacy.ledger import Event
from croupier.privacy.local import UNIT, Guarantee, LocalPrivacy, ParticipationCost, rounded_up, times

# Flips are drawn as integers below this, so that their chance is known exactly.
_DRAWS = 1 << 62


class Response(LocalPrivacy, use="response"):
    """Signs: of `coordinates` random coordinates the true one, flipped with a fixed chance; elsewhere a coin's.

    The chosen coordinates do not depend on the data. Nothing on the wire says which they were.
    """

    forms: ClassVar[tuple[Form, ...]] = ("delta",)

    coordinates: int = Field(
        ge=1,
        description="how many random coordinates show their true sign, flipped at random; the others are coin tosses",
    )
    epsilon: float = Field(gt=0, description="epsilon in all, for one participation")

    @property
    def each(self) -> float:
        """The epsilon of one chosen coordinate."""
        return self.epsilon / self.coordinates

    @property
    def below(self) -> int:
        """A draw below this flips a sign: the chance 1 / (1 + e^each), rounded up and so to the safe side."""
        return min(_DRAWS // 2, math.ceil(_DRAWS / (1 + math.exp(min(self.each, 50.0)))) + (1 << 12))

    def __call__(self, update: Update, coins: Coins) -> tuple[Update, ParticipationCost]:
        """The signs. Raises: PrivacyError for whole weights; RangeError when there are fewer coordinates."""
        size = len(update.vector)
        if update.form != "delta":
            raise PrivacyError("privacy = 'response' sends signs of differences; use encode.form = 'delta'")
        if self.coordinates > size:
            raise RangeError(f"privacy.coordinates = {self.coordinates}: the update has only {size}; choose fewer")
        signs = 2 * coins.child("uniform").secure().below(2, size) - 1
        chosen = subset(size, self.coordinates, coins.child("chosen").secure())
        flips = coins.child("flips").secure().below(_DRAWS, self.coordinates) < self.below
        true = np.sign(update.vector.cpu().numpy()[chosen]).astype(np.int64)
        # A coordinate of exactly 0 has no sign: it keeps the coin's.
        signs[chosen] = np.where(true == 0, signs[chosen], np.where(flips, -true, true))
        facts = {"epsilon": self.epsilon, "coordinates": float(self.coordinates)}
        return replace(update, vector=torch.from_numpy(signs.astype(np.float32))), ParticipationCost(self.use, facts)

    def guarantee(self) -> Guarantee:
        """Pure epsilon."""
        return Guarantee(self.epsilon, 0.0)

    def event(self, number: int, model: str = "") -> Event:
        """A pure epsilon."""
        return Event(number, self.use, epsilon=self.epsilon, model=model)

    def entropy(self, size: int) -> float:
        """A bit for every tossed sign, and what the flips give, even where the chosen coordinates are known."""
        kept = math.log2(1 - self.below / _DRAWS)
        return max(0, size - self.coordinates) - min(size, self.coordinates) * kept

    def claims(self, participations: int = 1) -> str:
        """Unit, adjacency, parameters, and epsilon of one participation and of all."""
        more = f"; {rounded_up(participations * self.epsilon)} for {times(participations)}, the most that this run asks"
        return (
            f"unit: {UNIT}. Of {self.coordinates} coordinates, drawn without looking at the data, the sign, flipped "
            f"with chance {self.below / _DRAWS:.4g}; all others are coin tosses. Pure eps = {rounded_up(self.epsilon)} "
            f"for {times(1)} against everybody who sees what a client sends{more if participations > 1 else ''}; "
            "it adds up over participations"
        )


def subset(size: int, count: int, choices: Choices) -> Ints:
    """A uniform subset of range(size), in ascending order: draws, repeated ones left out, until there are enough."""
    if 2 * count > size:
        return np.setdiff1d(np.arange(size), subset(size, size - count, choices))
    drawn = np.empty(0, np.int64)
    while True:
        drawn = np.concatenate([drawn, choices.below(size, count)])
        first = np.sort(np.unique(drawn, return_index=True)[1])
        if len(first) >= count:
            return np.sort(drawn[first[:count]])
