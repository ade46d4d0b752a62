"""Metrics by name and of the user's own, and results by client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from croupier.engine.job.result import Result
from croupier.engine.job.run import run
from croupier.errors import DataError, SpecError
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.metrics import Metric, Undefined, metrics_of

HEAD = """
import numpy as np
from torch import nn

rng = np.random.default_rng(0)
x = rng.normal(size=(90, 3))
y = (x @ [1.0, -2.0, 0.5] + rng.normal(size=90) > 0).astype(int)
who = np.array(["ash", "oak", "yew"])[np.arange(90) % 3]

def data(folder):
    return x[:60], y[:60], x[60:], y[60:], who[:60], who[60:]

def net(shape, classes):
    return nn.Linear(shape[0], classes)

def share(outputs, targets):
    return float((outputs.argmax(1) == 1).double().mean())
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def trained(name: str, *more: str, text: str = "", **task: object) -> Result:
    Path(f"{name}.py").write_text(HEAD + text)
    described = {
        "data": {"use": "own", "make": f"{name}:data"}, "model": {"use": "own", "make": f"{name}:net"},
        "split": "natural", **task,
    }  # fmt: skip
    return run({"task": described, "federation": {"rounds": 2}}, sets=more, seed=1, out=f"out-{name}")


def test_known_metrics_are_those_of_scikit_learn() -> None:
    draw = torch.Generator().manual_seed(0)
    outputs, labels = torch.randn(40, 2, generator=draw), torch.arange(40) % 2
    said = torch.softmax(outputs.double(), 1)
    assert Metric("auc")(outputs, labels) == pytest.approx(roc_auc_score(labels, said[:, 1]))
    assert Metric("f1")(outputs, labels) == pytest.approx(f1_score(labels, outputs.argmax(1)))
    many, three = torch.randn(60, 3, generator=draw), torch.arange(60) % 3
    wanted = roc_auc_score(three, torch.softmax(many.double(), 1), multi_class="ovr")
    assert Metric("auc")(many, three) == pytest.approx(wanted)
    assert Metric("rmse", 2.0)(torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0], [0.0]])) == pytest.approx(2 * 5**0.5)
    assert Metric("mae")(torch.tensor([[1.0], [3.0]]), torch.zeros(2, 1)) == 2
    with pytest.raises(Undefined, match="1 of 2 classes are there"):
        Metric("auc")(outputs, torch.zeros(40, dtype=torch.int64))


@pytest.mark.parametrize("name", ["f1", "precision", "recall"])
def test_scores_of_a_class_that_no_record_has_are_not_defined(name: str) -> None:
    outputs = torch.eye(2)[torch.tensor([0, 1, 1, 0])]
    with pytest.raises(Undefined, match="no record is of class 1"):
        Metric(name)(outputs, torch.zeros(4, dtype=torch.int64))
    with pytest.raises(Undefined, match="2 of 3 classes are there"):
        Metric(name)(torch.eye(3)[:2], torch.arange(2))
    assert Metric(name)(outputs, torch.ones(4, dtype=torch.int64)) > 0, "class 1 alone is enough"
    never = torch.eye(2)[torch.zeros(4, dtype=torch.int64)]
    assert Metric(name)(never, torch.arange(4) % 2) == 0, "a class that is there and never guessed"


@pytest.mark.parametrize("name", ["auc", "balanced_accuracy"])
@pytest.mark.parametrize("classes", [1, 2])
def test_scores_that_compare_classes_need_two(name: str, classes: int) -> None:
    with pytest.raises(Undefined, match="1 of 2 classes are there"):
        Metric(name)(torch.rand(4, classes), torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("name", ["auc", "recall"])
def test_one_class_everywhere_is_refused_before_anything_is_left(name: str, recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(DataError, match=rf"task\.metrics = '{name}': not defined for the test records"):
        trained(f"single_{name}", metrics=[name], text="\ny[:] = 0\n")
    assert not Path(f"out-single_{name}").exists()
    assert not [one for one in recwarn if "UndefinedMetric" in one.category.__name__]


def test_a_run_measures_every_client_on_its_own_records() -> None:
    done = trained("owned", metrics=["auc", "owned:share"])
    assert set(done.final) >= {"accuracy", "loss", "auc", "share"}
    found = done.summary["clients"]["results"]
    assert list(found) == ["ash", "oak", "yew"]
    assert {(one["train_records"], one["test_records"]) for one in found.values()} == {(20, 10)}
    for name in ("accuracy", "share"):
        mean = sum(one["metrics"][name] for one in found.values()) / 3
        assert mean == pytest.approx(done.final[name]), "parts of one size: their mean is the whole's"
    assert len({one["metrics"]["auc"] for one in found.values()}) > 1


def test_a_client_with_one_class_only_has_no_auc_and_says_why() -> None:
    text = "\ny = np.where(who == 'oak', 1, y)\n"
    found = trained("lonely", metrics=["auc"], text=text).summary["clients"]["results"]
    assert "auc" not in found["oak"]["metrics"]
    assert found["oak"]["undefined"] == {"auc": "1 of 2 classes are there"}
    assert "auc" in found["ash"]["metrics"]


def test_clients_without_test_records_of_their_own_are_told_so() -> None:
    text = "\ndef data(folder):\n    return x[:60], y[:60], x[60:], y[60:], who[:60]\n"
    assert "no test records of their own" in trained("bare", text=text).summary["clients"]["why"]
    iid = trained("dealt", split={"use": "iid", "clients": 3})
    assert "'natural'" in iid.summary["clients"]["why"]


def test_what_cannot_be_measured_is_named() -> None:
    rows = TensorRecords(torch.rand(4, 2), torch.arange(4) % 2)
    classes = Dataset("few", "classify", 2, rows, rows, "", "")
    with pytest.raises(SpecError, match=r"task\.metrics = 'rmse': 'few' has classes to learn; use accuracy, auc"):
        metrics_of(("rmse",), classes)
    with pytest.raises(SpecError, match="'auc' would name two results"):
        metrics_of(("auc", "mine:auc"), classes)
    for taken in ("loss", "record", "spent", "bytes"):
        with pytest.raises(SpecError, match=f"'{taken}' would name two results"):
            metrics_of((f"mine:{taken}",), classes)
    with pytest.raises(SpecError, match=r"task\.metrics\.0 = 'acu': no metric has that name; did you mean 'auc'"):
        trained("wrong", metrics=["acu"])
    with pytest.raises(DataError, match=r"task\.metrics = 'auc': not defined for the test records \(1 of 2 classes"):
        trained("same", metrics=["auc"], text="\ny[60:] = 1\n")
    with pytest.raises(SpecError, match=r"task\.metrics = 'texts:word': it gave str; return one number"):
        trained("texts", metrics=["texts:word"], text="\ndef word(outputs, targets):\n    return 'good'\n")
