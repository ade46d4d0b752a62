"""What takes minutes: whole presets on real data, and statistics with many draws. `make test-long` runs these."""

from __future__ import annotations

import os
from math import factorial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from croupier.core.coins import Coins
from croupier.engine.job.run import run

pytestmark = pytest.mark.long


@pytest.mark.data
def test_mnist_learns_behind_a_shuffler(tmp_path: Path) -> None:
    result = run("mnist", out=tmp_path / "run", seed=7, data=os.environ["CROUPIER_DATA"])
    assert result.final["accuracy"] > 0.93


@pytest.mark.data
def test_households_forecast_better_than_their_mean(tmp_path: Path) -> None:
    result = run("households", out=tmp_path / "run", seed=7, data=os.environ["CROUPIER_DATA"])
    scores = [line["rmse"] for line in result.metrics]
    assert scores[-1] < 0.9 * scores[0]


@pytest.mark.data
@pytest.mark.parametrize(("preset", "least"), [("activity", 0.75), ("newsgroups", 0.4)])
def test_sensors_and_texts_are_learnt_behind_a_shuffler(tmp_path: Path, preset: str, least: float) -> None:
    result = run(preset, out=tmp_path / "run", seed=7, data=os.environ["CROUPIER_DATA"])
    assert result.final["accuracy"] > least
    assert result.final["accuracy"] > result.metrics[0]["accuracy"] + 0.2


@pytest.mark.parametrize("size", [3, 4, 5])
def test_columns_are_permuted_uniformly(size: int) -> None:
    columns = 2_000_000
    rows = np.tile(np.arange(size, dtype=np.int64)[:, None], (1, columns))
    Coins.from_seed(size).secure().permute_columns(rows)
    numbers = (rows * (size ** np.arange(size))[:, None]).sum(0)
    _, counts = np.unique(numbers, return_counts=True)
    assert len(counts) == factorial(size)
    assert chisquare(counts).pvalue > 1e-5


def test_bounded_integers_are_uniform() -> None:
    for limit in (3, 10, 1000, 2**40 + 1):
        drawn = Coins.from_seed(limit).secure().below(limit, 2_000_000)
        counts = np.histogram(drawn, bins=min(limit, 64), range=(0, limit))[0]
        if limit <= 64:
            assert chisquare(counts).pvalue > 1e-5
        else:
            assert abs(drawn.mean() / (limit / 2) - 1) < 3e-3
