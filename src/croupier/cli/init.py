"""`croupier init`: a small project to start from, for tables, images or series.

The files are written by `croupier.starter`, which also reads the user's own table where one is named. What it found in
the table is shown here, so that a slip, such as an identifier among the columns, is seen at once.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.starter import Contents

_SHOWN = 10  # so many classes are shown by name


def _kinds(incomplete: str) -> list[str]:
    """For a shell's completion."""
    from croupier.starter import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


def command(
    folder: Annotated[Path, typer.Argument(help="The new project's folder.")],
    kind: Annotated[
        str, typer.Option(help="What the records are: table, images or series.", autocompletion=_kinds)
    ] = "table",
    csv: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A table of your own, whose first line names its columns; it is copied into the folder."),
    ] = None,
    target: Annotated[str, typer.Option(help="With --csv: the column that is learnt.")] = "",
    owner: Annotated[str, typer.Option(help="With --csv: the column that says whose a record is.")] = "",
    drop: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="COLUMN", help="With --csv: leave this column out; may be repeated."),
    ] = None,
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
    if csv is None and (target or owner or drop):
        raise SpecError("--target, --owner and --drop are columns of a table: name its file with --csv")
    table = None if csv is None else Table(csv, target, owner, tuple(drop or ()))
    files, found = write_starter(folder, chosen, table)
    told: dict[str, Any] = {"folder": str(folder), "kind": kind, "files": [path.name for path in files]}
    read = None if found is None else asdict(found)
    told |= {"left_out": list(found.left_out) if found else [], "table": read}
    options.give(told, json, out, lambda: _show(folder, files, found))


def _show(folder: Path, files: list[Path], found: Contents | None) -> None:
    from croupier.cli.fit import line

    print(f"{folder}: {', '.join(path.name for path in files)}")
    for said in [] if found is None else _about(found):
        print(line(said))
    print("next:")
    print(f"  cd {shlex.quote(str(folder))}")
    command = _called(folder)
    print(f"  {command} run task.toml --seed 1     # train")
    print(f"  {command} audit task.toml --fast     # what leaks to whom; ends with a report")


def _about(found: Contents) -> Iterator[str]:
    """What a slip in the table would show in, such as a class too many, or an identifier among the columns."""
    yield f"{_many(found.records, 'record')} of {_many(found.owners, 'owner')}"
    yield f"{_many(len(found.columns), 'column')}: {', '.join(_column(name, found.words) for name in found.columns)}"
    # Spaces around a word make it another word, and would not be seen.
    named = [one if one == one.strip() else repr(one) for one in found.classes[:_SHOWN]]
    counted = [f"{one} ({count})" for one, count in zip(named, found.class_records, strict=False)]
    more = f" and {len(found.classes) - _SHOWN} more" if len(found.classes) > _SHOWN else ""
    yield f"classes, with their records: {', '.join(counted)}{more}" if counted else "the target is a quantity"
    if found.metrics:
        share = max(found.class_records) / found.records
        scored = f"; f1, precision and recall would be those of {named[1]}" if len(named) == 2 else ""
        yield f"one class has {share:.1%} of the records, so AUC is measured, too (metrics in task.toml){scored}"
    if found.left_out:
        yield "columns left out (to keep one, mend the table and make the project anew):"
        yield from (f"  {name}: {why}" for name, why in found.left_out.items())
    yield from (f"warning: {text}" for text in found.warnings)


def _column(name: str, words: Mapping[str, list[str]]) -> str:
    """A column, and what its words become."""
    if name not in words:
        return name
    said = [one if one == one.strip() else repr(one) for one in words[name]]
    coded = f"{said[0]} = 0, {said[1]} = 1" if len(said) == 2 else f"{', '.join(said)}: a column each"
    return f"{name} ({coded})"


def _called(folder: Path) -> str:
    """How this command was called, as it can be called again from the new folder."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m croupier"
    known = shutil.which("croupier")
    if os.sep not in sys.argv[0] or not called.is_file() or (known and called.samefile(known)):
        return "croupier"
    real = called.parent.resolve() / called.name
    return shlex.quote(min(str(real), os.path.relpath(real, folder.resolve()), key=len))


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
