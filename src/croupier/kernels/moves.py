"""Carry the numbers of a vector to other places, as whole rows, columns and runs of neighbours.

A `Way` says out[r + c + k] = values[r' + c' + k] for each of its rows (r, r'), each of its columns (c, c') and each
number k of a run. Permuting a model along its symmetries moves just so: entire rows, columns and runs of its tensors.
Described like that the places take far less room than one index a number, and are carried far faster. `encode.shuffled`
makes the ways of a secret order and carries vectors by `Ways`, for Tazza's clients; `croupier bench tazza` measures it
against a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Pair = tuple[Ints, Ints]
Numbers = npt.NDArray[Any]
# A longer run is carried as such; one of so many numbers or fewer is quicker number by number.
SHORT = 4
# Numbers are carried as bare words of these many bytes.
WORDS = (1, 2, 4, 8)


class Way:
    """Where numbers go and come from: rows, columns in a row, and a run of neighbours in each.

    `rows` and `columns` are pairs of offsets, (after, before): where they begin in `out`, and where in `values`.
    Carrying does out[r + c + k] = values[r' + c' + k] for every row (r, r'), column (c, c') and k below the run.
    `packed` says that the runs of a row follow each other in `out` without gaps; it is worked out where not given.
    """

    def __init__(self, rows: Pair, columns: Pair, run: int, packed: bool | None = None) -> None:
        self.rows, self.columns, self.run = rows, columns, run
        self.packed = is_packed(columns[0], run) if packed is None else packed

    def carry_plain(self, out: Numbers, values: Numbers) -> None:
        """Carry by one index for each number: the reference, and the form for words that the loops do not take."""
        to, source = self.places()
        out[to] = values[source]

    def places(self) -> Pair:
        """Where each number goes, and where it comes from."""
        to, source = (
            (row[:, None] + _spread(column, self.run)).reshape(-1)
            for row, column in zip(self.rows, self.columns, strict=True)
        )
        return to, source


class Ways:
    """Ways one after the other, carried by one compiled call."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self._ways = ways
        self._first = np.array([way.rows[0][0] for way in ways], np.int64)

    def carry(self, out: Numbers, values: Numbers) -> None:
        """Fill the places of `out`; both arrays are contiguous and of one length.

        They may end before the last way begins: a vector may be the model's weights alone, without the statistics after
        them. Ways that begin behind its end are left out; none may begin before it and reach beyond.
        """
        from croupier.kernels import _moves_jit as jit

        count = int(np.count_nonzero(self._first < len(values)))
        if values.itemsize not in WORDS:
            for way in self._ways[:count]:
                way.carry_plain(out, values)
            return
        # What the bits mean does not matter to where they go, and no number may be changed on its way.
        word = f"u{values.itemsize}"
        table, to, source, line = self._tables
        jit.carry(out.view(word), values.view(word), table[:count], to, source, line)

    def prepare(self) -> None:
        """Work out now, and not at the first `carry`, what the compiled loops read."""
        _ = self._tables

    @cached_property
    def _tables(self) -> tuple[Ints, Ints, Ints, Numbers]:
        """What `_moves_jit.carry` reads: a row for each way, rows after and before, and places of columns.

        Columns that several ways share are there once; they are known by identity, as `encode.shuffled` shares them.
        """
        table, lines, known, row, place = [], [], dict[tuple[int, int, int], tuple[int, int, int]](), 0, 0
        for way in self._ways:
            key = (id(way.columns[0]), id(way.columns[1]), way.run)
            if key not in known:
                line, run = _line(way)
                known[key] = (place, len(line) if run else len(line) // 2, run)
                lines.append(line)
                place += len(line)
            table.append((row, len(way.rows[0]), *known[key]))
            row += len(way.rows[0])
        to, source = (np.concatenate([way.rows[side] for way in self._ways] or [_NONE]) for side in (0, 1))
        line = np.concatenate(lines or [_NONE])
        narrow = line if line.max(initial=0) >> 32 else line.astype(np.uint32)
        return np.array(table, np.int64).reshape(-1, 5), to, source, narrow


_NONE = np.zeros(0, np.int64)


def is_packed(after: Ints, run: int) -> bool:
    """Whether runs that begin at these places follow each other."""
    return bool(np.array_equal(after, np.arange(len(after), dtype=np.int64) * run))


def _line(way: Way) -> tuple[Ints, int]:
    """The places of one row, and the run at each.

    A run of 0 stands for a row that is not packed: first the places that its numbers go to, then those they come from.
    """
    if not way.packed:
        return np.concatenate([_spread(column, way.run) for column in way.columns]), 0
    return (way.columns[1], way.run) if way.run > SHORT else (_spread(way.columns[1], way.run), 1)


def _spread(column: Ints, run: int) -> Ints:
    """Every place of runs, from where each begins."""
    return column if run == 1 else (column[:, None] + np.arange(run)).reshape(-1)
