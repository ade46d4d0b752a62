"""What a table's columns become in a project: numbers, words as 0 and 1, or nothing, with a reason and a remedy."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.test_starter import passes

from croupier.audit.setting import Setting
from croupier.audit.stage import Withheld
from croupier.core.coins import Coins
from croupier.errors import DataError, SpecError
from croupier.learn.given import OwnRecords
from croupier.learn.split import Natural
from croupier.starter import AUDITED, Contents, Table, write_starter

NUMBER = "; write numbers there, or delete those records"
WORD = "; write a word there, such as unknown"


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (["1", "", "3", "4"], f"1 of 8 cells is empty, in line 3{NUMBER}"),
        (["", "2", " ", "4"], f"2 of 8 cells are empty, the first in line 2{NUMBER}"),
        (["1", "2", "n/a", "4"], "line 4 has 'n/a', which is no number; mend that cell"),
        (["1", "2", "nan", "4"], "line 4 has 'nan', which is no number; mend that cell"),
        (["1", "x", "3", "y"], "2 cells are no numbers, the first 'x' in line 3; mend them"),
        (["x", "", "3", "4"], "line 2 has 'x', which is no number; mend that cell; 1 of 8 cells is empty, in line 3"),
        (["7"], "always '7', which tells nothing"),
        ([""], "every cell is empty"),
    ],
)
def test_a_column_of_numbers_with_a_slip_is_left_out_by_its_line(tmp_path: Path, cells: list[str], why: str) -> None:
    column = [*cells, *"5678"] if len(cells) > 1 else cells * 8
    assert read(tmp_path, {"bmi": column}).left_out["bmi"].startswith(why)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (["red", "", "blue", "red"] * 2, f"2 of 8 cells are empty, the first in line 3{WORD}"),
        (list("abcdefgh"), "8 different words in 8 records; an identifier is better left out"),
        ([*map(chr, range(97, 110)), "a"], "13 different words; group them into 12 at most, or write numbers"),
    ],
)
def test_words_that_cannot_be_coded_are_left_out_with_what_helps(tmp_path: Path, cells: list[str], why: str) -> None:
    assert read(tmp_path, {"bmi": cells}).left_out == {"bmi": why}


def read(folder: Path, columns: dict[str, list[str]], **more: Any) -> Contents:
    """What is found in a table of these columns, of two owners, with a column of numbers besides."""
    count = len(next(iter(columns.values())))
    cells = {"who": list("aabb") * count, "x": list("01234") * count, "y": list("01") * count}
    every = {name: column[:count] for name, column in {**cells, **columns}.items()}
    rows = [",".join(row) for row in zip(*every.values(), strict=True)]
    (folder / "t.csv").write_text("\n".join([",".join(every), *rows, ""]), "utf-8")
    found = write_starter(folder / "new", "table", Table(folder / "t.csv", "y", "who", **more))[1]
    assert found is not None
    return found


def data_of(folder: Path) -> tuple[Any, ...]:
    """What the project's function gives."""
    given: tuple[Any, ...] = runpy.run_path(str(folder / "new" / "task.py"))["data"](None)
    return given


def test_words_become_columns_of_0_and_1(tmp_path: Path) -> None:
    colours = ["red", "blue", "green", "red", "blue", "green", "red", "red"]
    columns = {"smokes": ["no", "yes"] * 4, "colour": colours}
    found = read(tmp_path, columns)
    assert found.columns == ["x", "smokes", "colour"]
    assert found.words == {"smokes": ["no", "yes"], "colour": ["blue", "green", "red"]}
    x, _, x_test, *_ = data_of(tmp_path)
    # The second record of each owner is for testing.
    rows = [(i % 2, *(float(colours[i] == one) for one in ("blue", "green", "red"))) for i in range(8)]
    assert x[:, 1:].tolist() == [list(rows[i]) for i in (0, 2, 4, 5, 6, 7)]
    assert x_test[:, 1:].tolist() == [list(rows[i]) for i in (1, 3)]
    passes(tmp_path / "new")


def test_a_table_of_words_alone_is_enough(tmp_path: Path) -> None:
    found = read(tmp_path, {"x": ["no", "yes"] * 4})
    assert found.columns == ["x"]
    assert data_of(tmp_path)[0].tolist() == [[0], [0], [0], [1], [0], [1]]


def test_a_word_that_comes_later_is_an_error_that_names_it(tmp_path: Path) -> None:
    read(tmp_path, {"colour": ["red", "blue"] * 4, "y": ["ill", "well"] * 4})
    csv = tmp_path / "new" / "t.csv"
    before = csv.read_text("utf-8")
    for word, said in (("blue", "colour is 'pink', which is none of"), ("well", "y is 'pink', which is none of")):
        csv.write_text(before.replace(word, "pink"), "utf-8")
        with pytest.raises(ValueError, match=said):
            data_of(tmp_path)


def test_of_two_lopsided_classes_the_rarer_is_class_1_and_auc_is_measured(tmp_path: Path) -> None:
    found = read(tmp_path, {"y": [("fraud" if i % 10 in (1, 2) else "ok") for i in range(40)]})
    assert (found.classes, found.class_records, found.metrics) == (["ok", "fraud"], [32, 8], ["auc"])
    described = (tmp_path / "new" / "task.toml").read_text("utf-8")
    assert tomllib.loads(described)["task"]["metrics"] == ["auc"]
    assert "80.0% of the records are of class 'ok'" in described
    assert data_of(tmp_path)[1].sum() == 8 - data_of(tmp_path)[3].sum()
    passes(tmp_path / "new")


@pytest.mark.parametrize(
    "targets",
    [
        pytest.param([("fraud" if i % 10 in (1, 2, 3) else "ok") for i in range(40)], id="three in four"),
        pytest.param([("fraud" if i % 10 in (0, 8) else "ok") for i in range(40)], id="none to test on"),
        pytest.param([f"{i}.5" for i in range(40)], id="quantities"),
    ],
)
def test_auc_is_measured_only_where_it_helps_and_can_be(tmp_path: Path, targets: list[str]) -> None:
    assert read(tmp_path, {"y": targets}).metrics == []
    assert "metrics" not in tomllib.loads((tmp_path / "new" / "task.toml").read_text("utf-8"))["task"]


def test_columns_are_brought_to_the_middle_whatever_their_size(tmp_path: Path) -> None:
    """Years as well as ages: scaled columns lie around 0 with a spread of about 1."""
    years, tiny = [str(2015 + i % 10) for i in range(40)], [f"{5e6 + i % 7 * 1e-3:.4f}" for i in range(40)]
    read(tmp_path, {"year": years, "tiny": tiny, "x": [str(1e6 * (i % 3)) for i in range(40)]})
    made = runpy.run_path(str(tmp_path / "new" / "task.py"))
    assert made["MIDDLE"][1] == 2019.5
    x, _, x_test, *_ = made["data"](None)
    every = np.vstack([x, x_test])
    assert np.abs(every.mean(0)).max() < 0.1
    assert np.abs(every.std(0) - 1).max() < 0.1


def test_what_may_be_an_identifier_is_asked_about_and_can_be_dropped(tmp_path: Path) -> None:
    columns = {"id": [str(1000 + i) for i in range(40)], "cost": [f"{i}.5" for i in range(40)]}
    asked = (
        "id: 40 different whole numbers in 40 records; if it is an identifier, leave it out with --drop id, into "
        "another folder: nothing is overwritten"
    )
    assert read(tmp_path, columns).warnings == [asked]
    (tmp_path / "fewer").mkdir()
    found = read(tmp_path / "fewer", columns, drop=("id",))
    assert (found.columns, found.warnings, found.left_out) == (["x", "cost"], [], {})


@pytest.mark.parametrize(
    ("drop", "said"), [("z", "--drop = 'z': t.csv has the columns who, x, y"), ("y", "is the target or the owner")]
)
def test_only_what_is_there_can_be_dropped(tmp_path: Path, drop: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, {"x": ["1", "2"]}, drop=(drop,))


def test_one_owner_is_not_enough(tmp_path: Path) -> None:
    (warning,) = read(tmp_path, {"who": ["a"] * 40}).warnings
    assert warning.startswith("all records are of one owner")


def test_owners_with_too_few_records_for_an_audit_are_named(tmp_path: Path) -> None:
    """So many as are asked for are enough for what an audit keeps back, and one less is not."""
    owners = ["a"] * AUDITED + ["b"] * (AUDITED - 1) + ["c"]
    (warning,) = read(tmp_path, {"who": owners}).warnings
    assert warning.startswith(f"owners with too few records: b ({AUDITED - 1}), c (1); the audit needs {AUDITED} of")
    dataset = OwnRecords("t", "yours").dataset(data_of(tmp_path))
    coins, kept = Coins.from_seed(1), (Setting.shadow, Setting.fresh)
    assert list(Withheld(Natural(clients=1), *kept)(dataset, coins)) == ["a"]
    with pytest.raises(SpecError, match="b has 5 records, too few"):
        Withheld(Natural(), *kept)(dataset, coins)
