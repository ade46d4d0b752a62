"""What is learned: the one thing that the round loop is told of data and training (`learn.assemble` makes it).

The loop trains by calling `fit`, and measures by calling `evaluate`; data, networks and devices stay behind these two.
Tests give it toy functions, audits wrap `fit` to remember or to poison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.update import Layout, Model, Update
from croupier.errors import (
    CroupierError,
)

if TYPE_CHECKING:
    from croupier.encode.symmetry import Symmetry

Fits = Callable[[Sequence[tuple[Any, ...]]], Sequence[Update | CroupierError]]


@dataclass(frozen=True)
class Task:
    """What is learned: who is enrolled, their data by digest, how to train and how to measure.

    `fit` takes (start, shard digest, coins) jobs and gives an update or an error for each. `root` and `features` are
    the server's own, where it has records: the same training on them, and what a model makes of them. `answers` is what
    a model makes of inputs of the shape `inputs`, where these are numbers that noise can stand in for. `symmetry` finds
    the network's permutations, and `fresh` draws weights for it. `sample` draws one record of a client's own.
    """

    shards: Mapping[str, str]
    layout: Layout
    first: Model
    fit: Fits
    evaluate: Callable[[Model], Mapping[str, float]]
    root: Callable[[Tensor, Coins], Tensor] | None = None
    features: Callable[[Tensor], Tensor] | None = None
    answers: Callable[[Tensor, Tensor], Tensor] | None = None
    inputs: tuple[int, ...] = ()
    symmetry: Callable[[], Symmetry] | None = None
    fresh: Callable[[Coins], Tensor] | None = None
    sample: Callable[[str, Coins], Tensor] | None = None

    @property
    def enrolled(self) -> tuple[str, ...]:
        """Everybody, in the canonical order."""
        return tuple(sorted(self.shards))

    @property
    def offers(self) -> frozenset[str]:
        """What there is for a rule that asks for it."""
        own = {
            "root": self.root, "forward": self.features, "answers": self.answers, "symmetry": self.symmetry,
            "samples": self.sample,
        }  # fmt: skip
        return frozenset(name for name, there in own.items() if there is not None)
