"""Projected averaging: the noisier updates count only along what the least noisy ones agree on.

A client's budget is its epsilon. Clients with large budgets add little noise; the directions in which they move are
trusted, and what noisier clients add outside of these is taken for noise. The budgets are the epsilons that rows carry
as public labels (`aggregate.budget`). A description names the rule (`protocol.aggregate = "projected"`), and its rows
must be whole updates.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.budget import published
from croupier.aggregate.robust import Angular, Move
from croupier.aggregate.rows import along, combine, gram
from croupier.core.flow import Memory
from croupier.core.update import Gathered
from croupier.errors import SpecError

# A direction whose squared singular value is less than this share of the largest is rounding.
_LEAST = 1e-12


def projected(rows: Tensor, guiding: Tensor, rank: int) -> Tensor:
    """The mean of all rows, of which those that do not guide count by their projection.

    The projection is onto the first `rank` right singular vectors of the guides. These are never built: the inner
    products of rows, which are few, give what each guide counts for.
    """
    guides, others = rows[guiding], rows[~guiding]
    total = torch.ones(len(guides), dtype=torch.float64, device=rows.device)
    if len(others):
        middle = combine(others, torch.full((len(others),), 1 / len(others), dtype=torch.float64, device=rows.device))
        total = total + len(others) * _onto(guides, middle, rank)
    return combine(guides, total / len(rows))


def _onto(guides: Tensor, one: Tensor, rank: int) -> Tensor:
    """By which coefficients the rows give the projection of a vector onto their first singular directions."""
    squares, left = torch.linalg.eigh(gram(guides))
    squares, left = squares[-rank:], left[:, -rank:]
    kept = squares > _LEAST * squares[-1].clamp(min=0)
    found: Tensor = left[:, kept] @ ((left[:, kept].T @ along(guides, one)) / squares[kept])
    return found


def relaxed(epsilons: Tensor, share: float) -> Tensor:
    """Which rows have the largest budgets: that share of them, rounded up, and all others whose budget is as large."""
    last = epsilons.sort(descending=True).values[math.ceil(share * len(epsilons) - 1e-9) - 1]
    return epsilons >= last


class Projected(Angular, use="projected"):
    """PFA: the mean, with the updates of smaller budgets projected onto what those of the largest budgets span.

    `guides` is the share of the updates that count as of largest budget; `rank` the directions they span at most.
    From: Liu et al. 2021 (Projected Federated Averaging), but the guides are a share of the clients, those of largest
    budget, and no cluster of them; there is one subspace over all weights together, rows are not centred first, and
    every client counts alike.
    """

    needs = Angular.needs | {"labels"}

    guides: float = Field(
        0.2,
        gt=0,
        le=1,
        description="the share of the updates, those of the largest budgets, that count as they are; ties are included",
    )
    rank: PositiveInt = Field(1, description="how many directions of the guides the others are projected onto")

    def check(self, count: int) -> None:
        """Raises: SpecError when so few guides cannot span so many directions."""
        if self.rank > (there := math.ceil(self.guides * count - 1e-9)):
            raise SpecError(
                f"protocol.aggregate.rank = {self.rank}: of {count} updates {there} are guides, which span no "
                f"more directions; use at most {there}, or raise guides"
            )

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The guides as they are, the others along them. Raises: ProtocolError without published budgets."""
        epsilons = published(gathered, "epsilons", f"aggregate = {self.use!r}")
        guiding = relaxed(epsilons, self.guides).to(rows.device)
        # By these weights statistics are averaged: they are not projected.
        weights = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64, device=rows.device)
        return Move(projected(rows, guiding, self.rank), weights, memory)

    def tolerates(self) -> str:
        """Nothing, and less than a mean where the guides lie."""
        return (
            "none: one client that lies can move the model anywhere its values may go, and one of the "
            f"{self.guides:.0%} with the largest budgets also turns what all the others count for. It needs whole "
            "updates with their published budgets: behind a shuffle of layers or parameters a row is nobody's update, "
            "its directions are mixtures, and the rule is refused"
        )
