"""Blocks side by side: planes move as NumPy's bits do, back too, and every order of a block is as likely."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.unit.kernels.test_kernels_unary import MODULI, drawn

from croupier.core.coins import Coins
from croupier.kernels import lanes, permute, residues

PAPER = (3, 5, 7, 8, 11, 13, 17)


@pytest.mark.parametrize(
    ("people", "count", "moduli"),
    [(2, 1, (3, 7)), (4, 3, MODULI), (3, 513, MODULI), (10, 600, PAPER), (2, 40, (64, 63)), (60, 20, (7, 17))],
)
def test_compiled_and_plain_moves_are_alike(people: int, count: int, moduli: tuple[int, ...]) -> None:
    rows = drawn(people, count, moduli)
    moved = lanes._moved(rows, count, moduli, Coins.from_seed(5).secure().words)
    plain = lanes.moved_plain(rows, count, moduli, Coins.from_seed(5).secure().words)
    assert np.array_equal(moved, plain)
    ones = residues.counts(list(rows), count, moduli)
    assert np.array_equal(residues.counts(list(moved), count, moduli), ones), "a block lost or gained a one"
    back = lanes.moved(moved, count, moduli, Coins.from_seed(5).secure().words, back=True)
    assert np.array_equal(back, rows)


def test_blocks_with_a_refused_word_are_permuted_once_more() -> None:
    """Words of 0 choose the first place each time, and leave a rest below every limit."""
    rows, asked = drawn(4, 30, MODULI), list[int]()

    def feed(seed: int) -> permute.Draw:
        words = Coins.from_seed(seed).secure().words
        asked.clear()

        def draw(count: int) -> permute.Words:
            asked.append(count)
            found = words(count)
            if len(asked) == 1:
                found = found.copy()
                found.reshape(-1, lanes.LANES)[1:3, 7] = 0
            return found

        return draw

    moved, fresh = lanes._moved(rows, 30, MODULI, feed(3)), list(asked)
    assert len(fresh) > 1, "no word was refused"
    assert np.array_equal(moved, lanes.moved_plain(rows, 30, MODULI, feed(3)))
    assert np.array_equal(lanes.moved(moved, 30, MODULI, feed(3), back=True), rows)


def test_every_arrangement_of_a_block_is_as_likely() -> None:
    """Two clients, four bits each of which the first client's first two are ones: 28 places for a pair of ones."""
    count = 1 << 13
    bits = np.zeros((2, count, 8), np.uint8)
    bits[0, :, :2] = 1
    rows = np.packbits(bits.reshape(2, -1), axis=1, bitorder="little")
    out = lanes._moved(rows, count, (5, 5), Coins.from_seed(2).secure().words)
    found = np.unpackbits(out, axis=1, bitorder="little").reshape(2, count, 2, 4).transpose(1, 2, 0, 3)
    pairs = found[:, 0].reshape(count, 8) @ (1 << np.arange(8))
    expected = [(1 << one) + (1 << other) for one, other in combinations(range(8), 2)]
    counts = np.array([(pairs == key).sum() for key in expected])
    assert counts.sum() == count
    assert float(chisquare(counts).pvalue) > 1e-4
    assert not found[:, 1].any(), "a bit left its block"


def test_lanes_move_apart_from_each_other() -> None:
    bits = np.zeros((2, 512, 8), np.uint8)
    bits[0, :, 0] = 1
    rows = np.packbits(bits.reshape(2, -1), axis=1, bitorder="little")
    out = lanes._moved(rows, 512, (9,), Coins.from_seed(4).secure().words)
    places = np.unpackbits(out, axis=1, bitorder="little").reshape(2, 512, 8).transpose(1, 0, 2).reshape(512, 16)
    assert float(chisquare(np.bincount(places.argmax(1), minlength=16)).pvalue) > 1e-4
    neighbours = np.bincount(places[:-1].argmax(1) * 16 + places[1:].argmax(1), minlength=256)
    assert neighbours.max() < 15, "neighbours move alike"


def test_large_blocks_are_left_to_columns() -> None:
    assert lanes.fit(64, (17,))
    assert not lanes.fit(65, (17,))
    rows = drawn(70, 20, (17, 5))
    moved = Coins.from_seed(8).secure().permute_blocks(rows, 20, (17, 5))
    assert np.array_equal(residues.counts(list(moved), 20, (17, 5)), residues.counts(list(rows), 20, (17, 5)))
    assert np.array_equal(Coins.from_seed(8).secure().permute_blocks(moved, 20, (17, 5), back=True), rows)
