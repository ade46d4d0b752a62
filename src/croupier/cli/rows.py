"""Rows of plain values for people: what all rows share is told once, and wide tables are printed in parts.

`croupier compare` and the laboratory's `croupier reproduce` print results of any shape through this: a list of dicts,
of which nobody knows the keys beforehand. What is the same in all rows is said above the table and not in a column.
Tables whose columns are known are printed by `cli.fit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from croupier.cli.fit import line, room, show, wrapped

Rows = Sequence[Mapping[str, Any]]
# Cells longer than this are broken at their spaces where a table is too wide otherwise.
LONG = 24
EMPTY = (None, "", "-")


def show_rows(rows: Rows, title: str, width: int | None = None) -> None:
    """Print rows, a column for every key but those that begin with "_"."""
    width = width or room()
    print(line(title))
    shared, kept = columns(rows)
    if shared:
        print(wrapped("In every row: " + "; ".join(f"{_head(key)}: {cell(rows[0][key])}" for key in shared) + "."))
    for part, widths in parts(rows, kept, width):
        show(_table(rows, part, widths), width)


def columns(rows: Rows) -> tuple[list[str], list[str]]:
    """The keys whose value all rows share, and those that differ; what is empty in all rows is neither."""
    known = [key for key in rows[0] if not key.startswith("_")]
    known = [key for key in known if any(row[key] not in EMPTY for row in rows)]
    differ = [key for key in known if any(cell(row[key]) != cell(rows[0][key]) for row in rows)]
    return ([key for key in known if key not in differ], differ) if differ else ([], known)


def labels(rows: Rows, kept: Sequence[str]) -> list[str]:
    """The first keys by which rows are told apart: every part of a table begins with them."""
    found: list[str] = []
    for key in kept:
        if _apart(rows, found) < len(rows) and _apart(rows, [*found, key]) > _apart(rows, found):
            found.append(key)
    return found


def parts(rows: Rows, kept: Sequence[str], width: int) -> list[tuple[list[str], list[int]]]:
    """The columns of each part and how wide they are: one part where that fits."""
    natural = {key: max(_word(_head(key)), *(len(cell(row[key])) for row in rows)) for key in kept}
    if _fits(natural.values(), width):
        return [(list(kept), list(natural.values()))]
    least = {key: max(_word(_head(key)), *(_word(cell(row[key])) for row in rows)) for key in kept}
    taken = {key: max(least[key], min(LONG, natural[key])) for key in kept}
    first = labels(rows, kept)
    rest = [key for key in kept if key not in first]
    if not all(_fits([taken[one] for one in (*first, key)], width) for key in rest):
        taken = least
    found: list[list[str]] = []
    for key in rest:
        if found and _fits([taken[one] for one in (*first, *found[-1], key)], width):
            found[-1].append(key)
        else:
            found.append([key])
    every = [[*first, *part] for part in found or [[]]]
    return [(part, [taken[key] for key in part]) for part in every]


def cell(value: object) -> str:
    """One value."""
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _table(rows: Rows, part: Sequence[str], widths: Sequence[int]) -> Table:
    table = Table()
    for key, width in zip(part, widths, strict=True):
        justify: Any = "left" if any(isinstance(row[key], str) for row in rows) else "right"
        # Folded where even a word is too wide: a number must not be cut.
        table.add_column(_head(key), justify=justify, overflow="fold", width=width)
    for row in rows:
        table.add_row(*(escape(cell(row[key])) for key in part))
    return table


def _head(key: str) -> str:
    return key.replace("_", " ")


def _word(said: str) -> int:
    return max((len(word) for word in said.split()), default=1)


def _apart(rows: Rows, keys: Sequence[str]) -> int:
    return len({tuple(cell(row[key]) for key in keys) for row in rows})


def _fits(widths: Iterable[int], width: int) -> bool:
    """With a frame around every column, and a space on both sides."""
    taken = list(widths)
    return sum(taken) + 3 * len(taken) + 1 <= width
