"""Two fields as values: their axioms, what they draw, and what they take for an element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from croupier.core.coins import Coins
from croupier.kernels.shares import P
from croupier.mpc.field import BINARY, PRIME, ShareField

FIELDS = {"prime": PRIME, "binary": BINARY}


def elements(over: ShareField, seed: int, count: int = 5) -> Any:
    """Uniform ones, and the edges."""
    found = over.draw(Coins.from_seed(seed).secure(), count)
    found[0] = 0
    found[-1] = P - 1 if over is PRIME else (1 << 64) - 1
    return found


@pytest.mark.parametrize("name", FIELDS)
@given(seeds=st.tuples(*[st.integers(0, 99)] * 3))
@examples(25)
def test_axioms(name: str, seeds: tuple[int, int, int]) -> None:
    over = FIELDS[name]
    a, b, c = (elements(over, seed) for seed in seeds)
    b = b[::-1]
    zero = np.zeros_like(a)
    assert np.array_equal(over.add(over.add(a, b), c), over.add(a, over.add(b, c)))
    assert np.array_equal(over.add(a, b), over.add(b, a))
    assert np.array_equal(over.sub(over.add(a, b), b), a)
    assert np.array_equal(over.sub(a, a), zero)
    assert np.array_equal(over.sub(a, zero), a)
    assert np.array_equal(over.mul(a, over.add(b, c)), over.add(over.mul(a, b), over.mul(a, c)))
    assert np.array_equal(over.mul(over.mul(a, b), c), over.mul(a, over.mul(b, c)))
    assert all(over.valid(found) for found in (over.add(a, b), over.sub(a, b), over.mul(a, b)))
    total = zero[:1]
    for element in a:
        total = over.add(total, element.reshape(1, -1))
    assert np.array_equal(over.total(a), total)
    assert np.array_equal(over.mul(a[1:2], b), over.mul(np.repeat(a[1:2], len(b), 0), b)), "one times many"


def test_sums_modulo_the_prime_are_whole_numbers() -> None:
    one, two = (np.array([[P - 1], [P - 1], [0]], np.uint64), np.array([[P - 1], [1], [0]], np.uint64))
    assert PRIME.add(one, two).tolist() == [[P - 2], [0], [0]]
    assert PRIME.sub(two, one).tolist() == [[0], [2], [0]]
    many = np.full((5000, 1), P - 1, np.uint64)
    assert int(PRIME.total(many)[0, 0]) == -5000 % P


def test_the_one_word_that_is_no_element_is_drawn_again() -> None:
    class Words:
        """A stream that gives the forbidden word first, and once more when asked again."""

        def __init__(self) -> None:
            self.next = [(P << 3) | 7, 5 << 3, (P << 3) | 1, (P - 1) << 3]

        def words(self, count: int) -> Any:
            """The next of them."""
            found, self.next = self.next[:count], self.next[count:]
            return np.array(found, np.uint64)

    stream = Words()
    assert PRIME.draw(stream, 2).tolist() == [[P - 1], [5]]  # type: ignore[arg-type]
    assert stream.next == []


def test_what_is_an_element() -> None:
    assert PRIME.valid(np.array([[0], [P - 1]], np.uint64))
    assert not PRIME.valid(np.array([[0], [P]], np.uint64))
    assert not PRIME.valid(np.array([[(1 << 64) - 1]], np.uint64))
    assert BINARY.valid(np.full((1, 2), (1 << 64) - 1, np.uint64))


@pytest.mark.parametrize("name", FIELDS)
def test_drawn_elements_fill_the_field(name: str) -> None:
    over = FIELDS[name]
    drawn = over.draw(Coins.from_seed(1).secure(), 4000)
    assert drawn.shape == (4000, over.words)
    assert over.valid(drawn)
    top = 61 if over is PRIME else 64
    for word in range(over.words):
        for place in range(top):
            ones = int(((drawn[:, word] >> np.uint64(place)) & np.uint64(1)).sum())
            # Five standard deviations of 4,000 tosses.
            assert abs(ones - 2000) < 160, place
