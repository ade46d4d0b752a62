"""How many columns of an opened weighted sum have one solution, where they are too many to walk, and rows by levels.

`croupier.release.opened_sums` says exactly what such a sum tells; these are the bench's tables and samples of it.

Weights that differ make a sum a puzzle with few solutions, and weights of few levels do not; the bench shows where the
one becomes the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from croupier.errors import RangeError
from croupier.release.opened_sums import Ints, bit_entropy, sum_chances, sum_leakage

# Rows in each half of a column: a table of all sums of a half must fit.
_HALF = 22


def count_solutions(weights: Sequence[int], columns: Ints) -> Ints:
    """How many columns of bits have the same sum as each of these (rows, columns), by tables of two halves.

    For weights too many and too large to walk every sum; rows of weight 0 are left out.
    """
    many = np.array(weights, np.int64)
    keep = many > 0
    many, bits = many[keep], (np.asarray(columns)[keep] > 0).astype(np.int64)
    if len(many) > 2 * _HALF:
        raise RangeError(f"{len(many)} rows with weight: at most {2 * _HALF} can be counted; take fewer")
    first, second = (_table(part) for part in np.array_split(many, 2))
    found = np.zeros(bits.shape[1], np.int64)
    for number, target in enumerate((many @ bits).tolist()):
        left = np.searchsorted(second, target - first, "left")
        found[number] = (np.searchsorted(second, target - first, "right") - left).sum()
    return found


def _table(weights: Ints) -> Ints:
    table = np.zeros(1, np.int64)
    for weight in weights.tolist():
        table = np.concatenate([table, table + weight])
    return np.sort(table)


def opened_facts(weights: Sequence[int], flip: float) -> dict[str, Any]:
    """What opening tells, when every bit differs with chance `flip` from a direction that the reader knows."""
    found, whole = sum_leakage(weights, flip), sum_chances(weights, [1 - flip] * len(weights))
    levels, counts = np.unique(np.array(weights, np.int64), return_counts=True)
    return {
        "rows": len(weights),
        "levels_filled": {str(level): int(count) for level, count in zip(levels, counts, strict=True)},
        "flip": flip,
        "unique_columns": found.unique_columns,
        "best_row": asdict(found.best_row),
        "most_bits": float(bit_entropy(np.array([1 - flip]))[0]),
        "guess_without": max(flip, 1 - flip),
        "column_bits": float(-(p := whole.chances[whole.chances > 0]) @ np.log2(p)),
    }


def even_levels(rows: int, levels: int) -> list[int]:
    """Weights of rows that fill the levels 1 to `levels` as evenly as can be."""
    if not 1 <= levels <= rows:
        raise RangeError(f"levels = {levels}: {rows} rows fill between 1 and {rows} levels")
    return [1 + index * levels // rows for index in range(rows)]
