"""Facts about an opened weighted sum of sign rows: what it tells of single rows, and how many solutions it has.

Where a server opens a sum with weights that all differ, each column is a puzzle with few solutions, so that single rows
can be read; with weights of few levels it has many. `croupier.release.opened_sums` computes this exactly where the sums
can be walked. This module makes the tables of it, counts solutions where there are too many sums to walk, and makes
weights of a given number of levels, for `bench.leakage.opened_sign_sums` (`croupier bench opened`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from croupier.errors import RangeError
from croupier.release.opened_sums import Ints, bit_entropy, sum_chances, sum_leakage

# The most rows in each half of a column: a table of all 2^22 sums of a half must fit into memory.
_HALF = 22


def count_solutions(weights: Sequence[int], columns: Ints) -> Ints:
    """For each column of bits, how many columns have the same weighted sum, found by tables of two halves.

    For weights that are too many and too large to walk every sum. `columns` has one line a row of the sum; rows of
    weight 0 are left out. Raises: RangeError for more rows than two tables can hold.
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
    """What opening tells, when every bit differs with chance `flip` from a direction that the reader knows.

    `best_row` is what the most exposed row gives away, `most_bits` what a row holds before the sum is opened.
    `guess_without` is how often a bit is guessed right without the sum, `column_bits` the entropy of a column's sum.
    """
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
    """Weights for so many rows, which fill the levels 1 to `levels` as evenly as can be."""
    if not 1 <= levels <= rows:
        raise RangeError(f"levels = {levels}: {rows} rows fill between 1 and {rows} levels")
    return [1 + index * levels // rows for index in range(rows)]
