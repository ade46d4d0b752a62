"""Assign shuffled values to clients or tiers one by one, in time linear in the number of parameters.

The rows of n clients with d values each can be joined in n^d ways, but that protects nothing by itself: nobody has to
try them all. `greedy` gives each client the values nearest to a prediction, and `by_scale` says of which tier each
value may be. `attacks.tiers.stages` (the attack in three stages) uses both, `attacks.tiers.measures` uses `greedy` for
a ceiling that is told the clean update, and `papers.intra.recombination` uses it for IntraShuffler's Table 6.
"""

from __future__ import annotations

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.errors import RangeError


def greedy(values: Tensor, predictions: Tensor, coins: Coins) -> Tensor:
    """For each prediction (row) and coordinate, the row of the value nearest to it; ties fall at random.

    Each client is served by itself: two predictions may be given the same value.
    """
    lots = coins.fast()
    found = []
    for prediction in predictions.double():
        off = (values.double() - prediction).abs()
        best = off == off.min(0).values
        drawn = torch.rand(off.shape, generator=lots, dtype=torch.float64)
        found.append(drawn.masked_fill(~best, -1.0).argmax(0))
    return torch.stack(found)


def by_scale(values: Tensor, middle: Tensor, tiers: Tensor) -> Tensor:
    """For each value of a bucket with several noise levels, the chance of each level, by how far out the value lies.

    The result has one more dimension than `values`, the last: the distinct levels in rising order. `tiers` are the
    known deviations of the bucket's members. A value of a member is normal around `middle` with that member's
    deviation, and each member is equally likely before one looks. Raises: RangeError where a deviation is 0.
    """
    levels, counts = torch.unique(tiers.double(), return_counts=True)
    if float(levels[0]) <= 0:
        raise RangeError("a tier without noise: there is no scale to sort values by")
    out = ((values.double() - middle.double()).unsqueeze(-1) / levels).pow(2)
    log = counts.double().log() - levels.log() - out / 2
    return torch.softmax(log, -1)
