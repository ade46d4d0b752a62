"""Putting shuffled values back together: value by value, linear in the number of parameters.

That n rows of d values can be joined in n^d ways protects nothing by itself: nobody has to try them all. Used for
IntraShuffler's Table 6 (`papers/intra/recombination`) and by the attack in three stages on tiers (`stages`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.errors import RangeError


def greedy(values: Tensor, predictions: Tensor, coins: Coins) -> Tensor:
    """For each prediction (row) and coordinate, the place of the value nearest to it; ties at random.

    From: the greedy reconstruction of source-inference Algorithm 5, one client at a time.
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
    """For each value of a merged bucket the chance of each distinct tier (last side, rising), by how far out it lies.

    `tiers` are the known deviations of the bucket's members: values of tier t are normal around `middle` with its
    deviation, and a value is of tier t with the share that tier has of the bucket before one looks.
    """
    levels, counts = torch.unique(tiers.double(), return_counts=True)
    if float(levels[0]) <= 0:
        raise RangeError("a tier without noise: there is no scale to sort values by")
    out = ((values.double() - middle.double()).unsqueeze(-1) / levels).pow(2)
    log = counts.double().log() - levels.log() - out / 2
    return torch.softmax(log, -1)
