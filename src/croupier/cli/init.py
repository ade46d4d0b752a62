"""`croupier init`: a small project to start from, for tables, images or series."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from croupier.cli import options


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
    files, left_out = write_starter(folder, chosen, table)
    told = {"folder": str(folder), "kind": kind, "files": [path.name for path in files], "left_out": left_out}
    options.give(told, json, out, lambda: _show(folder, files, left_out))


def _show(folder: Path, files: list[Path], left_out: list[str]) -> None:
    print(f"{folder}: {', '.join(path.name for path in files)}")
    if left_out:
        print(f"columns left out, because they hold more than numbers: {', '.join(left_out)}")
    print("next:")
    print(f"  cd {folder}")
    print("  croupier run task.toml --seed 1     # train")
    print("  croupier audit task.toml --fast     # what leaks to whom; ends with a report")
