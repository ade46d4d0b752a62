"""Everything that is printed fits a window of eighty columns, and no word is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from tests.browser.findings import rate, usual
from tests.shell import Shell

from croupier import profiling, soundness
from croupier.audit.sights import VIEWS
from croupier.cli import audit, integrity, profile, secrecy
from croupier.cli.fit import fitted, line, wrapped

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


def source() -> dict[str, Any]:
    found = usual()
    for row in found["rows"]:
        row["attacks"]["prior"]["carried"] = "the records of the shadow sets, by a learner chosen on them alone"
    return found


def habits() -> dict[str, Any]:
    mark = {**rate(0.5, 0.1), "prior": 0.4, "control": True}
    names = ["cosine", "CosAUC", "delta-cos", "day: clients named right", "day: ARI", "use: clients named right"]
    marks = {**dict.fromkeys([*names, "use: ARI"], mark), profiling.ROW: mark}
    kinds = {"classes": ["low", "middle", "high"], "chance": 1 / 3}
    return {
        "name": "intra-london", "runs": 5, "judged_by": "wiener", "epsilons": {"tiers": [[0.5] * 40]},
        "attributes": {"day": {"title": "when electricity is used most, by day", **kinds},
                       "use": {"title": "how much electricity it uses", **kinds}},
        "arms": [{"noise": "noise as in the paper's Table 1", "view": view, "denoisers": {"wiener": marks}}
                 for view in VIEWS],
        "sentences": ["a sentence of many words " * 9], "adversaries": profiling.adversaries(1.0),
        "paper": profiling.PAPER,
    }  # fmt: skip


def hidden() -> dict[str, Any]:
    value = rate(0.93, 0.05)
    group = {"group": "hidden.0.units", "size": 256, "absolute": value, "relative": value, "chance": 1 / 256,
             "uploads": 75}  # fmt: skip
    read = {"moment": "trained model", "knows": "relative", "read": "in the unknown order", "psnr": rate(41.0, 3),
            "ssim": value, "records": 30}  # fmt: skip
    lie = {"says": "its hidden units lie in another order: it answers alike", "rule": "mean of all", "honest": value,
           "accuracy": value, "left_out": 0, "alone": 2, "honest_alone": 1, "runs": 3}  # fmt: skip
    order = {"name": "the clients draw the first model, a rule every round", "groups": [group], "inversion": [read]}
    told = {"hidden": True, "orders": [order], "tampered": [lie], "says": ["many words of a sentence " * 8]}
    return {
        "name": "tazza-mnist", "clients": 100, "cohort": 10, "rounds": 50, "runs": 3, "confidentiality": told,
        "verdict": ["a verdict of many words " * 8],
    }  # fmt: skip


def attacked() -> dict[str, Any]:
    value = rate(0.93, 0.05)
    pure = dict.fromkeys(("all", "several", "one", "groups"), value)
    row = {"received": value, "clusters": value, "success": value, "purity": pure, "rounds": [{"all": value}] * 50}
    titles = (soundness.NONE, soundness.NOISE, soundness.REPLACE)
    return {
        **hidden(), "malicious": 25, "sentences": ["many words " * 20], "paper": list(soundness.PAPER),
        "rows": [{"attack": title, "rule": "Trimmed Mean", **row} for title in titles],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("show", "found", "words"),
    [
        (audit.show, source, {"defence", "success", "prior", "accuracy", "up/client"}),
        (profile.show, habits, {"CosAUC", "delta-cos", "IntraShuffler", "linked"}),
        (secrecy.show, hidden, {"PSNR,", "hidden.0.units", "between", "noticed"}),
        (integrity.show, attacked, {"replacement", "purity", "alone", "clusters", "Trimmed"}),
    ],
)
def test_audits_fit(
    show: Any, found: Any, words: set[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    show(found())
    assert words <= checked(capsys.readouterr().out)


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
