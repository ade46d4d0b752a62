"""Small projects to start from: a description, a data function with a network, and a test.

`croupier init` writes one. The files are templates in `starters/`; of a table of the user's own only the header and
the numbers that a scale needs are read.
"""

from __future__ import annotations

import csv
import math
import re
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
class Table:
    """A table of the user's own: its file, the column that is learnt, and the one that says whose a record is."""

    file: Path
    target: str
    owner: str

    def read(self) -> Mapping[str, Any]:
        """What the templates need: columns of numbers with their scale, what is learnt, how many owners.

        Raises: DataError.
        """
        try:
            # Some programs begin a file with a mark that nobody sees.
            with self.file.open(newline="", encoding="utf-8-sig") as lines:
                rows = list(csv.DictReader(lines))
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"--csv = {self.file}: cannot be read ({error}); name a CSV file in UTF-8") from None
        if not rows:
            raise DataError(f"--csv = {self.file}: has no records; its first line names the columns, then records come")
        for number, row in enumerate(rows, 2):
            if None in row or None in row.values():
                raise DataError(
                    f"--csv = {self.file}: record {number - 1} has another number of cells than the first line has "
                    f"columns ({', '.join(map(str, rows[0]))}); separate cells by commas, and mend the line"
                )
        for option, column in (("--target", self.target), ("--owner", self.owner)):
            if column not in rows[0]:
                raise DataError(f"{option} = {column!r}: {self.file.name} has the columns {', '.join(rows[0])}")
        numbers = {
            name: _numbers([row[name] for row in rows]) for name in rows[0] if name not in (self.target, self.owner)
        }
        kept = {name: found for name, found in numbers.items() if found is not None}
        if not kept:
            raise DataError(f"--csv = {self.file}: no column but the target holds numbers only; code words as numbers")
        return {
            "csv": repr(self.file.name), "owner": repr(self.owner), **self._learnt([row[self.target] for row in rows]),
            "columns": tuple(kept), "left_out": [name for name in numbers if name not in kept],
            "middle": [_rounded(fmean(found)) for found in kept.values()],
            "spread": [_rounded(pstdev(found)) or 1.0 for found in kept.values()],
            "clients": self._count({row[self.owner] for row in rows}),
        }  # fmt: skip

    def _count(self, owners: set[str]) -> int:
        """How many owners; their names are written with what a client's name may hold. Raises: DataError."""
        names = {_name(owner) for owner in owners}
        if len(names) < len(owners) or any(len(name) > _LONGEST for name in names):
            raise DataError(
                f"--owner = {self.owner!r}: clients' names are letters, digits, '_', '.' and '-', {_LONGEST} at most, "
                "and two in the column become the same or are longer; rename them"
            )
        return len(owners)

    def _learnt(self, cells: list[str]) -> Mapping[str, Any]:
        """How a target is read: whole numbers from 0 and words are classes, other numbers are quantities."""
        found, cell = _numbers(cells), f"row[{self.target!r}]"
        if found is None:
            return {"classes": sorted(set(cells)), "learnt": f"CLASSES.index({cell})"}
        distinct = set(found)
        if distinct == set(range(len(distinct))):
            return {"classes": [], "learnt": f"int(float({cell}))"}
        return {"classes": [], "learnt": f"float({cell})"}


_MADE_UP: Mapping[Kind, Mapping[str, Any]] = {
    "table": {"columns": ("age", "pressure", "glucose"), "middle": [60, 138, 6.0], "spread": [15, 20, 1.5],
              "csv": None, "classes": [], "clients": 4},
    "images": {"clients": 10},
    "series": {"clients": 5},
}  # fmt: skip


def write_starter(folder: Path, kind: Kind, table: Table | None = None) -> tuple[list[Path], list[str]]:
    """Write a project; say which files, and which columns of the table were left out because they hold words.

    Raises: SpecError, DataError, StoreError; then nothing was written.
    """
    if table is not None and kind != "table":
        raise SpecError(f"--csv with --kind {kind}: only a table comes from a CSV file; use --kind table")
    facts = dict(_MADE_UP[kind] if table is None else table.read())
    left_out = facts.pop("left_out", [])
    facts |= {"name": folder.resolve().name, "lr": _RATE[kind]}
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
    return list(made), left_out


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


def _rounded(number: float) -> float:
    """To two digits: a scale need not be exact, and an exact one tells more of the records."""
    return float(f"{number:.2g}")
