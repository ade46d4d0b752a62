"""`croupier init`: a small project to start from, for tables, images or series."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.starter import Contents

_SHOWN = 10  # classes by name


def command(
    folder: Annotated[Path, typer.Argument(help="The new project's folder.")],
    kind: Annotated[str, typer.Option(help="What the records are: table, images or series.")] = "table",
    csv: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A table of your own, whose first line names its columns; it is copied into the folder."),
    ] = None,
    target: Annotated[str, typer.Option(help="With --csv: the column that is learnt.")] = "",
    owner: Annotated[str, typer.Option(help="With --csv: the column that says whose a record is.")] = "",
    out: options.OutFile = None,
    json: options.Json = False,
) -> None:
    """Make a small project: a description (task.toml), your data and network (task.py), and a test.

    `croupier init ward`: a table with made-up records, to be replaced

    `croupier init ward --csv patients.csv --target readmitted --owner hospital`

    `croupier init scans --kind images`
    """
    from croupier.errors import SpecError
    from croupier.starter import KINDS, Table, write_starter

    chosen = next((one for one in KINDS if one == kind), None)
    if chosen is None:
        raise SpecError(f"--kind = {kind!r}: there are {', '.join(KINDS)}")
    if csv is not None and not (target and owner):
        raise SpecError("--csv: also say --target COLUMN (what is learnt) and --owner COLUMN (whose a record is)")
    if csv is None and (target or owner):
        raise SpecError("--target and --owner are columns of a table: name its file with --csv")
    table = None if csv is None else Table(csv, target, owner)
    files, found = write_starter(folder, chosen, table)
    told: dict[str, Any] = {"folder": str(folder), "kind": kind, "files": [path.name for path in files]}
    read = None if found is None else asdict(found)
    told |= {"left_out": list(found.left_out) if found else [], "table": read}
    options.give(told, json, out, lambda: _show(folder, files, found))


def _show(folder: Path, files: list[Path], found: Contents | None) -> None:
    print(f"{folder}: {', '.join(path.name for path in files)}")
    if found is not None:
        _show_table(found)
    print("next:")
    print(f"  cd {folder}")
    print("  croupier run task.toml --seed 1     # train")
    print("  croupier audit task.toml --fast     # what leaks to whom; ends with a report")


def _show_table(found: Contents) -> None:
    """What a slip in the table would show in, such as a class too many."""
    # Spaces around a word make it another word, and would not be seen.
    classes = [one if one == one.strip() else repr(one) for one in found.classes[:_SHOWN]]
    more = f" and {len(found.classes) - _SHOWN} more" if len(found.classes) > _SHOWN else ""
    learnt = f"classes: {', '.join(classes)}{more}" if classes else "the target is a quantity"
    owners, columns = _many(found.owners, "owner"), _many(len(found.columns), "column")
    print(f"{_many(found.records, 'record')} of {owners}, {columns}, {learnt}")
    if found.left_out:
        print("columns left out, because a cell is no number (record 1 is the line below the names of columns):")
        for name, why in found.left_out.items():
            print(f"  {name}: {why}")
        print("to keep one, write numbers into those cells or delete those records, and make the project anew")


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
