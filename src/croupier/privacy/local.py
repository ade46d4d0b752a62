"""Local privacy: what a client does to its update before anything leaves it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.core.tier import Tier
from croupier.core.update import Form, Update


@dataclass(frozen=True)
class Spent:
    """What one participation cost a client, as facts for a ledger; no mechanism means nothing is claimed.

    `facts` are public parameters (mu, clip, ...); `noted` depends on private data and stays with the client.
    """

    mechanism: str = "none"
    facts: Mapping[str, float] = field(default_factory=dict)
    noted: Mapping[str, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) of a client for one participation, where its whole update is replaced by any other."""

    epsilon: float
    delta: float


class LocalPrivacy(Part):
    """Noise and clipping at the client."""

    verb: ClassVar[str] = "privacy"
    # Which forms of an update it can work on; a pipeline that sends another is refused when built.
    forms: ClassVar[tuple[Form, ...]] = ("weights", "delta")

    @abstractmethod
    def __call__(self, update: Update, coins: Coins) -> tuple[Update, Spent]:
        """The update that may travel, and what it cost."""

    @abstractmethod
    def claims(self, participations: int = 1) -> str:
        """The differential-privacy sentence: unit, adjacency and parameters, or that none is claimed."""

    def of(self, name: str) -> LocalPrivacy:
        """The mechanism of one client: the same for all, unless a part says otherwise."""
        return self

    def tier(self, name: str) -> Tier | None:
        """What a client's noise is, where it has any: public, because those who weigh rows by it must know."""
        return None

    def entropy(self, size: int) -> float:
        """At least so many bits of chance lie in the signs of an update of this size, whatever the update is."""
        return 0.0

    def guarantee(self) -> Guarantee | None:
        """What one participation guarantees whatever others do; None where nothing is claimed."""
        return None


class NoNoise(LocalPrivacy, use="none"):
    """The update as it is."""

    def __call__(self, update: Update, coins: Coins) -> tuple[Update, Spent]:
        """The same update, at no cost and with no claim."""
        return update, Spent()

    def claims(self, participations: int = 1) -> str:
        """No noise, no claim."""
        return "no noise is added: no differential privacy is claimed, for records or for clients"


UNIT = "a client; adjacency: its update of a round is replaced by any other"
LARGE = 20.0


def shown(epsilon: float, delta: float = 0.0) -> str:
    """A guarantee in brackets, rounded up; one too large to mean much says so."""
    said = f"({rounded_up(epsilon)}, {delta:g})"
    return f"{said}, too large to promise much" if epsilon > LARGE else said


def rounded_up(value: float) -> str:
    """Four digits, never less than the value: a rounded guarantee must still hold."""
    near = f"{value:.4g}"
    return near if float(near) >= value else f"{value * (1 + 5e-4):.4g}"


def times(participations: int) -> str:
    """So many participations, in words."""
    return "one participation" if participations == 1 else f"{participations} participations"
