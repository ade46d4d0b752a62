"""FLAME: only the majority's cluster is averaged, its updates clipped, and the result noised.

Directions are clustered by cosine; more than half of the clients must be honest. It looks at whole rows, so that it
works behind no shuffle of parts. A description names it (`protocol.aggregate = "flame"`), and RAIN's comparisons in the
laboratory call `flame` on rows in the clear. Clusters of which each gets its own model are in `clusters`.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.robust import Angular, Move, weight_count
from croupier.aggregate.rows import chosen, combine, cosines, middle, norms, share
from croupier.core.flow import Memory
from croupier.core.update import Gathered


def flame(rows: Tensor, points: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The mean of the rows in the majority's cluster, none longer than the median of all rows, and its weights.

    They are clustered by the cosines of `points`, which are the rows themselves unless given. No noise is added.
    """
    lengths = norms(rows)
    kept = majority_cluster(1 - cosines(rows if points is None else points))
    clipped = torch.where(lengths > 0, share(middle(lengths), lengths).clamp(max=1), 1.0)
    weights = chosen(kept.nonzero()[:, 0], len(rows)) * clipped
    return combine(rows, weights), weights


def majority_cluster(apart: Tensor) -> Tensor:
    """Which points are in the one cluster of more than half of them by HDBSCAN; all where there is none.

    Points that leave such a cluster before it falls apart are noise to HDBSCAN, so that little more than half may be
    kept. A point counts among its own neighbours here: two samples are what the paper's own library calls one.
    """
    count = len(apart)
    everybody = torch.ones(count, dtype=torch.bool, device=apart.device)
    if count < 3:
        return everybody
    from sklearn.cluster import HDBSCAN

    found = HDBSCAN(
        min_cluster_size=count // 2 + 1, min_samples=2, metric="precomputed", allow_single_cluster=True, copy=True
    ).fit(apart.clamp(min=0).cpu().numpy())
    kept = torch.from_numpy(found.labels_ == 0).to(apart.device)
    return kept if bool(kept.any()) else everybody


class Flame(Angular, use="flame"):
    """The mean of the largest cluster of directions, clipped to the median length S, with noise of `noise` times S.

    `whole` clusters whole models instead of what training changed. Where no cluster holds more than half, all are kept.
    From: Nguyen et al. 2022, also the rule of FLGuard (2021), here in the clear. There whole models are clustered; in
    one round these hardly differ in direction. 0.001 is the noise for images there; it is no differential privacy.
    """

    noise: float = Field(
        0.001, ge=0, description="deviation of the noise on the model, as a share of the median length"
    )
    whole: bool = Field(False, description="cluster whole models and not what changed")

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The noised mean of the cluster."""
        points = rows + desk.models[0].vector[: weight_count(desk.layout)] if self.whole else None
        direction, weights = flame(rows, points)
        if self.noise:
            drawn = torch.from_numpy(desk.coins.child("noise").secure().normal(len(direction)))
            direction = direction + self.noise * middle(norms(rows)) * drawn
        return Move(direction, weights, memory)

    def tolerates(self) -> str:
        """What clipping to the median gives."""
        return (
            "fewer than half of the rows, in this sense only: before noise, the weights' step is no longer than the "
            "longest honest update; liars whose directions fit the majority's cluster are averaged, and all are where "
            "there is no cluster"
        )
