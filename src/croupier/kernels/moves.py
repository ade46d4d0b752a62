"""Carry the numbers of a vector to other places, where the places have the structure of rows, columns and runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Pair = tuple[Ints, Ints]
Numbers = npt.NDArray[Any]


def carry(out: Numbers, values: Numbers, at: int, rows: Pair, columns: Pair, run: int) -> None:
    """out[at + r + c + k] = values[at + r' + c' + k] for every row (r, r'), column (c, c') and k below `run`."""
    from croupier.kernels import _moves_jit as jit

    if run > 1:
        jit.runs(out, values, at, rows, columns, run)
    elif np.array_equal(columns[0], np.arange(len(columns[0]))):
        jit.packed(out, values, at, rows, columns[1])
    else:
        jit.single(out, values, at, rows, columns)


def carry_plain(out: Numbers, values: Numbers, at: int, rows: Pair, columns: Pair, run: int) -> None:
    """The same, by one index for all: the reference, and what a device without compiled loops uses."""
    to, source = places(at, rows, columns, run)
    out[to] = values[source]


def places(at: int, rows: Pair, columns: Pair, run: int) -> Pair:
    """Where each number goes, and where it comes from."""
    steps = np.arange(run)
    to, source = (
        (at + row[:, None, None] + column[None, :, None] + steps).reshape(-1)
        for row, column in zip(rows, columns, strict=True)
    )
    return to, source
