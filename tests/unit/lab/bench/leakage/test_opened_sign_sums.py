"""What an opened sum of weighted signs tells of its rows, measured for few levels of weights and for many."""

from __future__ import annotations

import json
import sys

import pytest

from croupier.errors import SpecError
from croupier_lab.bench.leakage.opened_sign_sums import OpenedSumsSize, measure, show


def test_levels_against_distinct_weights(capsys: pytest.CaptureFixture[str]) -> None:
    found = measure(OpenedSumsSize(), 0)
    assert [row["levels"] for row in found["levels"]] == [1, 2, 4]
    one = found["levels"][0]
    assert one["unique_columns"] == pytest.approx(0.9**10 + 0.1**10)
    assert found["distinct"][1]["unique_columns"] > 0.95
    assert found["distinct"][1]["columns"] == "all"
    show(found)
    said = capsys.readouterr().out
    assert "1 levels:  34.9% of columns open; best row 0.0844 of 0.469 bits" in said
    assert "distinct weights of 16 bits" in said


def test_many_rows_are_sampled_or_left_out() -> None:
    found = measure(OpenedSumsSize(clients=20, levels=(1,), flip=0.5), 0)
    assert [row["columns"] for row in found["distinct"]] == [200] * 3
    assert found["distinct"][2]["unique_columns"] > found["distinct"][0]["unique_columns"]
    assert measure(OpenedSumsSize(clients=100, levels=(1,)), 0)["distinct"] == []


def test_levels_that_cannot_be() -> None:
    with pytest.raises(SpecError, match="levels = 6"):
        OpenedSumsSize(clients=5, levels=(1, 6))


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from croupier.cli import main

    line = ["croupier", "bench", "opened", "--clients", "6", "--levels", "2", "--flip", "0.5", "--json"]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert (found["clients"], found["flip"], [row["levels"] for row in found["levels"]]) == (6, 0.5, [2])
    assert found["levels"][0]["levels_filled"] == {"1": 3, "2": 3}
