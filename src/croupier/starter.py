"""Small projects to start from: a description, a data function with a network, and a test.

`croupier init` writes one. The files are templates in `starters/`. Of a table of the user's own, which `columns` reads,
the project gets the columns' names, a scale for numbers, and the words of columns that have few.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, StrictUndefined

from croupier.columns import CsvTable, LeftOut, NumberColumn, WordColumn, numbers
from croupier.errors import DataError, SpecError, StoreError

Kind = Literal["table", "images", "series"]
KINDS: tuple[Kind, ...] = ("table", "images", "series")
# Where one class has so large a share of the records, accuracy says little.
LOPSIDED = 0.8
# An audit withholds records of every client's training part: with fewer in all than this, none are left to train on.
AUDITED = 8
_LONGEST = 32  # characters of a client's name: as many bytes as an envelope has for one
_NAMED = 3  # so many owners with few records are named in a warning
# Learning rates that suit the networks of the templates.
_RATE = {"table": 0.1, "images": 0.1, "series": 0.05}


@dataclass(frozen=True)
class Contents:
    """What was found in a table, to be looked over by whom it belongs to."""

    records: int
    owners: int
    columns: list[str]
    words: dict[str, list[str]]  # columns of words, which become 0 and 1
    classes: list[str]  # by their numbers; none where quantities are learnt
    class_records: list[int]
    metrics: list[str]  # what is measured besides the usual
    left_out: dict[str, str]  # columns that cannot be used, and why
    warnings: list[str]


@dataclass(frozen=True)
class Table:
    """A table of the user's own: its file, the column that is learnt, and the one that says whose a record is.

    Columns of `drop` are left out.
    """

    file: Path
    target: str
    owner: str
    drop: tuple[str, ...] = ()

    def read(self) -> tuple[Contents, Mapping[str, Any]]:
        """What it holds, and what the templates need: how columns and the target are read, and a scale for numbers.

        Raises: DataError.
        """
        sheet = self._sheet()
        kinds = {name: sheet.kind(name) for name in sheet.columns if name not in (self.target, self.owner, *self.drop)}
        numbers = {name: kind for name, kind in kinds.items() if isinstance(kind, NumberColumn)}
        words = {name: list(kind.words) for name, kind in kinds.items() if isinstance(kind, WordColumn)}
        left_out = {name: kind.why for name, kind in kinds.items() if isinstance(kind, LeftOut)}
        if not numbers and not words:
            why = "".join(f"; {name}: {said}" for name, said in list(left_out.items())[:1])
            raise DataError(f"--csv = {self.file}: no column but the target can be used{why}")
        owners = Counter(sheet.columns[self.owner])
        self._check_owners(owners)
        classes, code = self._learnt(sheet.columns[self.target])
        lopsided = self._lopsided(sheet, classes)
        warnings = [*_likely_identifiers(numbers, len(sheet)), *_small(owners)]
        found = Contents(
            len(sheet), len(owners), [*numbers, *words], words, list(classes), list(classes.values()),
            ["auc"] if lopsided else [], left_out, warnings,
        )  # fmt: skip
        facts = {
            "csv": repr(self.file.name), "owner": repr(self.owner), **code, "clients": len(owners),
            "columns": tuple(numbers), "words": {repr(name): tuple(said) for name, said in words.items()},
            "middle": [kind.middle for kind in numbers.values()],
            "spread": [kind.spread for kind in numbers.values()], "lopsided": lopsided,
        }  # fmt: skip
        return found, facts

    def _sheet(self) -> CsvTable:
        """Its records, each with a target and an owner. Raises: DataError."""
        if self.target == self.owner:
            raise DataError(f"--target and --owner are both {self.target!r}; what is learnt and whose it is are two")
        sheet = CsvTable.read(self.file)
        for option, column in (("--target", self.target), ("--owner", self.owner), *(("--drop", n) for n in self.drop)):
            if column not in sheet.columns:
                raise DataError(f"{option} = {column!r}: {self.file.name} has the columns {', '.join(sheet.columns)}")
        if needed := [name for name in self.drop if name in (self.target, self.owner)]:
            raise DataError(f"--drop = {needed[0]!r}: is the target or the owner; drop others")
        for option, column in (("--target", self.target), ("--owner", self.owner)):
            for cell, line in zip(sheet.columns[column], sheet.lines, strict=True):
                if not cell.strip():
                    raise DataError(
                        f"{option} = {column!r}: line {line} is empty there; fill in the cell, or delete the line from "
                        f"{self.file.name}"
                    )
        return sheet

    def _check_owners(self, owners: Counter[str]) -> None:
        """Owners' names are written with what a client's name may hold. Raises: DataError."""
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

    def _learnt(self, cells: list[str]) -> tuple[dict[str, int], Mapping[str, Any]]:
        """Classes, and how a target is read: whole numbers from 0 and words are classes, others are quantities.

        Of two words the rarer is class 1, of which scores such as recall are.
        """
        found = numbers(cells)
        if found is None:
            counts = Counter(cells)
            classes = sorted(counts)
            if len(classes) == 2:
                classes.sort(key=lambda one: -counts[one])
            read = f"number(row, {self.target!r}, CLASSES)"
            return {one: counts[one] for one in classes}, {"classes": classes, "learnt": read}
        times = Counter(found)
        if set(times) == set(range(len(times))):
            whole = {str(one): times[one] for one in range(len(times))}
            return whole, {"classes": [], "learnt": f"int(real(at, row, {self.target!r}))"}
        return {}, {"classes": [], "learnt": f"real(at, row, {self.target!r})"}

    def _lopsided(self, sheet: CsvTable, classes: Mapping[str, int]) -> str:
        """What is odd about the classes where nearly all records are of one, so that accuracy says little.

        Nothing where the AUC could not be told: the test records, dealt as the project does, must have every class.
        """
        if len(classes) < 2 or max(classes.values()) < LOPSIDED * len(sheet):
            return ""
        targets, seen, asked = sheet.columns[self.target], Counter[str](), set[str]()
        for owner, target in zip(sheet.columns[self.owner], targets, strict=True):
            asked |= {target} if seen[owner] % 4 == 1 else set()
            seen[owner] += 1
        if len(asked) < len(set(targets)):
            return ""
        most = max(classes, key=lambda one: classes[one])
        return f"{classes[most] / len(sheet):.1%} of the records are of class {most!r}"


def _likely_identifiers(columns: Mapping[str, NumberColumn], records: int) -> list[str]:
    return [
        f"{name}: {records} different whole numbers in {records} records; if it is an identifier, leave it out with "
        f"--drop {shlex.quote(name)}, into another folder: nothing is overwritten"
        for name, kind in columns.items()
        if kind.identifier
    ]


def _small(owners: Mapping[str, int]) -> list[str]:
    """Too few owners, or owners of whom an audit could not withhold records."""
    few = {owner: count for owner, count in owners.items() if count < AUDITED}
    if len(owners) == 1:
        return ["all records are of one owner: a protocol that hides clients among each other needs more"]
    if not few:
        return []
    named = ", ".join(f"{owner} ({count})" for owner, count in list(few.items())[:_NAMED])
    more = f" and {len(few) - _NAMED} more" if len(few) > _NAMED else ""
    return [
        f"owners with too few records: {named}{more}; the audit needs {AUDITED} of each; "
        "delete their records, or give them to another owner"
    ]


_MADE_UP: Mapping[Kind, Mapping[str, Any]] = {
    "table": {"columns": ("age", "pressure", "glucose"), "words": {}, "middle": [60, 138, 6.0], "spread": [15, 20, 1.5],
              "csv": None, "classes": [], "lopsided": "", "clients": 4},
    "images": {"lopsided": "", "clients": 10},
    "series": {"lopsided": "", "clients": 5},
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
    """An owner as a client's name; the template of the project's code replaces the same characters."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", owner)
