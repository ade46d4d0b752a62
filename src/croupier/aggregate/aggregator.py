"""Aggregators: how the server turns what was released into its next model.

A rule says what it needs. A pipeline whose other parts do not give it (form, rows, intact rows, names, labels, samples)
is refused when built (`pipeline`); what a task must give (the server's own records, answers of a network) is checked
when a pipeline meets a task (`engine.federation.check`). `Desk` is all that a rule may use besides what was released
and what it remembers: it reaches nothing that only clients own. `engine.work` calls rules and fills the desk; with
Flower `flower.lead` does. Audits call some rules again to know what the server saw: the brief of those that rescale,
and the step of those that score (`audit.seen`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Memory
from croupier.core.part import Part
from croupier.core.update import Form, Gathered, Layout, Model
from croupier.core.wire import Field
from croupier.encode.encoder import Brief


@dataclass(frozen=True)
class Desk:
    """What the server itself owns while it aggregates: the models it handed out, the layout, and coins of its own.

    Where the server has root records, `fit` is the clients' local training on them, from a start to the vector after
    it, and `features` gives what a model's last linear layer is fed for each of them (its outputs where it has none).
    `answers` gives a model's outputs for any inputs, which have the shape `inputs`: the network itself is public.
    """

    models: tuple[Model, ...]
    layout: Layout
    coins: Coins
    fit: Callable[[Tensor, Coins], Tensor] | None = None
    features: Callable[[Tensor], Tensor] | None = None
    answers: Callable[[Tensor, Tensor], Tensor] | None = None
    inputs: tuple[int, ...] = ()


class Aggregator(Part):
    """A rule: what it makes of what was released, and in `needs` what it cannot do without.

    Of the release it may need `rows`, `intact` ones (each one client's whole update, or one group's mean), their `ids`,
    their `labels` (published noise and budget) and `samples` (a record beside each); of the server `root` (training on
    its own records, `Desk.fit`), `forward` (a model's features of them, `Desk.features`) and `answers` (what a model
    makes of any inputs, `Desk.answers`).
    """

    verb: ClassVar[str] = "aggregate"
    lies_in: ClassVar[str] = "croupier.aggregate"
    needs: ClassVar[frozenset[str]] = frozenset()
    forms: ClassVar[frozenset[Form]] = frozenset({"weights", "delta"})
    # Whether it is a weighted mean, so that clients may count for more or less, and rows may come multiplied by that.
    linear: ClassVar[bool] = False
    # Whether it takes a sum of rows that were scored against its reference.
    scores: ClassVar[bool] = False
    # Whether clients round to a grid whose step the server sets anew from the last model (`mean.Scaled`).
    rescales: ClassVar[bool] = False

    @property
    def asks(self) -> frozenset[str]:
        """`needs`, and what the values of its own fields add to that (`Clusters` with `probes_from`, for example)."""
        return self.needs

    @property
    def divides(self) -> bool:
        """Whether a rule of signs divides the sum by the weights in it, so that it must be told their total."""
        return False

    @property
    def anew(self) -> bool:
        """Whether it makes the next model of this round's updates alone, and remembers nothing in their coordinates."""
        return False

    def check(self, count: int) -> None:
        """Raises: SpecError when the rule is not defined for that many updates."""

    def public(self, layout: Layout) -> tuple[Field, ...]:
        """The arrays of this rule's brief: public facts that reach every client before it encodes."""
        return ()

    def late(self, layout: Layout) -> tuple[Field, ...]:
        """The arrays of the brief that only those who compute the release are told, once the updates are fixed."""
        return ()

    def brief(self, desk: Desk, memory: Memory) -> Brief:
        """The brief of a round: what `public` hands out with the model and `late` later, together."""
        return {}

    def verify(self, model: Model, brief: Brief, layout: Layout) -> None:
        """What a client checks of a brief before it follows it. Raises: RangeError."""

    @abstractmethod
    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """The next models, and what the rule remembers."""

    @abstractmethod
    def tolerates(self) -> str:
        """The robustness sentence of the statement."""
