"""The shell of most rules on rows: from what was released to the next model.

A new rule is a function on rows and a subclass of `Robust` with one method, `move`; rounding, statistics, empty rounds
and the server's memory are dealt with here, once. `geometry`, `spectral`, `reference`, `reputation`, `romoa`, `latent`,
`cluster`, `majority` and `projected` are built so. None of them weighs a row by its client's number of records: that
number is the client's own claim, and a liar would lie about it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator
from torch import Tensor

from croupier.aggregate.aggregator import Aggregator, Desk
from croupier.aggregate.rows import alike, combine
from croupier.core.flow import Memory
from croupier.core.update import Form, Gathered, Layout, Model
from croupier.errors import ProtocolError


@dataclass(frozen=True)
class Move:
    """Where a rule moves the weights, what each row counted for where it weighs rows, and what it remembers."""

    direction: Tensor
    weights: Tensor | None
    memory: Memory


class Robust(Aggregator):
    """A rule on rows of differences that count alike; `move` is given their weights without their statistics.

    Statistics (a normalisation's means and variances) are no steps of a descent: they move by the mean of the rows,
    each as the rule weighed it, and stay where it weighed none, unless a rule has a `rest` of its own.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"rows", "intact"})

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """The last model, moved. Raises: ProtocolError without rows that count alike; SpecError for too few of them."""
        rows = alike(gathered, self.use)
        self.check(len(rows))
        start = desk.models[0].vector
        if gathered.form == "weights":
            rows = rows - start
        learned = weight_count(desk.layout)
        done = self.move(rows[:, :learned], gathered, desk, memory)
        rest = self.rest(rows[:, learned:], done.weights)
        vector = start.double() + torch.cat([done.direction, rest])
        return (Model(vector.float(), gathered.frame),), done.memory

    @abstractmethod
    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """What the rule makes of the rows' weights."""

    def rest(self, rows: Tensor, weights: Tensor | None) -> Tensor:
        """How far the statistics move."""
        total = 0.0 if weights is None else float(weights.sum())
        if weights is None or not total > 0:
            return torch.zeros(rows.shape[1], dtype=torch.float64)
        return combine(rows, weights / total)


class Angular(Robust):
    """A rule on directions: weights as such all point the same way, so it takes differences only."""

    forms: ClassVar[frozenset[Form]] = frozenset({"delta"})


def _assumed(f: float) -> float:
    if f < 0 or (f >= 1 and f != int(f)) or 0.5 <= f < 1:
        raise ValueError("a share of the clients below 0.5, or a whole number of them")
    return f


# How many rows a rule assumes to be malicious: a share of them below a half, or a count of at least 1.
Assumed = Annotated[float, AfterValidator(_assumed)]


def assumed(f: float, count: int) -> int:
    """How many of `count` rows may lie; a share of them is rounded up."""
    return int(f) if f >= 1 else math.ceil(f * count - 1e-9)


def weight_count(layout: Layout) -> int:
    """How many coordinates are weights; they come first."""
    return sum(part.size for part in layout.carried if part.role == "weight")


def root_direction(desk: Desk, use: str) -> Tensor:
    """Where the server's own records move the weights, by the clients' training. Raises: ProtocolError without any."""
    if desk.fit is None:
        raise ProtocolError(f"aggregate = {use!r} trains on the server's own records; set task.root.records=100")
    start = desk.models[0].vector
    moved = desk.fit(start, desk.coins.child("root")).double() - start.double()
    return moved[: weight_count(desk.layout)]


def drawn_order(desk: Desk, count: int) -> Tensor:
    """The order in which equal scores are preferred, of the server's own drawing."""
    return torch.from_numpy(desk.coins.child("ties").secure().permutation(count))
