"""Aggregators: how the server turns what was released into its next model."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from croupier.core.coins import Coins
from croupier.core.flow import Memory
from croupier.core.part import Part
from croupier.core.update import Form, Gathered, Layout, Model
from croupier.core.wire import Field
from croupier.encode.encoder import Brief


@dataclass(frozen=True)
class Desk:
    """What the server itself owns while it aggregates: the models it handed out, the layout, and coins of its own."""

    models: tuple[Model, ...]
    layout: Layout
    coins: Coins


class Aggregator(Part):
    """A rule, with what it needs of the release (`ids`, `rows`), and whether rows may come `scaled` or only as sums."""

    verb: ClassVar[str] = "aggregate"
    needs: ClassVar[frozenset[str]] = frozenset()
    forms: ClassVar[frozenset[Form]] = frozenset({"weights", "delta"})
    linear: ClassVar[bool] = False
    # Whether it takes a sum of rows that were scored against its reference.
    scores: ClassVar[bool] = False

    def public(self, layout: Layout) -> tuple[Field, ...]:
        """The arrays of this rule's brief: public facts that reach every client before it encodes."""
        return ()

    def late(self, layout: Layout) -> tuple[Field, ...]:
        """The arrays of the brief that only those who compute the release are told, once the updates are fixed."""
        return ()

    def brief(self, desk: Desk, memory: Memory) -> Brief:
        """The brief of a round."""
        return {}

    def verify(self, model: Model, brief: Brief, layout: Layout) -> None:
        """What a client checks of a brief before it follows it. Raises: RangeError."""

    @abstractmethod
    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """The next models, and what the rule remembers."""

    @abstractmethod
    def tolerates(self) -> str:
        """The robustness sentence of the statement."""
