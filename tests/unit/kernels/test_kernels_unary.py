"""Bits that change places inside their blocks: the compiled loops and the plain reference move alike, and back."""

from __future__ import annotations

import numpy as np
import pytest

from croupier.core.coins import Coins
from croupier.kernels import residues, unary

MODULI = (5, 7, 8, 9, 11)


def drawn(people: int, count: int, moduli: tuple[int, ...]) -> np.ndarray:
    """Rows of uniform bits; those after the last number are 0."""
    size, bits = residues.size(count, moduli), count * sum(residues.widths(moduli))
    rows = np.frombuffer(Coins.from_seed(people).secure().bytes(people * size), np.uint8).reshape(people, size).copy()
    rows[:, -1] &= 0xFF >> (8 * size - bits)
    return rows


@pytest.mark.parametrize(
    ("people", "count", "moduli"),
    [(2, 1, (3, 7)), (4, 3, MODULI), (3, 700, MODULI), (10, 2100, MODULI), (2, 130, (64, 63))],
)
def test_compiled_and_plain_moves_are_alike(people: int, count: int, moduli: tuple[int, ...]) -> None:
    rows = drawn(people, count, moduli)
    moved = unary.moved(rows, count, moduli, Coins.from_seed(5).secure().permute_columns)
    plain = unary.moved_plain(rows, count, moduli, Coins.from_seed(5).secure().permute_columns)
    assert np.array_equal(moved, plain)
    ones = residues.counts(list(rows), count, moduli)
    assert np.array_equal(residues.counts(list(moved), count, moduli), ones), "a block lost or gained a one"
    assert count == 1 or not np.array_equal(moved, rows)
    back = unary.moved(moved, count, moduli, Coins.from_seed(5).secure().permute_columns, back=True)
    assert np.array_equal(back, rows)


def test_shares_move_as_what_they_share() -> None:
    one, two = drawn(4, 100, MODULI), drawn(4, 100, MODULI)[::-1].copy()
    apart = [unary.moved(rows, 100, MODULI, Coins.from_seed(6).secure().permute_columns) for rows in (one, two)]
    whole = unary.moved(one ^ two, 100, MODULI, Coins.from_seed(6).secure().permute_columns)
    assert np.array_equal(apart[0] ^ apart[1], whole)


def test_a_move_of_no_rows_changes_nothing() -> None:
    rows = drawn(3, 50, MODULI)
    assert np.array_equal(unary.moved(rows, 50, MODULI, lambda table: None), rows)
