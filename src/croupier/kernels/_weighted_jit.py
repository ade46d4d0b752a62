"""The compiled loop of `weighted`, in a file of its own so that numba is loaded only once it is needed.

Only `kernels.weighted` calls it. Products and sums come in the order of the plain form, so that both give the same
bits: no two of them are fused into one that would round once where the plain form rounds twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.kernels.compiled import njit

# Coordinates at a time: whole vectors of a processor, and few enough that the sums of some hundred rows stay in its
# cache; of more rows `_FEWEST`, whether they stay or not.
_FEWEST, _MOST, _ROOM = 64, 512, 1 << 14


@njit(cache=True, nogil=True)
def weighted(rows: Any, weights: Any, start: int, stop: int, out: Any) -> None:
    """Sum the coordinates from `start` to `stop`, some at a time; the first additions read pairs of `rows`."""
    count = len(rows)
    if count == 0:
        out[start:stop] = 0.0
        return
    half = count // 2
    wide = max(_FEWEST, min(_MOST, _ROOM // max(1, half)))
    sums, lost = np.empty((half + 1, wide)), np.empty((half + 1, wide))
    for at in range(start, stop, wide):
        end = min(stop, at + wide)
        many = end - at
        for i in range(half):
            one, two = rows[i, at:end], rows[half + i, at:end]
            _first(one, weights[i], two, weights[half + i], sums[i, :many], lost[i, :many])
        if count % 2:
            _alone(rows[count - 1, at:end], weights[count - 1], sums[half, :many], lost[half, :many])
        left = half + count % 2
        while left > 1:
            middle = left // 2
            for i in range(middle):
                _next(sums[i, :many], lost[i, :many], sums[middle + i, :many], lost[middle + i, :many])
            if left % 2:
                sums[middle, :many] = sums[left - 1, :many]
                lost[middle, :many] = lost[left - 1, :many]
            left = middle + left % 2
        for j in range(many):
            out[at + j] = sums[0, j] + lost[0, j]


@njit(cache=True, nogil=True)
def _first(one: Any, by: float, two: Any, other: float, sums: Any, lost: Any) -> None:
    """Two rows by their weights, added."""
    for j in range(len(sums)):
        a, b = np.float64(one[j]) * by, np.float64(two[j]) * other
        total = a + b
        part = total - a
        sums[j] = total
        lost[j] = (a - (total - part)) + (b - part)


@njit(cache=True, nogil=True)
def _alone(row: Any, by: float, sums: Any, lost: Any) -> None:
    """The last of an odd number of rows."""
    for j in range(len(sums)):
        sums[j] = np.float64(row[j]) * by
        lost[j] = 0.0


@njit(cache=True, nogil=True)
def _next(sums: Any, lost: Any, other: Any, more: Any) -> None:
    """Add a sum to another, and to `lost` what rounding took from the other and from this addition."""
    for j in range(len(sums)):
        a, b = sums[j], other[j]
        total = a + b
        part = total - a
        lost[j] = (lost[j] + more[j]) + ((a - (total - part)) + (b - part))
        sums[j] = total
