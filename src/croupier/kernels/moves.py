"""Carry the numbers of a vector to other places, where places are rows of columns of runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Pair = tuple[Ints, Ints]
Numbers = npt.NDArray[Any]
# A longer run is carried as such; a shorter one is quicker number by number.
SHORT = 4


class Way:
    """Where numbers go and come from, as (after, before) pairs of offsets: rows, columns in a row, and a run in each.

    `carry` does out[r + c + k] = values[r' + c' + k] for every row (r, r'), column (c, c') and k below the run.
    """

    def __init__(self, rows: Pair, columns: Pair, run: int) -> None:
        self.rows, self.columns, self.run = rows, columns, run
        whole = np.arange(len(columns[0]), dtype=np.int64) * run
        self._packed = bool(np.array_equal(columns[0], whole)) and int(columns[1].max()) < 1 << 32
        steps = 1 if run > SHORT else run
        self._line = (columns[1][:, None] + np.arange(steps)).reshape(-1).astype(np.uint32)

    def carry(self, out: Numbers, values: Numbers) -> None:
        """Fill the places of `out` that this way leads to."""
        from croupier.kernels import _moves_jit as jit

        if not self._packed:
            after, before = (column[:, None] + np.arange(self.run) for column in self.columns)
            jit.scattered(out, values, *self.rows, after.reshape(-1), before.reshape(-1))
        elif self.run > SHORT:
            jit.runs(out, values, *self.rows, self._line, self.run)
        else:
            jit.packed(out, values, *self.rows, self._line)

    def carry_plain(self, out: Numbers, values: Numbers) -> None:
        """The same by one index for all: the reference."""
        to, source = self.places()
        out[to] = values[source]

    def places(self) -> Pair:
        """Where each number goes, and where it comes from."""
        steps = np.arange(self.run)
        to, source = (
            (row[:, None, None] + column[None, :, None] + steps).reshape(-1)
            for row, column in zip(self.rows, self.columns, strict=True)
        )
        return to, source

    def back(self) -> Way:
        """The way back, again in order of the places that are filled."""
        return Way(_turned(self.rows), _turned(self.columns), self.run)


def _turned(pair: Pair) -> Pair:
    order = np.argsort(pair[1], kind="stable")
    return pair[1][order], pair[0][order]
