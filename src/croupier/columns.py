"""A CSV file's columns: which are numbers, which are words that can be coded as 0 and 1, and which can be neither.

`starter` makes a project of them for `croupier init --csv FILE`. Every line is named by its number in the file, as an
editor shows it, and whatever is left out says why, and what would help.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

from croupier.errors import DataError

# So many different words of a column are coded, a column each.
MOST_WORDS = 12
# In fewer records than these, whole numbers that all differ are no sign of an identifier.
_MANY = 20
# What programs write between cells in place of commas.
_OTHERS = (";", "\t", "|")


@dataclass(frozen=True)
class NumberColumn:
    """Numbers, and a scale for them. `identifier`: 20 records or more have whole numbers, and no two the same one."""

    middle: float
    spread: float
    identifier: bool = False


@dataclass(frozen=True)
class WordColumn:
    """Words: of two the second is 1, of more each becomes a column of its own."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class LeftOut:
    """Why a column is of no use as it stands, and what would help."""

    why: str


@dataclass(frozen=True)
class CsvTable:
    """A CSV file's records by column, and the line in the file at which each record begins."""

    columns: dict[str, list[str]]
    lines: list[int]

    @classmethod
    def read(cls, file: Path) -> CsvTable:
        """Read a file whose first line names its columns. Raises: DataError."""
        try:
            # Some programs begin a file with a mark that nobody sees.
            with file.open(newline="", encoding="utf-8-sig") as text:
                rows = list(_rows(text))
        except FileNotFoundError:
            raise DataError(f"--csv = {file}: does not exist; check its name and its folder") from None
        except OSError as error:
            raise DataError(f"--csv = {file}: cannot be read ({error.strerror}); name a CSV file") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"--csv = {file}: cannot be read ({error}); name a CSV file in UTF-8") from None
        names = rows[0][1] if rows else []
        _check_names(file, names)
        if len(rows) < 2:
            raise DataError(f"--csv = {file}: has no records; its first line names the columns, then records come")
        for line, cells in rows:
            if len(cells) != len(names):
                raise DataError(
                    f"--csv = {file}: line {line} has {_many(len(cells), 'cell')}, and the first line names "
                    f"{_many(len(names), 'column')} ({', '.join(names)}); separate cells by commas, and mend the line"
                )
        lines, records = zip(*rows[1:], strict=True)
        return cls({name: [row[at] for row in records] for at, name in enumerate(names)}, list(lines))

    def __len__(self) -> int:
        return len(self.lines)

    def kind(self, name: str) -> NumberColumn | WordColumn | LeftOut:
        """What a column can be used as."""
        return _kind(self.columns[name], self.lines)


def numbers(cells: Sequence[str]) -> list[float] | None:
    """The cells as numbers; None where a cell is not a finite number."""
    try:
        found = [float(cell) for cell in cells]
    except ValueError:
        return None
    return found if all(map(math.isfinite, found)) else None


def _rows(text: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Each row, and the number of the line where it begins: a quoted cell may span lines. Empty lines are skipped."""
    reader, before = csv.reader(text), 0
    for cells in reader:
        if cells:
            yield before + 1, cells
        before = reader.line_num


def _check_names(file: Path, names: Sequence[str]) -> None:
    """Raises: DataError when a name comes twice, or when cells seem to be separated by something else than commas.

    A file without a header is not noticed: its first record is then taken for the names.
    """
    if len(names) == 1 and (other := next((one for one in _OTHERS if one in names[0]), "")):
        raise DataError(f"--csv = {file}: cells seem to be separated by {other!r}; save the table with commas")
    for name, times in Counter(names).items():
        if times > 1:
            at = [number for number, one in enumerate(names, 1) if one == name]
            raise DataError(
                f"--csv = {file}: the column {name!r} is named {times} times (as columns {', '.join(map(str, at))}); "
                "rename all but one"
            )


def _kind(cells: Sequence[str], lines: Sequence[int]) -> NumberColumn | WordColumn | LeftOut:
    placed = list(zip(cells, lines, strict=True))
    blanks = [line for cell, line in placed if not cell.strip()]
    others = [(cell, line) for cell, line in placed if cell.strip() and numbers([cell]) is None]
    there = len(cells) - len(blanks)
    if not there:
        return LeftOut("every cell is empty")
    if len(set(cells)) == 1:
        return LeftOut(f"always {cells[0]!r}, which tells nothing")
    # Words in a minority are slips in a column of numbers.
    if 2 * len(others) < there:
        return _numbers_with(cells, blanks, others)
    words = sorted({cell for cell in cells if cell.strip()})
    if len(words) == there:
        return LeftOut(
            f"{_many(there, 'different word')} in {_many(there, 'record')}; an identifier is better left out"
        )
    if len(words) > MOST_WORDS:
        return LeftOut(f"{len(words)} different words; group them into {MOST_WORDS} at most, or write numbers")
    if blanks:
        return LeftOut(f"{_empty(blanks, len(cells))}; write a word there, such as unknown")
    return WordColumn(tuple(words))


def _numbers_with(
    cells: Sequence[str], blanks: Sequence[int], others: Sequence[tuple[str, int]]
) -> NumberColumn | LeftOut:
    """A column of numbers; left out where a cell is empty or holds something else than a number."""
    wrong = []
    if len(others) == 1:
        wrong.append(f"line {others[0][1]} has {others[0][0]!r}, which is no number; mend that cell")
    elif others:
        cell, line = others[0]
        wrong.append(f"{len(others)} cells are no numbers, the first {cell!r} in line {line}; mend them")
    if blanks:
        wrong.append(f"{_empty(blanks, len(cells))}; write numbers there, or delete those records")
    if wrong:
        return LeftOut("; ".join(wrong))
    found = [float(cell) for cell in cells]
    unlike = len(found) >= _MANY and len(set(found)) == len(found) and all(map(float.is_integer, found))
    return NumberColumn(*_scale(found), identifier=unlike)


def _empty(blanks: Sequence[int], of: int) -> str:
    first = f"in line {blanks[0]}" if len(blanks) == 1 else f"the first in line {blanks[0]}"
    return f"{len(blanks)} of {of} cells {'is' if len(blanks) == 1 else 'are'} empty, {first}"


def _scale(found: Sequence[float]) -> tuple[float, float]:
    """Middle and spread, both rounded: a scale need not be exact, and exact values would tell more about the records.

    The spread keeps two digits, and the middle ends at the same decimal place. So it is off by a twentieth of the
    spread at most, whether the numbers are years or ages.
    """
    spread = float(f"{pstdev(found):.2g}") or 1.0
    return round(fmean(found), 1 - math.floor(math.log10(spread))), spread


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
