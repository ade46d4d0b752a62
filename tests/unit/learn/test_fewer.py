"""Data of which some records are drawn: the same by the same coins, and whole where a series needs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from croupier.learn.data import Dataset, Windows
from croupier.learn.datasets import Digits
from croupier.learn.fewer import FewerRecords


def test_fewer_records_are_drawn_by_coins_and_keep_a_series_whole() -> None:
    whole = Digits().load(None)
    draws = [FewerRecords(data=Digits(), train=100, test=10, coins=bytes([n]) * 32).load(None) for n in (1, 1, 2)]
    assert [(len(one.train), len(one.test)) for one in draws] == [(100, 10)] * 3
    assert draws[0].digest == draws[1].digest != draws[2].digest
    assert draws[0].labels is not None
    assert torch.equal(draws[0].labels, draws[0].train.batch(torch.arange(100))[1])
    assert whole.labels is not None
    windows = Windows(torch.arange(50.0), torch.arange(40), 5)
    owner = torch.arange(40) % 2
    series = replace(whole, goal="forecast", classes=0, train=windows, test=windows, labels=None, owner=owner)

    class Series(Digits):
        def load(self, folder: Path | None) -> Dataset:
            return series

    some = FewerRecords(data=Series(), train=10, test=10, coins=bytes(32)).load(None)
    assert isinstance(some.train, Windows)
    assert len(some.train) == 10
    assert len(some.train.series) == 50
    assert some.owner is not None
    assert torch.equal(some.owner, some.train.starts % 2)
