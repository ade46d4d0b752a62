"""Values about agreeing, before a round, on the secret behind hidden coordinates: by which rules, and who comes.

They are kept apart from the protocols of this room, so that whoever only hands them on need not import those: encoders
say `AgreementRules`, and whoever runs rounds fills in the rest. Rules and upcoming rounds serve simulations
(`agree.epochs`, called by `engine.loop`) and deployed servers (`service.chair`); the setting, and what the round then
begins with, serve simulations only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor

from croupier.core.attempt import Attempt, Drive, Traffic
from croupier.core.coins import Coins
from croupier.core.flow import Memory
from croupier.core.view import Kept, View
from croupier.errors import CroupierError

# Kinds of work that agreeing clients ask for: weights for the network from coins, and a vector under a rule.
DRAW, PERMUTE = "first model", "permute"


class UnitPermuter(Protocol):
    """Moves vectors along a network's symmetries, as whoever trains can (`encode.permuting`)."""

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Tensor | CroupierError]:
        """Many vectors: each job is the arguments of a `Work("permute")`, and an error stands for one that fails."""

    def moved(self, vector: Tensor, seed: bytes, number: int, back: bool) -> Tensor:
        """One vector under the rule of a seed and a round, or back."""


@dataclass(frozen=True)
class AgreementRules:
    """What clients agree on and how, as an encoder says: fields of `encode.hidden.HiddenUnits`, explained there."""

    agree: Literal["epoch", "round"]
    by: Literal["joint", "pbft"]
    fetch: Literal["cohort", "anyone"]
    newcomers: Literal["epoch", "welcome"]
    kept: bool


@dataclass(frozen=True)
class AgreementSetting:
    """What a run offers those who agree before its rounds.

    `fresh` draws weights for the network; `tamper` changes an attempt where a party misbehaves, `keep` is how much is
    held of views.
    """

    enrolled: tuple[str, ...]
    run: bytes
    coins: Coins
    drive: Drive
    permutation: UnitPermuter
    fresh: Callable[[Coins], Tensor] | None = field(default=None, repr=False)
    tamper: Callable[[Attempt], Attempt] = lambda attempt: attempt
    keep: Kept = "nothing"


@dataclass(frozen=True)
class UpcomingRound:
    """A round that is about to begin: who is enrolled and invited, who does not come, how few are enough."""

    number: int
    enrolled: tuple[str, ...]
    cohort: tuple[str, ...]
    absent: frozenset[str]
    least: int
    attempts: int

    @property
    def here(self) -> tuple[str, ...]:
        """Those invited who come."""
        return tuple(who for who in self.cohort if who not in self.absent)


@dataclass(frozen=True)
class PreparedRound:
    """What a round begins with, what it took, and what the server saw of it.

    `without_rule` are the clients that came and cannot open the model meant for them. `lost` says why the round cannot
    be held; with `unknown`, because nobody who came knows the rule that the last model lies under.
    """

    memories: Mapping[str, Memory] = field(repr=False)
    traffic: tuple[Traffic, ...] = ()
    views: tuple[View, ...] = ()
    without_rule: tuple[str, ...] = ()
    lost: str = ""
    unknown: bool = False
