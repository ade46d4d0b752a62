"""`croupier compare`, and the CSV and trackers of `croupier run`."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.shell import Shell

from croupier.cli import lab


def past(place: Path, accuracy: float, rounds: int, lr: float) -> Path:
    """A run directory as `croupier run` leaves it, as far as comparing reads it."""
    place.mkdir()
    lines = [{"round": n + 1, "accuracy": accuracy + n / 10, "bytes_up_per_client": 100.0} for n in range(rounds)]
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (place / "spec.toml").write_text(f"[task]\nlr = {lr}\n")
    return place


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    return [past(tmp_path / "one", 0.5, 2, 0.1), past(tmp_path / "other", 0.25, 3, 0.2)]


def test_last_rounds_and_what_differs(two: list[Path], shell: Shell) -> None:
    found = shell.json("compare", *two)["runs"]
    assert [(one["run"], one["rounds"]) for one in found] == [("one", 2), ("other", 3)]
    assert found[0]["last"] == {"accuracy": 0.6, "bytes_up_per_client": 100.0}
    assert [one["differs"] for one in found] == [[], ["-lr = 0.1", "+lr = 0.2"]]
    code, out, said = shell("compare", *two)
    assert (code, said) == (0, "")
    assert "other differs from one in: -lr = 0.1; +lr = 0.2" in out


def test_rounds_as_csv_and_as_a_picture(two: list[Path], shell: Shell, tmp_path: Path) -> None:
    code, _, said = shell("compare", *two, "--csv", tmp_path / "all.csv", "--plot", tmp_path / "all.svg")
    assert (code, said) == (0, "")
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 6
    drawn = ElementTree.fromstring((tmp_path / "all.svg").read_text())
    words = {node.text for node in drawn.iter() if node.tag.endswith("text")}
    assert {"accuracy", "bytes_up_per_client", "one", "other", "round"} <= words


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    folders = [past(tmp_path / "a" / "run", 0.5, 1, 0.1), past(tmp_path / "b" / "run", 0.5, 1, 0.1)]
    assert [one["run"] for one in shell.json("compare", *folders)["runs"]] == [str(one) for one in folders]


def test_one_run_another_picture_and_no_run_are_refused(two: list[Path], shell: Shell, tmp_path: Path) -> None:
    assert "name two or more" in shell.refused("compare", two[0])
    assert "name a file that ends in .svg" in shell.refused("compare", *two, "--plot", tmp_path / "all.png")
    assert "is no run directory" in shell.refused("compare", two[0], tmp_path)


def test_without_the_laboratory_a_picture_is_refused_and_a_table_is_not(
    two: list[Path], shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "missing", lambda: ["matplotlib"])
    assert "pip install 'croupier[lab]'" in shell.refused("compare", *two, "--plot", tmp_path / "all.svg")
    assert not (tmp_path / "all.svg").exists()
    assert shell("compare", *two)[0] == 0


def test_a_run_writes_its_numbers_and_tells_a_tracker(shell: Shell, tmp_path: Path) -> None:
    sets = ["-s", "federation.rounds=2", "-s", "task.split.clients=3", "-s", "task.fit.epochs=1"]
    to = ["--csv", str(tmp_path / "run.csv"), "--track", f"tensorboard={tmp_path / 'logs'}"]
    code, _, _ = shell("run", "digits-small", *sets, "--out", tmp_path / "run", *to)
    assert code == 0
    head, *rows = (tmp_path / "run.csv").read_text().splitlines()
    assert head.startswith("run,round,")
    assert len(rows) == 2
    assert list((tmp_path / "logs" / "digits-small").iterdir())
    assert "is a folder; name a file in it" in shell.refused("run", "digits-small", "--csv", tmp_path)
