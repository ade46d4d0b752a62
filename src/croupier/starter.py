"""Small projects to start from: a description, a data function with a network, and a test.

`croupier init` writes one. The files are templates in `starters/`; of a table of the user's own only the header and
the numbers that a scale needs are read.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Literal

from jinja2 import Environment, StrictUndefined

from croupier.errors import DataError, SpecError, StoreError

Kind = Literal["table", "images", "series"]
KINDS: tuple[Kind, ...] = ("table", "images", "series")
_LONGEST = 32
_RATE = {"table": 0.1, "images": 0.1, "series": 0.05}


@dataclass(frozen=True)
class Contents:
    """What was found in a table, to be looked over by whom it belongs to."""

    records: int
    owners: int
    columns: list[str]
    classes: list[str]  # none where quantities are learnt
    left_out: dict[str, str]  # columns that hold more than numbers, with the first cell that is none


@dataclass(frozen=True)
class Table:
    """A table of the user's own: its file, the column that is learnt, and the one that says whose a record is."""

    file: Path
    target: str
    owner: str

    def read(self) -> tuple[Contents, Mapping[str, Any]]:
        """What it holds, and what the templates need: columns of numbers with their scale, and how a target is read.

        Raises: DataError.
        """
        rows = self._rows()
        numbers, left_out = {}, {}
        for name in rows[0]:
            if name not in (self.target, self.owner):
                cells = [row[name] for row in rows]
                found = _numbers(cells)
                if found is None:
                    left_out[name] = _first_word(cells)
                else:
                    numbers[name] = found
        if not numbers:
            why = "".join(f"; {name}: {cell}" for name, cell in list(left_out.items())[:1])
            raise DataError(
                f"--csv = {self.file}: no column but the target holds numbers only; code words as numbers{why}"
            )
        kinds, code = self._learnt([row[self.target] for row in rows])
        owners = self._count(Counter(row[self.owner] for row in rows))
        facts = {
            "csv": repr(self.file.name), "owner": repr(self.owner), **code, "clients": owners,
            "columns": tuple(numbers),
            "middle": [_rounded(fmean(found)) for found in numbers.values()],
            "spread": [_rounded(pstdev(found)) or 1.0 for found in numbers.values()],
        }  # fmt: skip
        return Contents(len(rows), owners, list(numbers), kinds, left_out), facts

    def _rows(self) -> list[dict[str, str]]:
        """Its records, each with a target and an owner. Raises: DataError."""
        try:
            # Some programs begin a file with a mark that nobody sees.
            with self.file.open(newline="", encoding="utf-8-sig") as lines:
                rows = list(csv.DictReader(lines))
        except FileNotFoundError:
            raise DataError(f"--csv = {self.file}: does not exist; check its name and its folder") from None
        except OSError as error:
            raise DataError(f"--csv = {self.file}: cannot be read ({error.strerror}); name a CSV file") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"--csv = {self.file}: cannot be read ({error}); name a CSV file in UTF-8") from None
        if not rows:
            raise DataError(f"--csv = {self.file}: has no records; its first line names the columns, then records come")
        for number, row in enumerate(rows, 1):
            if None in row or None in row.values():
                raise DataError(
                    f"--csv = {self.file}: record {number} has another number of cells than the first line has "
                    f"columns ({', '.join(map(str, rows[0]))}); separate cells by commas, and mend the line"
                )
        for option, column in (("--target", self.target), ("--owner", self.owner)):
            if column not in rows[0]:
                raise DataError(f"{option} = {column!r}: {self.file.name} has the columns {', '.join(rows[0])}")
            for number, row in enumerate(rows, 1):
                if not row[column].strip():
                    raise DataError(
                        f"{option} = {column!r}: record {number} is empty there (record 1 is the line below the names "
                        f"of columns); fill in the cell, or delete the record from {self.file.name}"
                    )
        return rows

    def _count(self, owners: Counter[str]) -> int:
        """How many owners; their names are written with what a client's name may hold. Raises: DataError."""
        names = {_name(owner) for owner in owners}
        if len(names) < len(owners) or any(len(name) > _LONGEST for name in names):
            raise DataError(
                f"--owner = {self.owner!r}: clients' names are letters, digits, '_', '.' and '-', {_LONGEST} at most, "
                "and two in the column become the same or are longer; rename them"
            )
        if max(owners.values()) < 2:
            raise DataError(
                f"--owner = {self.owner!r}: every owner has one record only, so none is left for testing; "
                "name a column whose values come back, such as a hospital"
            )
        return len(owners)

    def _learnt(self, cells: list[str]) -> tuple[list[str], Mapping[str, Any]]:
        """Classes, and how a target is read: whole numbers from 0 and words are classes, others are quantities."""
        found, cell = _numbers(cells), f"row[{self.target!r}]"
        if found is None:
            classes = sorted(set(cells))
            return classes, {"classes": classes, "learnt": f"CLASSES.index({cell})"}
        distinct = set(found)
        if distinct == set(range(len(distinct))):
            return [str(one) for one in range(len(distinct))], {"classes": [], "learnt": f"int(float({cell}))"}
        return [], {"classes": [], "learnt": f"float({cell})"}


_MADE_UP: Mapping[Kind, Mapping[str, Any]] = {
    "table": {"columns": ("age", "pressure", "glucose"), "middle": [60, 138, 6.0], "spread": [15, 20, 1.5],
              "csv": None, "classes": [], "clients": 4},
    "images": {"clients": 10},
    "series": {"clients": 5},
}  # fmt: skip


def write_starter(folder: Path, kind: Kind, table: Table | None = None) -> tuple[list[Path], Contents | None]:
    """Write a project; say which files, and what was found in the table.

    Raises: SpecError, DataError, StoreError; then nothing was written.
    """
    if table is not None and kind != "table":
        raise SpecError(f"--csv with --kind {kind}: only a table comes from a CSV file; use --kind table")
    found, read = (None, _MADE_UP[kind]) if table is None else table.read()
    facts = {**read, "name": folder.resolve().name, "lr": _RATE[kind]}
    files = {"task.toml": "task.toml", "task.py": f"{kind}.py", "test_task.py": "test_task.py"}
    made = {folder / name: _filled(template, facts).encode() for name, template in files.items()}
    if table is not None:
        made[folder / table.file.name] = table.file.read_bytes()
    if there := [path for path in made if path.exists() and path.resolve() != (table and table.file.resolve())]:
        raise StoreError(f"{there[0]}: is there already, and nothing is overwritten; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in made.items():
            if not path.exists():
                path.write_bytes(text)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from None
    return list(made), found


def _filled(template: str, facts: Mapping[str, Any]) -> str:
    """A file of the project. What goes in is code, written with repr: nothing of it is HTML."""
    text = (resources.files("croupier") / "starters" / f"{template}.jinja").read_text("utf-8")
    return Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(text).render(facts)


def _name(owner: str) -> str:
    """As the project's own code writes it."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", owner)


def _numbers(cells: list[str]) -> list[float] | None:
    """A column's numbers; None where one cell is none, or is missing."""
    try:
        found = [float(cell) for cell in cells]
    except (TypeError, ValueError):
        return None
    return found if all(math.isfinite(one) for one in found) else None


def _first_word(cells: list[str]) -> str:
    """The first of a column's cells that is no number, and how many are none."""
    wrong = [(number, cell) for number, cell in enumerate(cells, 1) if _numbers([cell]) is None]
    number, cell = wrong[0]
    said = f"record {number} is {repr(cell) if cell.strip() else 'empty'}"
    return said if len(wrong) == 1 else f"{said}; {len(wrong)} cells are no numbers"


def _rounded(number: float) -> float:
    """To two digits: a scale need not be exact, and an exact one tells more of the records."""
    return float(f"{number:.2g}")
