"""What a window is wide enough for: sentences broken at their spaces, tables in parts that fit.

Most commands, the laboratory's as well, print their tables with `show` and their sentences with `line` or `wrapped`. On
a terminal tables are cut into parts that repeat the first columns; in a pipe `line` breaks nothing and tables get more
room, so that other programs can read them.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

# Sentences are read best in lines no longer than this.
LINE = 100
# Piped output has no width of its own, and rich's guess of 80 columns would cut it.
PIPED = 140


def breadth() -> int | None:
    """The columns of the window, or of COLUMNS; None where nobody says."""
    console = Console()
    return console.width if console.is_terminal or os.environ.get("COLUMNS", "").isdigit() else None


def room() -> int:
    """How wide a table may be."""
    return breadth() or PIPED


def wrapped(said: str, first: str = "  ", later: str = "    ") -> str:
    """A sentence in lines that fit, later ones set in."""
    return _filled(said, min(LINE, room()), first, later)


def line(said: str, later: str = "    ") -> str:
    """A line that is broken only where a window is too narrow for it: a pipe is not."""
    width = breadth()
    return said if width is None else _filled(said, width, "", later)


def _filled(said: str, width: int, first: str, later: str) -> str:
    # A path or a name is not torn apart: it can be copied whole.
    return textwrap.fill(
        said, width, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def show(table: Table, width: int | None = None, labels: int = 1) -> None:
    """Print a table; where it is too wide, in parts that each begin with its first columns, the labels."""
    console = Console(width=width or room())
    for part in fitted(table, console, labels):
        console.print(part)


def fitted(table: Table, console: Console, labels: int) -> list[Table]:
    """The table, or its columns in as many parts as it takes for no word to be cut."""
    spans = [_span(column, console) for column in table.columns]
    natural, least = [span.maximum for span in spans], [span.minimum for span in spans]
    every = list(range(len(spans)))
    if _taken(natural) <= console.width:
        return [table]
    groups: list[list[int]] = []
    for at in every[labels:]:
        if groups and _taken([least[one] for one in (*every[:labels], *groups[-1], at)]) <= console.width:
            groups[-1].append(at)
        else:
            groups.append([at])
    parts = [[*every[:labels], *group] for group in groups] or [every]
    return [
        _part(table, at, _spread([least[one] for one in at], [natural[one] for one in at], console.width), not number)
        for number, at in enumerate(parts)
    ]


def _span(column: Column, console: Console) -> Measurement:
    """How wide a column must be, and how wide it would like to be: words stay whole, and so do right-aligned cells."""
    cells = [Measurement.get(console, console.options, cell) for cell in column.cells]
    head = Measurement.get(console, console.options, column.header)
    most = max([one.maximum for one in cells], default=0)
    least = max([one.minimum for one in cells], default=0)
    whole = column.no_wrap or column.justify == "right"
    return Measurement(max(head.minimum, most if whole else least), max(head.maximum, most))


def _taken(widths: Sequence[int]) -> int:
    """With a frame around every column, and a space on both sides."""
    return sum(widths) + 3 * len(widths) + 1


def _spread(least: Sequence[int], natural: Sequence[int], width: int) -> list[int]:
    """Widths that fit: every column as wide as it likes up to the same bound, which is as large as can be."""
    found = list(least)
    for bound in range(1, width):
        wider = [max(few, min(most, bound)) for few, most in zip(least, natural, strict=True)]
        if _taken(wider) > width:
            break
        found = wider
    return found


def _part(table: Table, at: Sequence[int], widths: Sequence[int], first: bool) -> Table:
    part = Table(title=table.title if first else None, title_justify=table.title_justify)
    chosen = [table.columns[one] for one in at]
    for column, width in zip(chosen, widths, strict=True):
        # Folded where even a word is too wide: a number must not be cut.
        part.add_column(column.header, justify=column.justify, overflow="fold", width=width)
    for row, cells in zip(table.rows, zip(*(column.cells for column in chosen), strict=True), strict=True):
        part.add_row(*cells, end_section=row.end_section)
    return part
