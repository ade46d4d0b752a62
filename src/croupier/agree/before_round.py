"""Plain values for what clients agree on before a round: the secret by which hidden units are permuted.

`AgreementRules` say how they agree, `UpcomingRound` who comes, `AgreementSetting` what a run offers them, and
`PreparedRound` what the round then begins with. They are kept apart from the protocols of `agree`, so that whoever only
hands them on need not import those. The encoder `encode.hidden` makes the rules; whoever runs rounds makes the rest.

Rules and upcoming rounds serve simulations (`agree.epochs`, called by `engine.loop`) and services: `service.chair` at
the server, and `service.guard`, which reads the rules, at every party. Setting, permuter and prepared round serve
simulations only. `DRAW` and `PERMUTE` are names of work in both.
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
    """How clients agree, as the fields of these names in `encode.hidden.HiddenUnits` say.

    `agree`: all once for an epoch, or those invited before every round. `by`: on a joint secret that nobody chooses, or
    on a head's by PBFT. `fetch`: the last rule comes from those of this cohort who know it, or from anyone who does.
    `newcomers`: all agree on a new epoch with them, or they are told the secret of the old one (`welcome`). `kept`: one
    rule serves for the whole epoch.
    """

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
    """A round that is about to begin: who is enrolled and invited, who does not come, how few are enough.

    `number` counts rounds from 0; `attempts` is how often clients may try to agree on the round's rule.
    """

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
    be held, and is empty where it can. `unknown`: it is lost because too few who came know the last model's rule.
    """

    memories: Mapping[str, Memory] = field(repr=False)
    traffic: tuple[Traffic, ...] = ()
    views: tuple[View, ...] = ()
    without_rule: tuple[str, ...] = ()
    lost: str = ""
    unknown: bool = False
