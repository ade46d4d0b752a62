"""What a run warns of: once, on standard error or as Python's warnings, with a remedy, and only with reason."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.shell import Shell

import croupier
from croupier import CroupierWarning

SMALL = ["federation.rounds=2", "task.split={use='iid', clients=3}", "task.model.hidden=[4]", "task.fit.epochs=1"]
OWN = """
import numpy as np
def make(train, test):
    x = np.random.RandomState(0).rand(60, 4).astype(np.float32)
    return x, np.resize(train, 60), x[:20], np.resize(test, 20)
def same(folder): return make([1], [1])
def strange(folder): return make([0, 1], [0, 1, 2, 3])
def fine(folder): return make([0, 1], [1])
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs something, and gives what it warned of."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd_labels.py").write_text(OWN)
    (tmp_path / "empty.toml").write_text("# nothing yet\n")

    def run(source: Any, *sets: str) -> list[str]:
        heard: list[str] = []

        def watch(event: str, facts: Mapping[str, Any]) -> None:
            heard.extend([facts["text"]] if event == "warning" else [])

        croupier.run(source, sets=sets, seed=1, watch=watch)
        return heard

    return run


def _own(name: str) -> dict[str, Any]:
    return {"task": {"data": {"use": "own", "make": f"odd_labels:{name}"}}}


def test_nothing_is_said_of_what_is_fine(said: Any) -> None:
    assert said("digits", *SMALL) == []
    assert said(_own("fine"), *SMALL) == []


def test_one_class_only(said: Any) -> None:
    (text,) = said(_own("same"), *SMALL)
    assert text.startswith("every training record of 'own' has the label 1: ")
    assert text.endswith("check the labels")


def test_unknown_test_labels(said: Any) -> None:
    (text,) = said(_own("strange"), *SMALL)
    assert "10 of 20 test records of 'own' have labels that no training record has (2, 3)" in text
    assert "accuracy is at most 50.0%; count labels alike" in text


def test_one_client(said: Any) -> None:
    (text,) = said("digits", *SMALL, "task.split.clients=1")
    assert text.startswith("one client is enrolled: there is nobody to hide among")
    assert "task.split.clients" in text
    (text,) = said("digits", *SMALL, "federation.cohort=1")
    assert text.startswith("one client is invited to a round: ")
    assert "raise federation.cohort" in text


def test_an_empty_description(said: Any) -> None:
    for source in ({}, "empty.toml", {"name": "mine"}):
        (text,) = said(source)
        assert text.startswith("the description is empty, so that all of it is defaults: data digits, model mlp, 10 cl")
    assert said({}, *SMALL) == [], "settings are a description"


def test_a_loss_that_rises_is_told_once(said: Any) -> None:
    (text,) = said("digits", *SMALL, "federation.rounds=4", "task.fit.lr=60", "task.fit.momentum=0")
    assert text.startswith("round ")
    assert "before training: it diverges; lower task.fit.lr" in text


def test_without_a_watcher_they_are_pythons_warnings(tmp_path: Path) -> None:
    with pytest.warns(CroupierWarning, match="one client is enrolled"):
        croupier.run("digits", sets=[*SMALL, "task.split.clients=1"], out=tmp_path / "one")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CroupierWarning)
        croupier.run("digits", sets=SMALL, out=tmp_path / "three")


def test_on_the_command_line_they_are_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(monkeypatch, capsys)
    (tmp_path / "none.toml").write_text("")
    code, out, err = shell("run", str(tmp_path / "none.toml"), "--json")
    assert code == 0
    assert err.count("\n") == 1
    assert "warning: the description is empty" in err
    assert "empty" not in out
    small = [word for one in (*SMALL, "task.split.clients=1") for word in ("-s", one)]
    code, _, err = shell("run", "digits", *small)
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("digits: warning: one client is enrolled: ")
    assert "(--set task.split.clients=10)" in err
    code, _, err = shell("explain", str(tmp_path / "none.toml"))
    assert (code, err.count("warning: the description is empty")) == (0, 1)
