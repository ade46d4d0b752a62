"""Everything that is printed fits a window of eighty columns, and no word is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table
from tests.reports import cell, report, silent
from tests.shell import Shell

from croupier.cli import findings
from croupier.cli.fit import fitted, line, wrapped
from croupier.learn.likeness import psnr

SMALL = ("-s", "federation.rounds=2", "-s", "task.fit.epochs=1", "-s", "run.workers=1", "--seed", "7")
WIDTH = 80


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """In an empty folder, and a window of eighty columns."""
    monkeypatch.chdir(tmp_path)
    made = Shell(monkeypatch, capsys)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    return made


def checked(out: str) -> set[str]:
    """Every line fits; the words of what was printed."""
    assert [one for one in out.splitlines() if len(one) > WIDTH] == []
    return set(out.split())


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "digits"), ("explain", "rain"), ("explain", "intra-london"), ("explain", "tazza-mnist"),
        ("explain", "rns", "--table"), ("doctor",), ("reproduce",), ("reproduce", "rns/table1"),
        ("plan", "dp", "--epsilon", "8", "--rounds", "5"),
        ("plan", "dp", "--sigma", "4", "--rounds", "10", "--clients", "200", "--cohort", "20", "--total", "50"),
        ("run", "digits", *SMALL), ("run", "intra", *SMALL), ("run", "digits", "digits-sum", *SMALL),
        ("run", "digits-sum", *SMALL, "-s", "protocol.encode.scale=0.01", "-s", "protocol.aggregate=mean"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_commands_fit(shell: Shell, words: tuple[str, ...]) -> None:
    code, out, _ = shell(*words)
    assert code == 0
    checked(out)


def test_the_table_of_a_run_has_all_its_columns_whole(shell: Shell) -> None:
    _, out, _ = shell("run", "intra", *SMALL)
    assert {
        "round",
        "accuracy",
        "loss",
        "epsilon,",
        "up/client",
        "down/client",
        "seconds",
        "peak",
        "memory",
    } <= checked(out)


def wide() -> dict[str, Any]:
    """Every question has a column, and a number of every unit."""
    found = report()
    units = {"reconstruction": "dB", "separation": "cosine", "carries": "bits"}
    cell = found["rows"][0]["questions"]["source"]
    for name in findings.SHORT:
        found["questions"].setdefault(name, found["questions"]["source"])
        found["questions"][name] = {**found["questions"][name], "unit": units.get(name, "share")}
        for row in found["rows"]:
            row["questions"].setdefault(name, cell)
    return {**found, "left_out": {"tazza": "a reason of many words " * 5}}


@pytest.mark.parametrize("verbose", [False, True])
def test_audits_fit(verbose: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    findings.show(wide(), verbose)
    assert {"defence", *findings.SHORT.values(), "accur.", "up"} <= checked(capsys.readouterr().out)


def test_ten_decibels_are_a_tenth_of_the_squared_error(capsys: pytest.CaptureFixture[str], broad: None) -> None:
    findings.show(wide())
    said = " ".join(capsys.readouterr().out.split())
    assert "dB (10 more: a tenth of the squared error)" in said
    one = torch.zeros(2, 1, 8, 8)
    found = psnr(one + torch.tensor([0.1, 0.1**0.5]).reshape(2, 1, 1, 1), one)
    assert float(found[0] - found[1]) == pytest.approx(10, abs=1e-3)


def printed_row(text: str, defence: str) -> list[str]:
    """The cells of a defence's row, with lines between them or without."""
    rows = [one.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split() for one in text.splitlines()]
    (found,) = [row for row in rows if len(row) > 5 and row[0] == defence and row[1][0] in "+-?.x="]
    return found


@pytest.fixture
def broad(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in which a matrix stands in one piece."""
    monkeypatch.setenv("COLUMNS", "160")


def test_marks_tell_no_answer_from_no_run(capsys: pytest.CaptureFixture[str], broad: None) -> None:
    found = report()
    cells = found["rows"][1]["questions"]
    cells["source"]["worst_case"] = "one step"
    why = {
        "membership": ("did not run: too few", False),
        "linkage": ("no rows", False),
        "reconstruction": ("not tested: nobody dropped out", False),
        "poisoning": ("few runs", True),
    }
    for name, (said, unsure) in why.items():
        cells[name] |= {"status": "not-run", "gain": None, "why": said, "unsure": unsure, "adversaries": {}}
    findings.show(found | {"left_out": {"rain": "it needs 10 clients"}})
    out = capsys.readouterr().out
    assert printed_row(out, "none")[1:6] == ["+44*", "x", "?", "-", "?"]
    assert "  rain was not compared: it needs 10 clients" in out


def test_what_a_row_does_not_say_by_itself_stands_below(capsys: pytest.CaptureFixture[str], broad: None) -> None:
    found = wide()
    found["rows"][0]["questions"] |= {"linkage": silent("not-run", "not tested: nobody dropped out")}
    found["rows"][1] |= {"accuracy": 0.1, "accuracy_low": 0.08}
    found["rows"][2]["questions"]["separation"] = cell("source", 0.0094, 0.0065)
    findings.show(found)
    out = capsys.readouterr().out
    assert "  none: its model is no better than always answering the commonest class" in out
    assert "  not tested: linkage: nobody dropped out" in out
    assert "+0.01!" in printed_row(out, "shuffle-parameter")


def test_a_wide_table_is_printed_in_parts_that_begin_with_its_labels() -> None:
    table = Table(title="wide")
    for at in range(9):
        table.add_column(f"a head {at}", justify="left" if at < 2 else "right")
    for row in range(3):
        table.add_row(*(f"{row} cell of {at}" for at in range(9)), end_section=row == 1)
    console = Console(width=WIDTH)
    parts = fitted(table, console, 2)
    assert len(parts) > 1
    assert [part.title for part in parts] == ["wide"] + [None] * (len(parts) - 1)
    assert all([str(column.header) for column in part.columns[:2]] == ["a head 0", "a head 1"] for part in parts)
    heads = [str(column.header) for part in parts for column in part.columns[2:]]
    assert heads == [f"a head {at}" for at in range(2, 9)]
    assert [row.end_section for row in parts[-1].rows] == [False, True, False]
    assert fitted(table, Console(width=400), 2) == [table]


def test_a_pipe_has_no_width_and_a_path_is_not_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/a/very-long-path/" * 8
    monkeypatch.delenv("COLUMNS", raising=False)
    assert line("many words " * 30) == "many words " * 30
    monkeypatch.setenv("COLUMNS", "40")
    assert path in line(f"report: {path}")
    assert max(map(len, wrapped("many words " * 30).splitlines())) <= 40
