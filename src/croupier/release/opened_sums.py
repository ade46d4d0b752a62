"""What an opened sum of weighted signs tells of its rows: z_j = sum over i of w_i b_ij, w_i known, b_ij = 1 or -1.

With bits 1 or 0 the same is a subset sum s_j, the weights of the rows whose bit is 1, and z_j = 2 s_j - (all weights):
every column has the same known weights. With few distinct weights many columns of bits fit a sum; with many distinct
ones mostly a single column does, and every bit of every row is open. The audit's question `carries` asks it of RAIN's
sums (`release.scored`), and `croupier bench opened` measures it for many settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from croupier.errors import RangeError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# More distinct sums than these are refused.
_ROOM = 1 << 22


@dataclass(frozen=True)
class SumChances:
    """Every subset sum (the weights of the rows with bit 1): how likely it is, and in how many ways it comes about."""

    values: Ints
    chances: Floats
    ways: Floats

    def with_row(self, weight: int, one: float) -> SumChances:
        """The same with one more row, which holds 1 with this chance."""
        values, place = np.unique(np.concatenate([self.values, self.values + weight]), return_inverse=True)
        if len(values) > _ROOM:
            raise RangeError(f"{len(values)} distinct sums are too many to walk; take fewer rows or levels")
        chances = np.concatenate([self.chances * (1 - one), self.chances * one])
        ways = np.concatenate([self.ways, self.ways])
        return SumChances(values, _gathered(place, chances, len(values)), _gathered(place, ways, len(values)))


def sum_chances(weights: Sequence[int], ones: Sequence[float]) -> SumChances:
    """The distribution of a column's sum, when row i holds 1 with chance ones[i], independently of the others."""
    found = SumChances(np.zeros(1, np.int64), np.ones(1), np.ones(1))
    for weight, one in zip(weights, ones, strict=True):
        if weight < 0 or not 0 <= one <= 1:
            raise RangeError(f"weight = {weight}, chance = {one}: weights are 0 or more, chances within 0 and 1")
        if weight:
            found = found.with_row(int(weight), one)
    return found


def unique_share(weights: Sequence[int], flip: float) -> float:
    """The share of columns whose sum has one solution only, so that every bit of every row that counts is known.

    Bits are 1 with chance 1 - flip. With chance flip the share would be the same: turning all bits round makes of s the
    sum of all weights less s, which has as many solutions. Rows of weight 0 are not in the sum.
    """
    found = sum_chances(weights, [1 - flip] * len(weights))
    return float(found.chances[found.ways == 1].sum())


@dataclass(frozen=True)
class RowLeakage:
    """What z tells of one row's bit: bits of information, and how often the best guess is right."""

    weight: int
    bits: float
    guess: float


@dataclass(frozen=True)
class SumLeakage:
    """What opening a sum tells: the share of columns that are open whole, and the row of which most is told."""

    unique_columns: float
    best_row: RowLeakage


def posterior(weights: Sequence[int], ones: Sequence[float], row: int) -> tuple[Ints, Floats, Floats]:
    """Every subset sum, how likely it is, and the chance given it that this row holds 1: the exact decoder."""
    others = sum_chances([*weights[:row], *weights[row + 1 :]], [*ones[:row], *ones[row + 1 :]])
    weight, one = int(weights[row]), ones[row]
    whole = others.with_row(weight, one)
    held = np.zeros(len(whole.values))
    held[np.searchsorted(whole.values, others.values + weight)] = others.chances * one
    fallback = np.full(len(held), float(one))
    return whole.values, whole.chances, np.divide(held, whole.chances, out=fallback, where=whole.chances > 0)


def _gathered(place: npt.NDArray[np.intp], masses: Floats, size: int) -> Floats:
    return np.bincount(place, masses, size).astype(np.float64)


def row_leakage(weights: Sequence[int], ones: Sequence[float], row: int) -> RowLeakage:
    """Information and guess of one row, exactly."""
    _, total, one = posterior(weights, ones, row)
    left = float(total @ bit_entropy(one))
    before = float(bit_entropy(np.array([ones[row]]))[0])
    return RowLeakage(int(weights[row]), max(0.0, before - left), float(total @ np.maximum(one, 1 - one)))


def sum_leakage(weights: Sequence[int], flip: float) -> SumLeakage:
    """What opening tells, when every bit differs with chance `flip` from a direction that the reader knows.

    RAIN opens the sum for that direction, so only what is told beyond it counts against a row. With `flip` = 0.5 no
    direction is known.
    """
    ones = [1 - flip] * len(weights)
    # Rows of one level are alike, so one of them speaks for all.
    every = (row_leakage(weights, ones, weights.index(level)) for level in set(weights))
    return SumLeakage(unique_share(weights, flip), max(every, key=lambda one: one.bits))


def bit_entropy(one: Floats) -> Floats:
    """The entropy of a bit that is 1 with this chance."""
    sure = np.clip(one, 1e-300, 1 - 2**-53)
    found: Floats = -(sure * np.log2(sure) + (1 - sure) * np.log2(1 - sure))
    return np.where((one <= 0) | (one >= 1), 0.0, found)
