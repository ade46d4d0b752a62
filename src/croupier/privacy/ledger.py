"""The ledger of one client: what it released, round by round, and what all of that together guarantees it.

Gaussian releases compose exactly (mu-GDP, by Dong, Roth and Su 2022, also where one depends on what came before), pure
ones add up, and one of each kind costs the sum of both. The unit is part of every event: what protects a whole client
and what protects one of its records are never added up.

A ledger lies in a client's memory and only grows: an event is written down before the message leaves
(`engine.journal`), and a client whose total would be exceeded refuses before it trains (`LocalPrivacy.admit`).
`pipeline` keeps it, `accounts` makes the tables of a run, and `outlook` reckons ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self

from croupier.errors import PrivacyError, RangeError
from croupier.privacy import losses
from croupier.privacy.gdp import composed, epsilon_of

Unit = Literal["client", "record"]
Method = Literal["gdp", "pld"]

# What may differ between two worlds that a guarantee makes hard to tell apart, by what is protected.
ADJACENCY: Mapping[Unit, str] = {
    "client": "its update of a round is replaced by any other",
    # Zero-out: steps and rate follow from the number of records, so nothing is proved where that number differs.
    "record": "one record of one client is left out of all its sums (its gradient counts for nothing); how many "
    "records the client has stays the same, and is public",
}


@dataclass(frozen=True)
class Event:
    """One release of one client: a Gaussian by its `mu`, anything else by its (epsilon, delta).

    `model` is the digest of the model that the release answers, and `participation` counts the updates that the client
    made before: the same noise on the same update is the same release, however often it is sent, and a round that is
    played anew is another. With a `rate` below 1, each of `steps` Gaussians sees each record with that chance.
    """

    round: int
    mechanism: str
    unit: Unit = "client"
    mu: float | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    clip: float | None = None
    sigma: float | None = None
    model: str = ""
    rate: float = 1.0
    steps: int = 1
    participation: int = 0

    def __post_init__(self) -> None:
        if self.unit not in ADJACENCY:
            raise RangeError(f"unit = {self.unit!r}: a release protects a 'client' or a 'record'")
        if (self.mu is None) == (self.epsilon == 0) or (self.mu is not None and self.delta):
            raise RangeError(
                f"mu = {self.mu}, epsilon = {self.epsilon:g}, delta = {self.delta:g}: a release has a mu, or an "
                "epsilon above 0 and perhaps a delta"
            )
        if not ((self.mu is None or self.mu > 0) and self.epsilon >= 0 and 0 <= self.delta < 1):
            raise RangeError(f"mu = {self.mu}, epsilon = {self.epsilon}, delta = {self.delta}: none is below 0")
        if not (0 < self.rate <= 1 and self.steps >= 1) or (self.mu is None and (self.rate, self.steps) != (1.0, 1)):
            raise RangeError(f"rate = {self.rate}, steps = {self.steps}: a chance, and 1 or more, of Gaussians only")

    def plain(self) -> dict[str, Any]:
        """As plain values, for a memory."""
        # Every field is a single value, which needs no copy.
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Ledger:
    """Everything that one client released."""

    events: tuple[Event, ...] = ()

    @classmethod
    def read(cls, plain: Iterable[Mapping[str, Any]]) -> Self:
        """From plain values."""
        return cls(tuple(Event(**one) for one in plain))

    def plain(self) -> tuple[dict[str, Any], ...]:
        """As plain values, for a memory."""
        return tuple(event.plain() for event in self.events)

    def add(self, event: Event) -> Ledger:
        """With one more release; one that was made before is the same, and costs nothing again."""
        return self if event in self.events else Ledger((*self.events, event))

    def epsilon(self, delta: float, by: Method = "gdp") -> float:
        """The epsilon of all releases together. Raises: PrivacyError where they do not compose.

        By `gdp` it is exact for Gaussians that see every record, and refuses others; by `pld`, with the extra `dp`, an
        upper bound for everything.
        """
        units = sorted({event.unit for event in self.events})
        if len(units) > 1:
            raise PrivacyError(
                "a ledger with releases of a client and of a record: they protect different things and never compose; "
                "keep a ledger of each"
            )
        if not 0 <= delta < 1:
            raise RangeError(f"delta = {delta}: it lies between 0 and 1")
        if not self.events:
            return 0.0
        if by not in ("gdp", "pld"):
            raise RangeError(f"by = {by!r}: epsilon is computed by 'gdp' or 'pld'")
        return self._by_losses(delta) if by == "pld" else self._exact(delta)

    def _exact(self, delta: float) -> float:
        if any(event.rate < 1 for event in self.events):
            raise PrivacyError(
                "releases of sampled records have no mu of their own; use by = 'pld' (pip install 'croupier[dp]')"
            )
        mu = composed(event.mu * math.sqrt(event.steps) for event in self.events if event.mu is not None)
        added, left = sum(event.epsilon for event in self.events), delta - sum(event.delta for event in self.events)
        if mu == 0:
            return added if left >= 0 else math.inf
        return added + _gaussian(mu, left) if left > 0 else math.inf

    def _by_losses(self, delta: float) -> float:
        noised = [(event.mu, event.rate, event.steps) for event in self.events if event.mu is not None]
        others = [(event.epsilon, event.delta) for event in self.events if event.mu is None]
        return losses.epsilon(noised, others, delta)


# Clients of one tier that took part equally often have spent the same, and there may be thousands of them.
_gaussian = lru_cache(maxsize=1 << 12)(epsilon_of)
