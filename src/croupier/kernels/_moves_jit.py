"""Compiled loops that carry runs of numbers from one place of a vector to another. Imported when first needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]


@njit(nogil=True, cache=True)
def single(out: Any, values: Any, at: int, rows: tuple[Ints, Ints], columns: tuple[Ints, Ints]) -> None:
    """out[at + rows[0] + columns[0]] = values[at + rows[1] + columns[1]], row by row."""
    to, source = columns
    for row in range(len(rows[0])):
        here, there = at + rows[0][row], at + rows[1][row]
        for column in range(len(to)):
            out[here + to[column]] = values[there + source[column]]


@njit(nogil=True, cache=True)
def packed(out: Any, values: Any, at: int, rows: tuple[Ints, Ints], source: Ints) -> None:
    """The same where the columns of `out` are neighbours."""
    for row in range(len(rows[0])):
        here, there = at + rows[0][row], at + rows[1][row]
        for column in range(len(source)):
            out[here + column] = values[there + source[column]]


@njit(nogil=True, cache=True)
def runs(out: Any, values: Any, at: int, rows: tuple[Ints, Ints], columns: tuple[Ints, Ints], run: int) -> None:
    """The same for `run` neighbours at once."""
    to, source = columns
    for row in range(len(rows[0])):
        here, there = at + rows[0][row], at + rows[1][row]
        for column in range(len(to)):
            first, other = here + to[column], there + source[column]
            for step in range(run):
                out[first + step] = values[other + step]
