"""Local privacy: what a client does to its update before anything leaves it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.core.update import Update


@dataclass(frozen=True)
class Spent:
    """What one participation cost a client, as a fact for a ledger; no mechanism means nothing is claimed."""

    mechanism: str = "none"


class LocalPrivacy(Part):
    """Noise and clipping at the client."""

    verb: ClassVar[str] = "privacy"

    @abstractmethod
    def __call__(self, update: Update, coins: Coins) -> tuple[Update, Spent]:
        """The update that may travel, and what it cost."""

    @abstractmethod
    def claims(self) -> str:
        """The differential-privacy sentence: unit, adjacency and parameters, or that none is claimed."""

    def entropy(self, size: int) -> float:
        """At least so many bits of chance lie in the signs of an update of this size, whatever the update is."""
        return 0.0


class NoNoise(LocalPrivacy, use="none"):
    """The update as it is."""

    def __call__(self, update: Update, coins: Coins) -> tuple[Update, Spent]:
        """The same update, at no cost and with no claim."""
        return update, Spent()

    def claims(self) -> str:
        """No noise, no claim."""
        return "no noise is added: no differential privacy is claimed, for records or for clients"
