"""The examples as a hospital's engineer meets them: every command works on each of them."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from tests.scenes import hasten
from tests.shell import Shell

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("logistic", "mlp", "regression")
HOSPITALS = ("centre", "east", "north", "south", "west")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """The command line, in a copy of the folder."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__", "runs", "audits"))
    monkeypatch.chdir(tmp_path / "examples")
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Shell(monkeypatch, capsys)


def test_the_records_are_drawn_again_to_the_last_byte(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "make_hospitals.py", tmp_path)
    runpy.run_path(str(tmp_path / "make_hospitals.py"))
    assert (tmp_path / "hospitals.csv").read_bytes() == (EXAMPLES / "hospitals.csv").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_each_is_described_in_under_twenty_lines(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text() + (EXAMPLES / f"{name}.toml").read_text()
    assert len([line for line in text.splitlines() if line.strip()]) < 20


@pytest.mark.parametrize("name", NAMES)
def test_each_runs_and_prints_results_for_all_and_for_each_hospital(shell: Shell, name: str) -> None:
    code, out, said = shell("run", f"{name}.toml", "--seed", "1", "--set", "federation.rounds=2")
    assert code == 0, said
    heads = ("RMSE", "MAE") if name == "regression" else ("accuracy", "AUC")
    assert all(word in out for word in (*HOSPITALS, *heads, "all together"))
    found = shell.json("run", f"{name}.toml", "--seed", "1", "--set", "federation.rounds=2")["runs"][0]
    results = found["clients"]["results"]
    assert sorted(results) == list(HOSPITALS)
    assert sum(one["test_records"] for one in results.values()) == 375
    if name == "regression":
        assert found["final"]["rmse"] < 1.5
    else:
        assert found["final"]["auc"] > 0.8
        assert all(one["metrics"]["auc"] > 0.7 for one in results.values())


@pytest.mark.parametrize("name", NAMES)
def test_each_is_explained_and_planned(shell: Shell, name: str) -> None:
    code, out, _ = shell("explain", f"{name}.toml")
    assert code == 0
    assert "server" in out
    code, out, _ = shell("plan", f"{name}.toml")
    assert code == 0
    assert "5 of 5 clients a round" in out


@pytest.mark.parametrize("name", NAMES)
def test_each_is_audited(shell: Shell, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)
    words = (
        "--seeds", "2", "--set", "federation.rounds=1", "--against", "shuffle-layer", "--report", "page.html", "-v",
    )  # fmt: skip
    code, out, said = shell("audit", f"{name}.toml", *words)
    assert code == 0, said
    found = json.loads(Path("page.json").read_text())
    assert found["clients"] == 5
    assert found["rows"][0]["protocol"] == found["protocol"]
    plain = next(row for row in found["rows"] if row["defence"] == "none")
    attacks = {
        row["defence"]: {
            name: row["questions"][name]["adversaries"]["server"]["attacks"] for name in ("source", "membership")
        }
        for row in found["rows"]
    }
    known = attacks["none"]["source"]["named+prior"]["prior"]
    assert known > 0.2, "patients differ, and that is known without a view"
    assert all("value" in one for one in attacks["none"]["membership"].values())
    finer = attacks["shuffle-layer"]["source"]
    if name == "regression":
        assert plain["rmse"] < 2
        assert all("quantities are learnt" in one["not_run"] for key, one in finer.items() if key != "prior")
        assert "algorithm3" in out
        assert "not run" in out
    else:
        assert plain["accuracy"] > 0.7
        assert not any("not_run" in one for one in finer.values())
