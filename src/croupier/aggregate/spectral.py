"""Rules that look for what stands out in few directions: DnC by singular vectors, SignGuard by counts of signs.

DnC's directions and SignGuard's counts are taken of some coordinates only, which the server draws after the rows are
fixed, so that an attacker cannot aim at them; SignGuard's bounds on lengths are of whole rows. Descriptions name them
(`dnc`, `signguard`), and RAIN's comparisons in the laboratory call the plain functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.robust import Angular, Assumed, Move, Robust, assumed, drawn_order
from croupier.aggregate.rows import best, chosen, combine, gram, middle, norms, share
from croupier.core.coins import Choices, Ints
from croupier.core.flow import Memory
from croupier.core.update import Gathered
from croupier.errors import SpecError


def dnc(rows: Tensor, drop: int, picks: Sequence[Tensor], order: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The mean of the rows that are never among the `drop` that stand out most on some coordinates, and its weights.

    Each of `picks` names the coordinates of one look. Where every row stands out once, all is zero.
    """
    kept = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    for pick in picks:
        inside = torch.zeros_like(kept)
        inside[best(outlying(rows[:, pick.to(rows.device)]), len(rows) - drop, order)] = True
        kept &= inside
    weights = chosen(kept.nonzero()[:, 0], len(rows))
    return combine(rows, weights), weights


def outlying(rows: Tensor) -> Tensor:
    """The squared length of each centred row along the direction in which the rows spread most.

    Worked out by the inner products of the rows, which are few: the first singular vector itself is never needed.
    """
    products = gram(rows)
    centre = torch.eye(len(rows), dtype=torch.float64, device=rows.device) - 1 / len(rows)
    spread, along = torch.linalg.eigh(centre @ products @ centre)
    found: Tensor = spread[-1].clamp(min=0) * along[:, -1].square()
    return found


def signguard(rows: Tensor, block: Tensor, low: float = 0.1, high: float = 3.0) -> tuple[Tensor, Tensor]:
    """The mean of the rows of usual length and usual signs, none longer than the median one, and its weights.

    `block` has the same rows on the coordinates whose signs are counted.
    """
    lengths = norms(rows)
    usual = middle(lengths)
    ratio = share(lengths, usual)
    kept = (ratio > low) & (ratio < high) & largest_cluster(sign_counts(block))
    weights = chosen(kept.nonzero()[:, 0], len(rows)) * share(usual, lengths).clamp(max=1)
    return combine(rows, weights), weights


def sign_counts(block: Tensor) -> Tensor:
    """For each row the shares of positive, zero and negative values, each in units of the largest among the rows."""
    shares = torch.stack([test.double().mean(1) for test in (block > 0, block == 0, block < 0)], 1)
    return share(shares, shares.max(0).values)


def largest_cluster(points: Tensor) -> Tensor:
    """Which points are in the largest cluster by mean shift, its reach estimated from the nearer half of the points.

    Of equally large ones the densest. Where half of the points lie on each other the reach is nothing, and points are
    together where they are equal.
    """
    from sklearn.cluster import MeanShift, estimate_bandwidth

    table = points.cpu().numpy()
    reach = estimate_bandwidth(table, quantile=0.5) if len(table) > 1 else 0.0
    if reach > 1e-9:
        labels: Ints = MeanShift(bandwidth=reach, bin_seeding=True, cluster_all=False).fit(table).labels_
    else:
        labels = np.unique(table.round(9), axis=0, return_inverse=True)[1].reshape(-1)
    most = np.bincount(labels[labels >= 0]).argmax() if (labels >= 0).any() else 0
    return torch.from_numpy(labels == most).to(points.device)


class DnC(Robust, use="dnc"):
    """The mean without the `c` times f updates that stand out most along the direction of greatest spread.

    Each of the `looks` takes `coordinates` of the weights, drawn anew by the server; what stands out in one is out.
    Where nothing is left the model stays.
    From: Shejwalkar and Houmansadr 2021 (divide and conquer), with one look, c = 1 and 10,000 coordinates.
    """

    f: Assumed = Field(0.2, description="how many may lie: a share of the clients below 0.5, rounded up, or a count")
    c: float = Field(1.0, gt=0, description="how many times `f` updates are left out")
    looks: PositiveInt = Field(1, description="how often it looks; what stands out once is out")
    coordinates: PositiveInt = Field(
        10_000, description="how many coordinates, of the server's drawing, each look sees"
    )

    def check(self, count: int) -> None:
        """Raises: SpecError when all would be left out."""
        if self._drop(count) >= count:
            raise SpecError(
                f"protocol.aggregate.f = {self.f:g} and c = {self.c:g}: all of {count} updates are left out; lower one"
            )

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The mean of what is left."""
        looks = [desk.coins.child("look", number).secure() for number in range(self.looks)]
        picks = [torch.from_numpy(some(look, rows.shape[1], self.coordinates)) for look in looks]
        return Move(*dnc(rows, self._drop(len(rows)), picks, drawn_order(desk, len(rows))), memory)

    def tolerates(self) -> str:
        """What leaving out along one direction gives."""
        return (
            "updates that pull together far enough in one direction are left out, as many as the rule assumes; nothing "
            "is claimed for lies within the honest spread, or for liars who pull in several directions"
        )

    def _drop(self, count: int) -> int:
        return math.ceil(self.c * assumed(self.f, count) - 1e-9)


class SignGuard(Angular, use="signguard"):
    """The mean of updates of usual length and usual counts of signs, none longer than the median one.

    Lengths lie between `low` and `high` times the median; counts of signs are taken on a block of `share` of the
    weights at a random place, and clustered. Where nothing is left the model stays.
    From: Xu et al. 2022, without the variants' cosine or distance feature; the clusters' reach is estimated from all
    updates instead of fifty of them.
    """

    low: float = Field(0.1, ge=0, lt=1, description="the least length of an update, in median lengths")
    high: float = Field(3.0, gt=1, description="the greatest length of an update, in median lengths")
    share: float = Field(0.1, gt=0, le=1, description="the share of the weights whose signs are counted")

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The mean of what is left."""
        size = rows.shape[1]
        width = max(1, int(self.share * size))
        start = int(desk.coins.child("block").secure().below(size - width + 1)[0])
        return Move(*signguard(rows, rows[:, start : start + width], self.low, self.high), memory)

    def tolerates(self) -> str:
        """What bounds and a cluster give."""
        return (
            f"updates of more than {self.high:g} times the median length, while fewer than half lie, or with unusual "
            "counts of signs, while their senders are fewer than the largest like group; nothing is claimed for lies "
            "of usual length with usual counts"
        )


def some(choices: Choices, size: int, count: int) -> Ints:
    """That many different numbers below a size, in order; all of them where there are no more."""
    if count >= size:
        return np.arange(size, dtype=np.int64)
    if 2 * count > size:
        return np.sort(choices.permutation(size)[:count])
    found = np.empty(0, np.int64)
    while len(found) < count:
        drawn = np.concatenate([found, choices.below(size, count - len(found))])
        found = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    return np.sort(found)
