"""FLARE: models vote for those whose features of the server's records are distributed like their own.

A poisoned model is told by what it makes of clean inputs and not by its weights. It needs records of the server's own
(`task.root`) to run models on, and whole models to run. A description names it (`protocol.aggregate = "flare"`), and
RAIN's comparisons in the laboratory call `flare`.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.robust import Move, Robust, drawn_order
from croupier.aggregate.rows import best, combine, middle
from croupier.core.flow import Memory
from croupier.core.update import Gathered
from croupier.errors import ProtocolError


def flare(rows: Tensor, features: Tensor, heat: float = 1.0, order: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The mean of the rows, weighted by the exponential of the votes that each one's model gets, and its weights.

    `features` are (rows, records, width). Each of n models votes for the n / 2 others (rounded down) nearest to it.
    """
    weights = vote_weights(discrepancies(features), heat, order)
    return combine(rows, weights), weights


def vote_weights(apart: Tensor, heat: float = 1.0, order: Tensor | None = None) -> Tensor:
    """The softmax of votes received, in units of `heat` times their mean."""
    count = len(apart)
    votes = torch.zeros(count, dtype=torch.float64, device=apart.device)
    others = max(1, count // 2)
    for place, row in enumerate(apart.clone().fill_diagonal_(torch.inf)):
        near = best(row, min(others + 1, count), order)
        votes[near[near != place][:others]] += 1
    return torch.softmax(votes / (heat * votes.mean().clamp(min=1)), 0)


def discrepancies(features: Tensor) -> Tensor:
    """The squared maximum mean discrepancy of every two models' features, unbiased, at least 0.

    One Gaussian kernel for all, as wide as the features of the median model lie apart: an average over models could be
    widened at will by one of them. A model with features that are no numbers is infinitely far from all.
    """
    points = features.double()
    count, records = points.shape[:2]
    sound = torch.isfinite(points).flatten(1).all(1)
    points = torch.where(sound[:, None, None], points, 0.0)
    width = middle(torch.stack([_squares(one, one).sum() for one in points[sound]])) if bool(sound.any()) else 0.0
    width = float(width) / max(1, records * (records - 1)) or 1.0
    alike = torch.empty(count, count, dtype=torch.float64, device=points.device)
    own = torch.empty(count, dtype=torch.float64, device=points.device)
    for place, one in enumerate(points):
        kernels = torch.exp(-_squares(points, one) / (2 * width))
        alike[place] = kernels.mean((1, 2))
        # A record is not compared with itself.
        own[place] = (kernels[place].sum() - records) / max(1, records * (records - 1))
    apart = own[:, None] + own - (alike + alike.T)
    # Rounding alone is no difference.
    apart = torch.where(apart < 1e-12, 0.0, apart).fill_diagonal_(0)
    apart[~sound] = torch.inf
    apart[:, ~sound] = torch.inf
    return apart


def _squares(one: Tensor, other: Tensor) -> Tensor:
    lengths, others = one.square().sum(-1), other.square().sum(-1)
    return (lengths[..., None] + others - 2 * one @ other.T).clamp(min=0)


class Flare(Robust, use="flare"):
    """The mean of updates, weighted by how many models' features of the server's records are like theirs.

    From: Wang et al. 2022. Features are what the last linear layer is fed; likeness is the unbiased squared maximum
    mean discrepancy under one Gaussian kernel, whose width is taken from the features (the paper gives none). Each
    model votes for floor(n / 2) others, itself left out; weights are the exponential of votes over `heat` times their
    mean. The records are the root records, of all classes; there they are of one.
    """

    needs = Robust.needs | {"forward"}

    heat: float = Field(1.0, gt=0, description="how little votes matter: higher weighs models more alike")

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The weighted mean. Raises: ProtocolError without records to look at models through."""
        if desk.features is None or gathered.rows is None:
            raise ProtocolError(f"aggregate = {self.use!r} looks at models through records; set task.root.records=100")
        start = desk.models[0].vector
        models = gathered.rows if gathered.form == "weights" else start + gathered.rows
        features = torch.stack([desk.features(model.to(start.dtype)) for model in models])
        return Move(*flare(rows, features, self.heat, drawn_order(desk, len(rows))), memory)

    def tolerates(self) -> str:
        """What votes give."""
        return (
            "no number of liars: a model whose features are unlike the others' counts for less, never for nothing, and "
            "its length is not bounded"
        )
