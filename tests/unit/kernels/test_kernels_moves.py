"""Carrying numbers to other places: the compiled loops do what one index for all does."""

from __future__ import annotations

import numpy as np
import pytest

from croupier.kernels.moves import Way


@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
@pytest.mark.parametrize("run", [1, 3, 9])
@pytest.mark.parametrize("turned", [False, True])
def test_the_loops_are_the_reference(kind: str, run: int, turned: bool) -> None:
    draw = np.random.default_rng(1)
    rows, columns, at = 7, 5, 4
    values = draw.integers(0, 1 << 20, at + rows * columns * run + 3).astype(kind)
    row, column = at + np.arange(rows) * columns * run, np.arange(columns) * run
    pairs = (row, row[draw.permutation(rows)]), (column, column[draw.permutation(columns)])
    if turned:
        pairs = tuple((there, here) for here, there in pairs)  # type: ignore[assignment]
    out, want, back = values.copy(), values.copy(), values.copy()
    way = Way(*pairs, run)
    way.carry(out, values)
    way.carry_plain(want, values)
    assert np.array_equal(out, want)
    assert not np.array_equal(out, values)
    assert np.array_equal(out[:at], values[:at])
    assert np.array_equal(out[-3:], values[-3:])
    to, source = way.places()
    assert sorted(to) == sorted(source) == list(range(at, len(values) - 3))
    way.back().carry(back, out)
    assert np.array_equal(back, values)
