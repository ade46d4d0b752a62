"""What an opened sum of weighted signs tells of its rows: z_j = sum of w_i b_ij with known weights, b_ij = 1 or -1.

Every column is a subset sum with the same known weights. Few levels of weights leave counts of ones per level; many
distinct weights leave one solution, and every bit of every row is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.errors import RangeError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Distinct sums that are held at once.
_ROOM = 1 << 22
# Rows in each half of a column: a table of all sums of a half must fit.
_HALF = 22


@dataclass(frozen=True)
class Sums:
    """Every sum of the weights of the rows that hold 1: how likely it is, and in how many ways it comes about."""

    values: Ints
    chances: Floats
    ways: Floats

    def with_row(self, weight: int, one: float) -> Sums:
        """The same with one more row, which holds 1 with this chance."""
        values, place = np.unique(np.concatenate([self.values, self.values + weight]), return_inverse=True)
        if len(values) > _ROOM:
            raise RangeError(
                f"{len(values)} distinct sums are too many to walk; take fewer rows or levels, or sample with solutions"
            )
        chances = np.concatenate([self.chances * (1 - one), self.chances * one])
        ways = np.concatenate([self.ways, self.ways])
        return Sums(values, _gathered(place, chances, len(values)), _gathered(place, ways, len(values)))


def sums(weights: Sequence[int], ones: Sequence[float]) -> Sums:
    """The distribution of a column's sum, when row i holds 1 with chance ones[i], independently of the others."""
    found = Sums(np.zeros(1, np.int64), np.ones(1), np.ones(1))
    for weight, one in zip(weights, ones, strict=True):
        if weight < 0 or not 0 <= one <= 1:
            raise RangeError(f"weight = {weight}, chance = {one}: weights are 0 or more, chances within 0 and 1")
        if weight:
            found = found.with_row(int(weight), one)
    return found


def decoded(weights: Sequence[int], flip: float = 0.5) -> float:
    """The share of columns whose sum has one solution only, so that every bit of every row that counts is known.

    Bits are 1 with chance 1 - flip; which way they flip from does not matter. Rows of weight 0 are not in the sum.
    """
    found = sums(weights, [1 - flip] * len(weights))
    return float(found.chances[found.ways == 1].sum())


def solutions(weights: Sequence[int], columns: Ints) -> Ints:
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


@dataclass(frozen=True)
class Told:
    """What z tells of one row's bit: bits of information, and how often the best guess is right."""

    weight: int
    bits: float
    guess: float


def posterior(weights: Sequence[int], ones: Sequence[float], row: int) -> tuple[Ints, Floats, Floats]:
    """Every sum, how likely it is, and the chance given it that this row holds 1: the exact decoder."""
    others = sums([*weights[:row], *weights[row + 1 :]], [*ones[:row], *ones[row + 1 :]])
    weight, one = int(weights[row]), ones[row]
    values, place = np.unique(np.concatenate([others.values, others.values + weight]), return_inverse=True)
    size = len(others.values)
    zero = _gathered(place[:size], others.chances * (1 - one), len(values))
    held = _gathered(place[size:], others.chances * one, len(values))
    total = zero + held
    return values, total, np.divide(held, total, out=np.full(len(total), float(one)), where=total > 0)


def _gathered(place: npt.NDArray[np.intp], masses: Floats, size: int) -> Floats:
    return np.bincount(place, masses, size).astype(np.float64)


def told(weights: Sequence[int], ones: Sequence[float], row: int) -> Told:
    """Information and guess of one row, exactly."""
    _, total, one = posterior(weights, ones, row)
    left = float(total @ _entropy(one))
    before = float(_entropy(np.array([ones[row]]))[0])
    return Told(int(weights[row]), max(0.0, before - left), float(total @ np.maximum(one, 1 - one)))


def opened(weights: Sequence[int], flip: float) -> dict[str, Any]:
    """What opening tells, when every bit differs with chance `flip` from a direction that the reader knows.

    The direction is what the sum is for, so only what is told beyond it counts against a row; at 0.5 there is none.
    """
    ones = [1 - flip] * len(weights)
    # Rows of one level are alike, so one of them speaks for all.
    best = max((told(weights, ones, weights.index(level)) for level in set(weights)), key=lambda one: one.bits)
    whole = sums(weights, ones)
    levels, counts = np.unique(np.array(weights, np.int64), return_counts=True)
    return {
        "rows": len(weights),
        "levels_filled": {str(level): int(count) for level, count in zip(levels, counts, strict=True)},
        "flip": flip,
        "unique_columns": float(whole.chances[whole.ways == 1].sum()),
        "best_row": asdict(best),
        "most_bits": float(_entropy(np.array([1 - flip]))[0]),
        "guess_without": max(flip, 1 - flip),
        "column_bits": float(-(p := whole.chances[whole.chances > 0]) @ np.log2(p)),
    }


def spread(rows: int, levels: int) -> list[int]:
    """Weights of rows that fill the levels 1 to `levels` as evenly as can be."""
    if not 1 <= levels <= rows:
        raise RangeError(f"levels = {levels}: {rows} rows fill between 1 and {rows} levels")
    return [1 + index * levels // rows for index in range(rows)]


def _entropy(one: Floats) -> Floats:
    """Of a bit that is 1 with this chance."""
    sure = np.clip(one, 1e-300, 1 - 2**-53)
    found: Floats = -(sure * np.log2(sure) + (1 - sure) * np.log2(1 - sure))
    return np.where((one <= 0) | (one >= 1), 0.0, found)
