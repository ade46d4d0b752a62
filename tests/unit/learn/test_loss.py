"""What training makes small: by name, by a function of the user's own, and alike however clients are trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from croupier.engine.job.result import Result
from croupier.engine.job.run import run
from croupier.errors import DataError, SpecError
from croupier.learn.flat import loss_of

TEXT = """
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
x = rng.normal(size=(90, 3))
y = x @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=90)

def data(folder):
    return x[:60], y[:60], x[60:], y[60:], np.arange(60) % 3, np.arange(30) % 3

def two(folder):
    both = np.stack([y, -y], 1)
    return x[:60], both[:60], x[60:], both[60:]

def whole(folder):
    return x[:60], np.arange(60) % 4 + 0.0, x[60:], np.arange(30) % 4 + 0.0

def net(shape, outputs):
    return nn.Linear(shape[0], outputs)

def squared(outputs, targets):
    return (outputs - targets).square().mean(1)

def doubled(outputs, targets):
    return 2 * squared(outputs, targets)

def mean(outputs, targets):
    return squared(outputs, targets).mean()

def rounded(outputs, targets):
    return squared(outputs.detach(), targets)

def drawn(outputs, targets):
    return squared(outputs, targets) * torch.rand(1)

def broken(outputs, targets):
    return outputs.no_such_thing
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def trained(name: str, data: str = "data", **task: Any) -> Result:
    Path(f"{name}.py").write_text(TEXT)
    described = {
        "data": {"use": "own", "make": f"{name}:{data}"}, "model": {"use": "own", "make": f"{name}:net"},
        "split": "natural", "fit": {"use": "sgd", "lr": 0.05, "epochs": 3, "batch": 16}, **task,
    }  # fmt: skip
    return run({"task": described, "federation": {"rounds": 3}}, seed=1)


def test_a_regression_learns_by_the_squared_error_and_by_others() -> None:
    plain = trained("plain", metrics=["mae", "r2"])
    assert plain.final["rmse"] < 0.2
    assert plain.final["r2"] > 0.95
    assert "loss" not in plain.final
    for name in ("mae", "huber"):
        other = trained("plain", loss=name)
        assert other.final["model"] != plain.final["model"]
        assert other.final["rmse"] < other.metrics[0]["rmse"]
        assert other.final["loss"] > 0


def test_an_own_loss_that_says_the_same_trains_the_same() -> None:
    plain, own = trained("same"), trained("same", loss="same:squared")
    assert own.final["rmse"] == pytest.approx(plain.final["rmse"], rel=1e-4)
    assert own.final["loss"] == pytest.approx(own.final["rmse"] ** 2, rel=1e-4)
    faster = trained("same", loss="same:doubled")
    assert faster.final["model"] != own.final["model"]


@pytest.mark.parametrize(
    "fit",
    [
        {"use": "sgd", "lr": 0.05, "batch": 16},
        {"use": "dp-sgd", "lr": 0.05, "batch": 16, "noise": 0.0, "clip": 5.0},
        {"use": "dp-sgd", "lr": 0.05, "batch": 16, "noise": 0.0, "clip": 5.0, "engine": "opacus"},
    ],
    ids=["stacked", "vmap", "opacus"],
)
def test_an_own_loss_is_trained_by_however_clients_are(fit: dict[str, Any]) -> None:
    model = {"use": "mlp", "hidden": [8]}
    one, two = (trained("ways", model=model, fit=fit, loss=loss) for loss in (None, "ways:squared"))
    assert two.final["rmse"] == pytest.approx(one.final["rmse"], rel=1e-4)
    assert trained("ways", model=model, fit=fit, loss="ways:doubled").final["model"] != two.final["model"]


def test_several_targets_are_learnt_at_once() -> None:
    both = trained("both", "two", split={"use": "iid", "clients": 3})
    assert both.final["rmse"] < 0.5
    assert [tuple(part.shape) for part in both.model.parameters()] == [(2, 3), (2,)]


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("cross-entropy", "'own' has quantities to learn; use 'mse'"),
        ("mse ", r"no loss has that name; did you mean 'mse'\?"),
        ("odd:mean", r"for 2 records it gave a tensor of shape \(\); return one loss for each record"),
        ("odd:rounded", "no gradient can be had of it"),
        ("odd:drawn", "it draws at random, and no seed could repeat that"),
        ("odd:broken", "AttributeError"),
        ("odd:nothing", "odd.* has no function 'nothing'"),
    ],
)
def test_what_cannot_be_trained_by_is_named(loss: str, said: str) -> None:
    with pytest.raises(SpecError, match=rf"task\.loss = '{loss}'.*{said}"):
        trained("odd", loss=loss)


def test_quantities_have_no_labels_to_be_divided_by() -> None:
    with pytest.raises(SpecError, match=r"task\.split = 'dirichlet': 'own' has quantities to learn, and no labels"):
        trained("divided", split={"use": "dirichlet", "clients": 3})
    with pytest.raises(DataError, match=r"only 4 whole numbers up to 3; give integers.*task\.data\.goal = 'regress'"):
        trained("divided", "whole")


def test_goals_and_names_mean_the_same() -> None:
    outputs, labels = torch.randn(4, 3), torch.arange(4) % 3
    assert torch.equal(loss_of("classify", outputs, labels), loss_of("cross-entropy", outputs, labels))
    assert torch.equal(loss_of("forecast", outputs, outputs + 1), loss_of("mse", outputs, outputs + 1))
