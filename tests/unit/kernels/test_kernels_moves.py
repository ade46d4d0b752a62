"""Carrying numbers to other places: the compiled loops do what one index for all does."""

from __future__ import annotations

import numpy as np
import pytest

from croupier.kernels.moves import Way, Ways


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
    Ways([way]).carry(out, values)
    way.carry_plain(want, values)
    assert np.array_equal(out, want)
    assert not np.array_equal(out, values)
    assert np.array_equal(out[:at], values[:at])
    assert np.array_equal(out[-3:], values[-3:])
    to, source = way.places()
    assert sorted(to) == sorted(source) == list(range(at, len(values) - 3))
    Ways([Way(way.rows[::-1], way.columns[::-1], run)]).carry(back, out)
    assert np.array_equal(back, values)


def _grid(rows: int, columns: int, run: int, at: int, draw: np.random.Generator) -> Way:
    row, column = at + np.arange(rows) * columns * run, np.arange(columns) * run
    return Way((row, row[draw.permutation(rows)]), (column, column[draw.permutation(columns)]), run)


@pytest.mark.parametrize("kind", ["u1", "f2", "f4", "f8", "c16"])
@pytest.mark.parametrize(("rows", "columns", "run"), [(9, 70, 1), (1, 33, 2), (5, 17, 5), (40, 3, 11), (2, 1, 130)])
def test_words_of_every_size_are_carried_bit_by_bit(kind: str, rows: int, columns: int, run: int) -> None:
    draw = np.random.default_rng(2)
    ways = [_grid(rows, columns, run, 3, draw), _grid(columns, rows, run, 3 + rows * columns * run, draw)]
    # Any bits at all, so that some are no number, and a number that is none must keep its bits too.
    size = 2 * rows * columns * run + 7
    values = np.frombuffer(draw.bytes(size * np.dtype(kind).itemsize), kind)
    out, want, less = values.copy(), values.copy(), values.copy()
    Ways(ways).carry(out, values)
    for way in ways:
        way.carry_plain(want, values)
    assert out.tobytes() == want.tobytes()
    # A vector that ends before the second way begins.
    short = 3 + rows * columns * run
    Ways(ways).carry(less[:short], values[:short])
    assert less.tobytes() == want[:short].tobytes() + values[short:].tobytes()


def test_columns_that_do_not_follow_each_other_and_that_two_ways_share() -> None:
    draw = np.random.default_rng(3)
    column = (np.arange(4) * 5, draw.permutation(4) * 5)
    ways = [Way((row, row[::-1].copy()), column, 2) for row in (np.array([0, 2]), np.array([20, 22]))]
    assert not ways[0].packed
    values = np.arange(40.0)
    out, want = values.copy(), values.copy()
    Ways(ways).carry(out, values)
    for way in ways:
        way.carry_plain(want, values)
    assert np.array_equal(out, want)
    assert not np.array_equal(out, values)
    Ways([]).carry(out, values)
    assert np.array_equal(out, want)
