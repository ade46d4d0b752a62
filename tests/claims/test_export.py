"""The trained model is a file that plain torch reads, and a run can start from it."""

from __future__ import annotations

import json
from collections import OrderedDict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

from croupier.engine.job.result import Result
from croupier.engine.job.run import run
from tests.claims.tools import SMALL, bench


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Result:
    sets = [*SMALL, "federation.rounds=4", "task.fit.epochs=5", "task.model.hidden=[24, 16]"]
    return run("digits-shuffled", sets=sets, out=tmp_path_factory.mktemp("export") / "run", seed=2)


def _plain() -> nn.Module:
    layers = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 10))
    return nn.Sequential(OrderedDict(layers=layers))


def _test_part() -> tuple[Tensor, Tensor]:
    """Every fifth digit of each class, counted within the class."""
    digits = load_digits()
    held = np.zeros(len(digits.target), bool)
    for label in range(10):
        held[np.flatnonzero(digits.target == label)[4::5]] = True
    return torch.tensor(digits.data[held] / 16, dtype=torch.float32), torch.tensor(digits.target[held])


def test_plain_torch_reads_the_exported_model_and_finds_the_same_accuracy(trained: Result) -> None:
    model = _plain()
    model.load_state_dict(load_file(trained.path / "model.safetensors"))
    inputs, targets = _test_part()
    with torch.no_grad():
        outputs = model(inputs)
    last = json.loads((trained.path / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["round"] == 4
    assert last["accuracy"] > 0.5
    assert float((outputs.argmax(1) == targets).double().mean()) == pytest.approx(last["accuracy"], abs=1e-12)
    assert float(nn.functional.cross_entropy(outputs, targets)) == pytest.approx(last["loss"], rel=1e-5)


def test_the_exported_file_says_what_it_is(trained: Result) -> None:
    with safe_open(trained.path / "model.safetensors", "pt") as file:
        about = file.metadata()
    assert list(about) == ["croupier"], "the format writes several keys in an order of its own"
    assert json.loads(about["croupier"]) == {"run": "digits-shuffled", "version": version("croupier")}


def test_the_result_holds_the_same_module(trained: Result) -> None:
    saved = load_file(trained.path / "model.safetensors")
    state = trained.model.state_dict()
    assert list(state) == list(_plain().state_dict())
    assert all(torch.equal(state[name], saved[name]) for name in saved)
    assert not trained.model.training
    assert all(parameter.grad is None for parameter in trained.model.parameters())


def test_a_warm_start_begins_where_the_other_run_ended(trained: Result) -> None:
    warm = f"task.warm={trained.path / 'model.safetensors'}"
    table = bench("digits", [warm, "task.model.hidden=[24, 16]"])
    found = table.made.task.evaluate(table.made.task.first)
    assert found["accuracy"] == trained.final["accuracy"]
    assert found["loss"] == pytest.approx(trained.final["loss"], rel=1e-12)


def test_a_warm_run_stays_where_it_began_when_nobody_learns(trained: Result, tmp_path: Path) -> None:
    sets = [
        *SMALL,
        f"task.warm={trained.path / 'model.safetensors'}",
        "task.model.hidden=[24, 16]",
        "task.fit.lr=1e-12",
    ]
    again = run("digits", sets=[*sets, "federation.rounds=1"], out=tmp_path / "warm", seed=9)
    assert again.final["accuracy"] == trained.final["accuracy"]
    assert again.final["loss"] == pytest.approx(trained.final["loss"], rel=1e-6)
