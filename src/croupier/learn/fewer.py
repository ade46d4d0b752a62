"""Data of which only some records are used, drawn by coins: where all of them would take too long.

`audit.setting` puts it in the place of a description's data where `croupier audit --fast` meets large data.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from croupier.core.coins import Coins
from croupier.learn.data import Data, Dataset, Records, Windows


class FewerRecords(Data):
    """Some records of other data, drawn by coins: at most `train` to train on, and `test` to test on."""

    data: Data
    train: int
    test: int
    coins: bytes

    def load(self, folder: Path | None) -> Dataset:
        """The records of `data` that are drawn, in their order."""
        whole, coins = self.data.load(folder), Coins(self.coins)
        train, test = (
            torch.from_numpy(coins.child(name).sampler().permutation(len(part))[:many]).sort().values
            for name, part, many in (("train", whole.train, self.train), ("test", whole.test, self.test))
        )
        # Of a series all is kept: owners' days are cut out of it by their places.
        some: Records = whole.train.take(train)
        if isinstance(whole.train, Windows):
            some = replace(whole.train, starts=whole.train.starts[train])
        return replace(
            whole, train=some, test=whole.test.take(test),
            labels=None if whole.labels is None else whole.labels[train],
            owner=None if whole.owner is None else whole.owner[train],
            test_owner=None if whole.test_owner is None else whole.test_owner[test],
        )  # fmt: skip
