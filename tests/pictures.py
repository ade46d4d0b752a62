"""Drawn pictures that are smooth enough to be told apart by a classifier, in the place of real ones."""

from __future__ import annotations

import torch
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.learn.data import Dataset, TensorRecords


def pictures(name: str, colours: int, side: int) -> Dataset:
    """600 to train on and 1,000 to test on, of ten classes that mean nothing."""
    noise = torch.rand(1600, colours, side + 4, side + 4, generator=Coins.from_seed(2).child(name).fast())
    x = ((functional.avg_pool2d(noise, 5, 1) - 0.5) * 3 + 0.5).clamp(0, 1)
    train, test = TensorRecords(x[:600], torch.arange(600) % 10), TensorRecords(x[600:], torch.arange(1000) % 10)
    return Dataset(name, "classify", 10, train, test, "none", "drawn", labels=train.y)
