"""Whether a run learnt anything: said at its end where a constant answer would have been right as often."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.shell import Shell

MODULE = """
import numpy as np
from torch import nn

def data(folder):
    draw = np.random.default_rng(1)
    x = draw.normal(size=(200, 2))
    y = ({rule}).astype(int)
    owner = np.array(["north", "south"] * 100)
    owner[0] = "Oslo"
    test = np.arange(200) % 4 >= 2
    return x[~test], y[~test], x[test], y[test], owner[~test], owner[test]

data.classes = ["ok", "fraud"]

def net(shape, outputs):
    return nn.Linear(shape[0], outputs)
"""
TASK = """
[task]
data = {{ use = "own", make = "{module}:data" }}
model = {{ use = "own", make = "{module}:net" }}
split = "natural"
fit = {{ use = "sgd", lr = 0.3, epochs = 10 }}
[federation]
rounds = 1
"""


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for module, rule in (("rare", "draw.random(200) > 0.95"), ("common", "x[:, 0] > 0")):
        Path(f"{module}.py").write_text(MODULE.format(rule=rule))
        Path(f"{module}.toml").write_text(TASK.format(module=module))
    return Shell(monkeypatch, capsys)


def said(shell: Shell, *words: str) -> str:
    code, out, _ = shell("run", *words, "--seed", "1", "--out", "here")
    assert code == 0
    return " ".join(out.split())


def test_a_model_that_is_no_better_than_a_constant_answer_is_called_that(shell: Shell) -> None:
    out = said(shell, "rare.toml")
    found = json.loads(Path("here/summary.json").read_text())
    constant, right = found["always"]["accuracy"], found["final"]["accuracy"]
    assert (found["always"]["name"], right) == ("ok", constant)
    assert constant > 0.8
    note = f"rare: accuracy {right:.1%}: no better than always answering 'ok' ({constant:.1%} of the test records); "
    assert f"{note}--set 'task.metrics=[\"auc\"]' shows" in out


def test_where_auc_was_asked_for_it_is_told_beside_it(shell: Shell) -> None:
    out = said(shell, "rare.toml", "--set", 'task.metrics=["auc"]', "--set", "task.split.clients=2")
    auc = json.loads(Path("here/summary.json").read_text())["final"]["auc"]
    assert f"of the test records); its AUC is {auc:.3f}, where 0.5 is a guess" in out


def test_a_model_that_is_better_is_not(shell: Shell) -> None:
    out = said(shell, "common.toml")
    found = json.loads(Path("here/summary.json").read_text())
    assert found["final"]["accuracy"] > found["always"]["accuracy"]
    assert "no better than" not in out


def test_a_client_without_test_records_is_said(shell: Shell) -> None:
    assert "rare: Oslo has no test records of its own rare:" in said(shell, "rare.toml")
