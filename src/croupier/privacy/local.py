"""Local privacy: what a client does to its update before anything leaves it.

The part `LocalPrivacy` is the first of a pipeline's five: it changes the update, says what that cost
(`ParticipationCost`), which guarantee it gives, and in which words. `pipeline` asks `admit` before a client trains and
applies the noise before anything leaves; `statement` prints what it claims. `NoNoise` is the default and claims
nothing. The small helpers at the end are how all sentences here show numbers: rounded up, and with a remark where an
epsilon is too large to mean much.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, ClassVar

from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.core.tier import Tier
from croupier.core.update import Form, Update
from croupier.errors import Overspent
from croupier.privacy.ledger import ADJACENCY, Event, Ledger

if TYPE_CHECKING:
    from croupier.privacy.tiers import Tiers

# A budget that is met exactly must not be missed by the rounding of sigma.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ParticipationCost:
    """By which mechanism a client's update was changed; with mechanism "none" nothing is claimed.

    `facts` are its public parameters (mu, clip, ...; a ledger keeps an `Event` instead). `noted` depends on private
    data and stays with the client.
    """

    mechanism: str = "none"
    facts: Mapping[str, float] = field(default_factory=dict)
    noted: Mapping[str, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) of a client for one participation, where its whole update is replaced by any other."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class GaussianNoise:
    """Normal noise on clipped differences: each tier's epsilon of one participation, and its deviation."""

    clip: float
    delta: float
    tiers: tuple[tuple[float, float], ...]


class LocalPrivacy(Part):
    """Noise and clipping at the client."""

    verb: ClassVar[str] = "privacy"
    lies_in: ClassVar[str] = "croupier.privacy"
    # Which forms of an update it can work on; a pipeline that sends another is refused when built.
    forms: ClassVar[tuple[Form, ...]] = ("weights", "delta")
    # Whether it leaves updates as they are.
    noiseless: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, update: Update, coins: Coins) -> tuple[Update, ParticipationCost]:
        """The update that may travel, and what it cost."""

    @abstractmethod
    def claims(self, participations: int = 1) -> str:
        """The differential-privacy sentence: unit, adjacency and parameters, or that none is claimed."""

    def of(self, name: str) -> LocalPrivacy:
        """The mechanism of one client: the same for all, unless a part says otherwise."""
        return self

    @property
    def differs(self) -> bool:
        """Whether some clients add more noise than others."""
        return False

    def mentions(self) -> Mapping[str, str]:
        """Clients that the description speaks of by name, each with the key that does."""
        return {}

    def tier(self, name: str) -> Tier | None:
        """What a client's noise is, where it has any: public, because those who weigh rows by it must know."""
        return None

    def as_tiers(self) -> Tiers | None:
        """Itself where every client has its own budget from a public list; None where it is another mechanism."""
        return None

    def entropy(self, size: int) -> float:
        """At least so many bits of chance lie in the signs of an update of this size, whatever the update is."""
        return 0.0

    def gaussian(self) -> GaussianNoise | None:
        """The noise where it is normal, for what sums of it are worth; None where it is not."""
        return None

    def composition(self, counts: Iterable[int]) -> dict[str, dict[str, float]]:
        """Epsilon by tier and number of participations, where there are tiers."""
        return {}

    def guarantee(self) -> Guarantee | None:
        """What one participation guarantees whatever others do; None where nothing is claimed."""
        return None

    def event(self, number: int, model: str = "") -> Event | None:
        """What a ledger keeps of a release in a round, on a model of that digest; None where nothing is claimed."""
        return None

    def limit(self, name: str) -> float | None:
        """The total epsilon that a client agreed to, at the delta of `guarantee`; None where it named none."""
        return None

    def limited_by(self, name: str) -> str:
        """The key of the description that holds a client's total."""
        return "protocol.privacy.budget"

    def admit(self, name: str, ledger: Ledger, event: Event) -> Ledger:
        """The ledger with one more release. Raises: Overspent when that would exceed the client's total."""
        after, most, local = ledger.add(event), self.limit(name), self.guarantee()
        if most is None or local is None or after == ledger:
            return after
        then = after.epsilon(local.delta)
        if then > most * (1 + _ROUNDING):
            before, tier = ledger.epsilon(local.delta), self.tier(name)
            raise Overspent(
                f"{name}{f' (tier {rounded_up(tier.epsilon)})' if tier else ''} takes no part: "
                f"{times(len(ledger.events))} cost it epsilon {rounded_up(before)} so far, round "
                f"{event.round + 1} would make that {rounded_up(then)}, and its total is {most:g} at delta = "
                f"{local.delta:g}; nothing of its update leaves it. Remedy: raise "
                f"{self.limited_by(name)}, or let it rest"
            )
        return after


_FREE = ParticipationCost()


class NoNoise(LocalPrivacy, use="none"):
    """The update as it is."""

    noiseless: ClassVar[bool] = True

    def __call__(self, update: Update, coins: Coins) -> tuple[Update, ParticipationCost]:
        """The same update, at no cost and with no claim."""
        return update, _FREE

    def claims(self, participations: int = 1) -> str:
        """No noise, no claim."""
        return "no noise is added: no differential privacy is claimed, for records or for clients"


# What a guarantee of local noise protects, in the words of every claim; and the epsilon above which it says little.
UNIT = f"a client; adjacency: {ADJACENCY['client']}"
LARGE = 20.0


def shown(epsilon: float, delta: float = 0.0) -> str:
    """A guarantee in brackets, rounded up; one too large to mean much says so."""
    said = f"({rounded_up(epsilon)}, {delta:g})"
    return f"{said}, too large to promise much" if epsilon > LARGE else said


def rounded_up(value: float) -> str:
    """The least number of four digits that is no less than the value, as text: a rounded guarantee must still hold."""
    near = f"{value:.4g}"
    # The last bit of a computed value is noise, and no reason to round up.
    if float(near) >= value * (1 - 1e-12):
        return near
    exact = Decimal(value)
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 3), ROUND_CEILING)):.4g}"


def times(participations: int) -> str:
    """A number of participations, in words for a sentence."""
    return {0: "no participation", 1: "one participation"}.get(participations, f"{participations} participations")
