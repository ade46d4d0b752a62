"""Projects to start from run as they are written, with made-up records and with a table of one's own."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from croupier.cli import app
from croupier.errors import DataError, SpecError, StoreError
from croupier.starter import KINDS, Contents, Kind, Table, write_starter

WORDS = "site,age,blood pressure,note,outcome\n" + "".join(
    f"ward {'ABC'[i % 3]},{20 + i},{110.5 + i % 7},fine,{('well', 'ill')[i % 2]}\n" for i in range(60)
)
AGES = (
    "age: 60 different whole numbers in 60 records; if it is an identifier, leave it out with --drop age, into another "
    "folder: nothing is overwritten"
)


def passes(folder: Path) -> None:
    """Its own tests pass, in a process of their own: `task` is every project's name."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_task.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_passes_its_own_tests(tmp_path: Path, kind: Kind) -> None:
    files, _ = write_starter(tmp_path / "new", kind)
    assert [path.name for path in files] == ["task.toml", "task.py", "test_task.py"]
    passes(tmp_path / "new")


def test_a_table_of_ones_own_is_read_by_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "wards.csv"
    file.write_text(WORDS, "utf-8-sig")
    _, found = write_starter(tmp_path / "new", "table", Table(file, "outcome", "site"))
    note = {"note": "always 'fine', which tells nothing"}
    assert found == Contents(60, 3, ["age", "blood pressure"], {}, ["ill", "well"], [30, 30], [], note, [AGES])
    made = (tmp_path / "new" / "task.py").read_text("utf-8")
    assert "COLUMNS = ('age', 'blood pressure')" in made
    assert "CLASSES = ['ill', 'well']" in made
    passes(tmp_path / "new")


def test_every_owner_keeps_records_for_training(tmp_path: Path) -> None:
    """Also where rows list the owners in turn, and where an owner has one record only."""
    file = tmp_path / "turns.csv"
    rows = [f"H{i % 8},{i},{i // 8 % 2}\n" for i in range(80)] + ["alone,80,1\n", "pair,81,0\n", "pair,82,1\n"]
    file.write_text("who,x,y\n" + "".join(rows), "utf-8")
    write_starter(tmp_path / "new", "table", Table(file, "y", "who"))
    first, again = (runpy.run_path(str(tmp_path / "new" / "task.py"))["data"](None) for _ in range(2))
    *_, owners, test_owners = first
    assert Counter(owners) == {f"H{i}": 7 for i in range(8)} | {"alone": 1, "pair": 1}
    assert Counter(test_owners) == {f"H{i}": 3 for i in range(8)} | {"pair": 1}
    assert all((one == other).all() for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize(
    ("numbers", "read"),
    [((0, 1, 2), "int(real(at, row, 'y'))"), ((0.5, 1, 2), "[real(at, row, 'y')"), ((5, 9, 7), "[real(at")],
)
def test_targets_are_classes_or_quantities(tmp_path: Path, numbers: tuple[float, ...], read: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text("who,x,y\n" + "".join(f"a,{i},{one}\n" for i, one in enumerate(numbers)), "utf-8")
    write_starter(tmp_path / "new", "table", Table(file, "y", "who"))
    assert read in (tmp_path / "new" / "task.py").read_text("utf-8")


def test_a_cell_that_is_mended_badly_later_is_named(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("who,x,y\n" + "".join(f"a,{i},{i % 2}\n" for i in range(8)), "utf-8")
    write_starter(tmp_path / "new", "table", Table(file, "y", "who"))
    made = runpy.run_path(str(tmp_path / "new" / "task.py"))
    copy = next((tmp_path / "new").glob("*.csv"))
    for old, new, said in (
        ("a,3,1", "a,n.a.,1", "record 4: x is 'n.a.', which is no number; mend the cell"),
        ("a,3,1", "a,3,", "record 4: y is '', which is no number; mend the cell"),
        ("who,x,y", "who,z,y", "record 1: x is None, which is no number; mend the cell"),
    ):
        copy.write_text(file.read_text("utf-8").replace(old, new), "utf-8")
        with pytest.raises(ValueError, match=f"^{said}$"):
            made["data"](None)


def test_nothing_is_overwritten_or_half_written(tmp_path: Path) -> None:
    (tmp_path / "test_task.py").write_text("mine", "utf-8")
    with pytest.raises(StoreError, match=r"test_task.py: is there already, and nothing is overwritten"):
        write_starter(tmp_path, "images")
    assert [path.name for path in tmp_path.iterdir()] == ["test_task.py"]


@pytest.mark.parametrize(
    ("text", "target", "said"),
    [
        ("", "y", "has no records"),
        ("who,x,y\n", "y", "has no records"),
        ("who,x,y\na,1,2\n", "z", "--target = 'z': t.csv has the columns who, x, y"),
        ("who,x,y\na,1,2\n", "who", "--target and --owner are both 'who'"),
        ("who,x,y\na,1\n", "y", r"line 2 has 2 cells, and the first line names 3 columns \(who, x, y\)"),
        ('who,x,y\na,"1\n2",0\n\na,1,2,3\n', "y", "line 5 has 4 cells"),
        ("who;x;y\na;1,5;2\n", "y", "cells seem to be separated by ';'; save the table with commas"),
        ("who\tx\ty\na\t1\t2\n", "y", "cells seem to be separated by '.t'"),
        ("who,x,y,x\na,1,2,3\n", "y", r"the column 'x' is named 2 times \(as columns 2, 4\); rename all but one"),
        ("who,x,y\na b,1,2\na-b,3,2\n", "y", "two in the column become the same"),
        ("who,x,y\na,red,2\n", "y", "no column but the target can be used; x: always 'red'"),
        ("who,x,y\na,1,no\na,2, \n", "y", "--target = 'y': line 3 is empty there; fill in the cell"),
        ("who,x,y\na,1,no\na,2,no\n,3,yes\n", "y", "--owner = 'who': line 4 is empty there; fill in the cell"),
        ("who,x,y\na,1,no\nb,2,yes\n", "y", "--owner = 'who': every owner has one record only"),
    ],
)
def test_a_table_that_cannot_be_used_is_said(tmp_path: Path, text: str, target: str, said: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text, "utf-8")
    with pytest.raises(DataError, match=said):
        write_starter(tmp_path / "new", "table", Table(file, target, "who"))
    assert not (tmp_path / "new").exists()


def test_pictures_come_from_no_table(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="only a table comes from a CSV file"):
        write_starter(tmp_path / "new", "images", Table(tmp_path / "t.csv", "y", "who"))


def test_what_was_found_is_told(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    rows = [f"a,{i % 4},{'MF'[i % 2]},{'pqr'[i % 3]},,{('no', 'yes', 'Yes ')[i % 3]}\n" for i in range(9)]
    file.write_text("who,x,sex,ward,bmi,y\n" + "".join(rows), "utf-8")
    done = CliRunner().invoke(app, ["init", str(tmp_path / "new"), "--csv", str(file), "--target=y", "--owner=who"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[1:6] == [
        "9 records of 1 owner",
        "3 columns: x, sex (F = 0, M = 1), ward (p, q, r: a column each)",
        "classes, with their records: 'Yes ' (3), no (3), yes (3)",
        "columns left out (to keep one, mend the table and make the project anew):",
        "  bmi: every cell is empty",
    ]


def test_what_comes_next_can_be_called_as_this_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no program of this name is found, by the path from the new folder; else by its name."""
    monkeypatch.chdir(tmp_path)
    program = Path("my venv", "croupier")
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho it is $1\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    said = CliRunner().invoke(app, ["init", "new"]).output.splitlines()
    (called,) = [line.partition("#")[0].strip() for line in said if "run task.toml" in line]
    done = subprocess.run(["/bin/sh", "-c", f"cd new && {called}"], capture_output=True, text=True, check=True)
    assert done.stdout == "it is run\n"
    monkeypatch.setenv("PATH", str(program.parent.resolve()))
    assert "\n  croupier run task.toml" in CliRunner().invoke(app, ["init", "more"]).output
    monkeypatch.setattr(sys, "argv", ["/some/where/croupier/__main__.py"])
    assert f"\n  {sys.executable} -m croupier run" in CliRunner().invoke(app, ["init", "most"]).output


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv: does not exist; check its name"):
        write_starter(tmp_path / "new", "table", Table(tmp_path / "none.csv", "y", "who"))
