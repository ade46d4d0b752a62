"""A run's lines as flat numbers: names with dots, lists as counts, and folders that are no runs named."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from croupier.errors import StoreError
from croupier.lines import PastRun, as_csv, numbers

LINE = {
    "round": 1, "attempt": 0, "accuracy": 0.5, "refused": ["a", "b"], "model": "00ff", "bytes": {"server": [1, 2]},
    "spent": {"quiet": {"epsilon": 0.5}}, "done": True,
}  # fmt: skip


def test_numbers_by_name() -> None:
    assert numbers(LINE) == {"accuracy": 0.5, "refused": 2, "spent.quiet.epsilon": 0.5, "done": True}


def test_a_line_for_each_round_and_empty_where_there_is_no_number() -> None:
    text = as_csv({"one": [LINE, {**LINE, "round": 2}], "two": [{"round": 1, "loss": 3.0}]})
    rows = list(csv.DictReader(StringIO(text)))
    assert [(row["run"], row["round"]) for row in rows] == [("one", "1"), ("one", "2"), ("two", "1")]
    assert (rows[0]["loss"], rows[2]["loss"], rows[2]["accuracy"]) == ("", "3.0", "")


def folder(place: Path, lines: str) -> Path:
    place.mkdir()
    (place / "spec.toml").write_text("[task]\n")
    (place / "metrics.jsonl").write_text(lines)
    return place


def test_a_run_is_read(tmp_path: Path) -> None:
    found = PastRun.read(folder(tmp_path / "mine", json.dumps(LINE) + "\n"))
    assert (found.name, len(found.rounds), found.described) == ("mine", 1, "[task]\n")


@pytest.mark.parametrize(
    ("lines", "said"),
    [("", "no round of this run has ended"), ("{\n", "line 1 is damaged"), ("[]\n", "line 1 is damaged")],
)
def test_what_is_no_run_is_named(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        PastRun.read(folder(tmp_path / "bad", lines))


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no run directory"):
        PastRun.read(tmp_path)
