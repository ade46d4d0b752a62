"""Runs on real data, where the data folder is named."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from safetensors.torch import load_file

from croupier.engine.job.run import run


@pytest.mark.data
def test_mnist_runs(tmp_path: Path) -> None:
    sets = ["task.data.train=600", "task.data.test=200", "federation.rounds=1", "task.fit.lr=0.05", "run.workers=2"]
    result = run("mnist", sets=sets, out=tmp_path / "run", seed=1, data=os.environ["CROUPIER_DATA"])
    assert result.final["present"] == 10
    assert 0 <= result.final["accuracy"] <= 1
    assert math.isfinite(result.final["loss"])
    assert sum(tensor.numel() for tensor in load_file(result.path / "model.safetensors").values()) == 643850
    assert result.final["bytes_up_per_client"] > 4 * 643850


@pytest.mark.data
def test_households_run_and_forecast_better_with_time(tmp_path: Path) -> None:
    sets = ["task.data.households=3", "task.data.stride=24", "federation.rounds=2", "run.workers=1"]
    result = run("households", sets=sets, out=tmp_path / "run", seed=1, data=os.environ["CROUPIER_DATA"])
    errors = [line["rmse"] for line in result.metrics]
    assert all(math.isfinite(error) and 0 < error < 5 for error in errors)
    assert "accuracy" not in result.final
    assert result.final["present"] == 3
