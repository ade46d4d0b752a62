"""What clients say to each other before a round, and what everybody remembers of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from croupier.core.epoch import Frame
from croupier.core.flow import Memory
from croupier.core.sitting import Sat, Traffic
from croupier.core.update import Model, meant_for
from croupier.core.view import View
from croupier.place.board import SERVER
from croupier.place.call import Table, Tried
from croupier.place.standing import Standing


@dataclass(frozen=True)
class Meeting:
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
class Ready:
    """What a round begins with, what it took, and what the server saw of it.

    `strangers` are the clients that came and cannot open the model meant for them. `lost` says why the round cannot be
    held; with `unknown`, because nobody who came knows the rule that the last model lies under.
    """

    memories: Mapping[str, Memory] = field(repr=False)
    traffic: tuple[Traffic, ...] = ()
    views: tuple[View, ...] = ()
    strangers: tuple[str, ...] = ()
    lost: str = ""
    unknown: bool = False


@dataclass
class Talk:
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

    def heard(self, sat: Sat) -> None:
        """Take down what was sent, and what the server saw."""
        self.traffic.append(sat.traffic)
        self.views += [sat.views[SERVER]] if SERVER in sat.views else []

    def took(self, tried: Tried, *, held: bool = True) -> None:
        """Take down an attempt; what clients hold after it, they keep."""
        self.heard(tried.sat)
        for who, standing in tried.standings.items() if held else ():
            self.keep(who, standing)

    def opens(self, who: str, models: tuple[Model, ...]) -> bool:
        """Whether a client can open the model meant for it."""
        frame = meant_for(who, models).frame
        return not frame or self.standing(who).behind(Frame.unpack(frame)) is not None

    def ready(self, **more: Any) -> Ready:
        """The end of it."""
        return Ready(self.memories, tuple(self.traffic), tuple(self.views), **more)

    def table(self, at: Table, roster: tuple[str, ...], meeting: Meeting | None = None) -> Table:
        """A table, with what clients kept; who is absent from a round is so from what precedes it."""
        absent, bend = meeting.absent if meeting else frozenset[str](), at.bend
        standings = {who: self.standing(who) for who in roster}
        return replace(at, standings=standings, bend=lambda sitting: replace(bend(sitting), absent=absent))
