"""Records drawn from a linear model: data of any size that need no folder.

One of the tasks of the source-inference experiments of Hu et al., which RNS's figures repeat. The true classes come
from a linear model, so that a small network can learn them well; nothing is read from disk, so that `croupier bench
clients` can have as many clients as it likes.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field

from croupier.core.coins import Coins
from croupier.learn.data import Data, Dataset, TensorRecords

SIDE, CLASSES = 60, 10


class Synthetic(Data, use="synthetic"):
    """60 normal numbers a record, the j-th of variance j^-1.2, and the class that one random linear model gives them.

    All is a function of `draw`: y = argmax(xW + b), with W and b standard normal. Four fifths train.
    It is made as the synthetic set of Hu et al. in their work on source inference.
    """

    licence: ClassVar[str] = "none: drawn here"

    records: int = Field(100_000, ge=5, description="how many records")
    draw: int = Field(0, ge=0, description="which draw: another number, other records")

    def load(self, folder: Path | None) -> Dataset:
        """Draw the dataset."""
        coins = Coins.from_seed(self.draw).child("synthetic")
        rows = _label(_inputs(coins.child("records"), self.records), coins.child("model"))
        cut = self.records * 4 // 5
        train, test = rows.take(torch.arange(cut)), rows.take(torch.arange(cut, self.records))
        source = f"drawn here from number {self.draw}, after Hu et al."
        return Dataset("synthetic", "classify", CLASSES, train, test, self.licence, source, labels=train.y)


def _inputs(coins: Coins, count: int) -> torch.Tensor:
    spread = np.arange(1, SIDE + 1) ** -0.6
    return torch.from_numpy((coins.secure().normal(count * SIDE).reshape(count, SIDE) * spread).astype(np.float32))


def _label(x: torch.Tensor, coins: Coins) -> TensorRecords:
    drawn = torch.from_numpy(coins.secure().normal((SIDE + 1) * CLASSES).reshape(SIDE + 1, CLASSES))
    return TensorRecords(x, torch.addmm(drawn[-1], x.double(), drawn[:-1]).argmax(1))
