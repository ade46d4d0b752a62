"""A `Task` is all that the round loop is told of data and training: how clients train, and how a model is measured.

The loop (`engine.loop`) measures by calling `evaluate`, and parties train through `engine.work`, which calls `fit`, so
that data, networks and devices stay behind a task. `learn.assemble` makes the task of described runs and audits, and of
deployed clients and servers. `advice` and tests give it toy functions, and audits wrap `fit` to remember
(`learn.remembered`) or to poison (`audit.attacked_training`).
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

# Training: from jobs of (start, shard digest, coins) to one update, or one error, for each.
Fits = Callable[[Sequence[tuple[Any, ...]]], Sequence[Update | CroupierError]]


@dataclass(frozen=True)
class Task:
    """What is learned: who is enrolled, their data by digest, how to train and how to measure.

    `fit` takes (start, shard digest, coins) jobs and gives an update or an error for each. `root` and `features` exist
    where the server keeps root records: `root` trains on them as a client would, and `features` is what a model makes
    of them; `engine.work` hands both to the rule's `Desk`. `answers` is what a model makes of inputs of the shape
    `inputs`, where these are numbers that noise can stand in for. `symmetry` finds which permutations leave the network
    as it is, and `fresh` draws weights for it. `sample` draws one record of a client's own.
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
        """What the task can give a rule or an encoder, by the names that they ask by (`Aggregator.asks`)."""
        own = {
            "root": self.root, "forward": self.features, "answers": self.answers, "symmetry": self.symmetry,
            "samples": self.sample,
        }  # fmt: skip
        return frozenset(name for name, there in own.items() if there is not None)
