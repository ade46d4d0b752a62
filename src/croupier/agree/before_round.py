"""What clients say to each other before a round, and what everybody remembers of it.

The values that the round loop and those who agree exchange, so that neither has to know the other: `engine.loop` makes
a setting and a round that is about to begin, and gets back what the round begins with. An encoder that needs no
agreement prepares nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from torch import Tensor

from croupier.agree.agreement import AgreementAttempt, AgreementTable
from croupier.agree.board import SERVER
from croupier.agree.standing import Standing
from croupier.core.attempt import Attempt, AttemptResult, Drive, Traffic
from croupier.core.coins import Coins
from croupier.core.epoch import Frame
from croupier.core.flow import Memory
from croupier.core.update import Model, meant_for
from croupier.core.view import Kept, View
from croupier.errors import CroupierError


class UnitPermuter(Protocol):
    """Moves vectors along a network's symmetries, as whoever trains can (`encode.permuting`)."""

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Tensor | CroupierError]:
        """Many vectors."""

    def moved(self, vector: Tensor, seed: bytes, number: int, back: bool) -> Tensor:
        """One vector under the rule of a seed and a round, or back."""


@dataclass(frozen=True)
class AgreementRules:
    """What clients agree on and how, as an encoder says: see `encode.hidden.HiddenUnits` for each."""

    agree: Literal["epoch", "round"]
    by: Literal["joint", "pbft"]
    fetch: Literal["cohort", "anyone"]
    newcomers: Literal["epoch", "welcome"]
    kept: bool


@dataclass(frozen=True)
class AgreementSetting:
    """What a run offers those who agree before its rounds.

    `fresh` draws weights for the network; `tamper` is who misbehaves, and `keep` how much is held of the views.
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


@dataclass
class Preparation:
    """What is said before a round, and what everybody remembers of it."""

    memories: dict[str, Memory] = field(repr=False)
    traffic: list[Traffic] = field(default_factory=list)
    views: list[View] = field(default_factory=list)

    @property
    def models(self) -> tuple[Model, ...]:
        """The server's."""
        return tuple(Model(**plain) for plain in self.memories[SERVER]["models"])

    def standing(self, who: str) -> Standing:
        """What a client holds."""
        return Standing.of(self.memories.get(who, {}))

    def keep(self, who: str, standing: Standing) -> None:
        """A client remembers."""
        self.memories[who] = {**self.memories.get(who, {}), "standing": standing.plain()}

    def note_result(self, result: AttemptResult) -> None:
        """Take down what was sent, and what the server saw."""
        self.traffic.append(result.traffic)
        self.views += [result.views[SERVER]] if SERVER in result.views else []

    def note_attempt(self, tried: AgreementAttempt, *, held: bool = True) -> None:
        """Take down an attempt; what clients hold after it, they keep."""
        self.note_result(tried.result)
        for who, standing in tried.standings.items() if held else ():
            self.keep(who, standing)

    def opens(self, who: str, models: tuple[Model, ...]) -> bool:
        """Whether a client can open the model meant for it."""
        frame = meant_for(who, models).frame
        return not frame or self.standing(who).behind(Frame.unpack(frame)) is not None

    def ready(self, **more: Any) -> PreparedRound:
        """The end of it."""
        return PreparedRound(self.memories, tuple(self.traffic), tuple(self.views), **more)

    def table(
        self, at: AgreementTable, roster: tuple[str, ...], meeting: UpcomingRound | None = None
    ) -> AgreementTable:
        """A table, with what clients kept; who is absent from a round is so from what precedes it."""
        absent, tamper = meeting.absent if meeting else frozenset[str](), at.tamper
        standings = {who: self.standing(who) for who in roster}
        return replace(at, standings=standings, tamper=lambda attempt: replace(tamper(attempt), absent=absent))
