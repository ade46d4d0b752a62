"""The constant answer: the commonest class of the test records, by its name where classes have names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from croupier.errors import DataError
from croupier.learn.constant import always, targets
from croupier.learn.data import Dataset, TensorRecords, Windows
from croupier.learn.datasets.own import OwnData


def give(folder: Any) -> Any:
    """Most training records are of class 1, most test records of class 0."""
    return [[1.0], [2.0], [3.0]], [1, 1, 0], [[1.0], [2.0], [3.0]], [0, 0, 1]


def named(folder: Any) -> Any:
    """The same, with names for the classes."""
    return give(folder)


named.classes = ("ok", "fraud")  # type: ignore[attr-defined]


def wrong(folder: Any) -> Any:
    """The same, with too few names."""
    return give(folder)


wrong.classes = ["ok"]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])


def test_it_is_of_the_test_records_and_exact() -> None:
    assert always(OwnData(make=give).load(None)) == {"class": 0, "name": "class 0", "accuracy": 2 / 3}


def test_it_is_named_as_the_function_says() -> None:
    dataset = OwnData(make=named).load(None)
    assert always(dataset) == {"class": 0, "name": "ok", "accuracy": 2 / 3}
    assert dataset.digest == OwnData(make=give).load(None).digest


@pytest.mark.parametrize("names", [["ok"], "ab", [1, 2], 3])
def test_names_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch, names: object) -> None:
    monkeypatch.setattr(wrong, "classes", names)
    with pytest.raises(DataError, match="its attribute classes is no list of 2 names"):
        OwnData(make=wrong).load(None)


def test_quantities_have_none() -> None:
    rows = TensorRecords(torch.zeros(3, 1), torch.zeros(3, 1))
    assert always(Dataset("some", "forecast", 0, rows, rows, "none", "made up")) is None


def test_targets_are_those_of_all_records_in_order() -> None:
    series = torch.arange(3000.0)
    windows = Windows(series, torch.arange(2500), 4)
    assert torch.equal(targets(windows)[:, 0], series[4:2504])
    assert not len(targets(windows.take(torch.zeros(0, dtype=torch.int64))))
