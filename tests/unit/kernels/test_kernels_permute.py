from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.core.coins import Coins
from croupier.kernels import permute

Words = npt.NDArray[np.uint32]


class Feed:
    """Words in the order in which they are drawn, and how many each draw took."""

    def __init__(self, words: Sequence[int] | npt.NDArray[Any]) -> None:
        self.words, self.at, self.draws = np.asarray(words, np.uint64).astype(np.uint32), 0, list[int]()

    def __call__(self, count: int) -> Words:
        if self.at + count > len(self.words):
            raise AssertionError("more words drawn than were given")
        piece = self.words[self.at : self.at + count]
        self.at += count
        self.draws.append(count)
        return piece


def words_of(seed: int, count: int) -> Words:
    return np.frombuffer(Coins.from_seed(seed).secure().bytes(4 * count), "<u4")


def oracle(rows: npt.NDArray[Any], draw: Callable[[int], Words]) -> npt.NDArray[Any]:
    """The rule in words: strips of 4096, word (i, k) swaps row i of the k-th waiting column with a row at or above."""
    out = rows.copy()
    n, d = rows.shape
    for start in range(0, d, 4096):
        waiting = list(range(start, min(d, start + 4096)))
        while waiting:
            words = [[int(w) for w in line] for line in draw((n - 1) * len(waiting)).reshape(n - 1, len(waiting))]
            later = []
            for k, column in enumerate(waiting):
                chosen = [divmod(words[i - 1][k] * (i + 1), 1 << 32) for i in range(1, n)]
                if any(low < (1 << 32) % (i + 2) for i, (_, low) in enumerate(chosen)):
                    later.append(column)
                    continue
                for i in range(n - 1, 0, -1):
                    j = chosen[i - 1][0]
                    out[[i, j], column] = out[[j, i], column]
            waiting = later
    return out


def both(rows: npt.NDArray[Any], words: Words) -> tuple[npt.NDArray[Any], Feed]:
    """What compiled and plain make of the same words; they must be equal to each other and to the rule."""
    compiled, plain, fed = rows.copy(), rows.copy(), (Feed(words), Feed(words), Feed(words))
    assert rows.size >= 1 << 10
    permute.columns(compiled, fed[0])
    permute.columns_plain(plain, fed[1])
    assert np.array_equal(compiled, plain)
    assert np.array_equal(plain, oracle(rows, fed[2]))
    assert fed[0].draws == fed[1].draws == fed[2].draws
    return compiled, fed[0]


@pytest.mark.parametrize("kind", ["f4", "f8", "i4", "i8", "u1", "?"])
@pytest.mark.parametrize(("n", "d"), [(2, 4_100), (3, 4_096), (7, 300), (60, 20)])
def test_compiled_and_plain_are_one_function(n: int, d: int, kind: str) -> None:
    rows = (np.arange(n * d).reshape(n, d) % 251).astype(kind)
    moved, _ = both(rows, words_of(n * d, 4 * n * d))
    assert moved.dtype == rows.dtype
    assert np.array_equal(np.sort(moved, axis=0), np.sort(rows, axis=0))
    assert not np.array_equal(moved, rows)


def test_a_refused_word_sends_its_whole_column_to_wait() -> None:
    n, d = 5, 4_100
    words = words_of(1, 6 * n * d).copy()
    # 0 times anything has low half 0: refused where 2^32 leaves something over, that is for 3 and 5 but not 2 and 4.
    table = words[: (n - 1) * 4_096].reshape(n - 1, 4_096)
    table[1, 7], table[3, 4_095], table[0, 9], table[2, 11] = 0, 0, 0, 0
    rows = np.arange(n * d).reshape(n, d)
    _, feed = both(rows, words)
    again = {7, 4_095}
    assert feed.draws == [(n - 1) * 4_096, (n - 1) * len(again), (n - 1) * 4]


def test_a_column_waits_as_often_as_it_is_refused() -> None:
    n, d = 3, 400
    good = words_of(2, 2 * d).copy()
    good.reshape(2, d)[1, 5] = 0
    words = np.concatenate([good, [77, 0], [78, 0], np.array([1 << 31, 1 << 31])]).astype(np.uint32)
    rows = np.arange(n * d).reshape(n, d)
    moved, feed = both(rows, words)
    assert feed.draws == [2 * d, 2, 2, 2]
    # 2^31 picks 1 of 2 (stay) and 1 of 3 (swap rows 2 and 1).
    assert moved[:, 5].tolist() == [rows[0, 5], rows[2, 5], rows[1, 5]]


@pytest.mark.parametrize("span", [3, 5, 6, 7, 10, 100, 641, 1_000])
def test_exactly_the_words_that_favour_a_choice_are_refused(span: int) -> None:
    """Of the words that lead to each choice, 2^32 // span are accepted: as many for every choice."""
    left = (1 << 32) % span
    for choice in {0, 1, span // 2, span - 1}:
        first = -(-(choice << 32) // span)
        last = -(-((choice + 1) << 32) // span) - 1
        # Low halves rise by `span` a word from below `span`, so only the first word can fall under `left` < span.
        spare = last - first + 1 - (1 << 32) // span
        assert spare in (0, 1)
        assert refuses(span, first) == bool(spare) == ((first * span) % (1 << 32) < left)
        assert not refuses(span, first + 1)
        assert not refuses(span, last)


def refuses(span: int, word: int) -> bool:
    """Whether the plain reference draws again when the last swap of `span` rows is given this word."""
    # 2^32 - 1 has the largest low half there is for every span, so it is accepted everywhere.
    fine = [(1 << 32) - 1] * (span - 2)
    feed = Feed([*fine, word, *fine, (1 << 32) - 1])
    permute.columns_plain(np.zeros((span, 1)), feed)
    return len(feed.draws) == 2


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_rows_take_no_words(n: int) -> None:
    feed, rows = Feed([]), np.ones((n, 5_000))
    permute.columns(rows, feed)
    permute.columns_plain(rows, feed)
    assert feed.draws == []
    assert (rows == 1).all()


def test_no_columns_take_no_words() -> None:
    feed = Feed([])
    permute.columns(np.ones((3, 0)), feed)
    assert feed.draws == []


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(1, 6), st.integers(0, 2**32))
def test_small_tables_follow_the_rule(n: int, d: int, seed: int) -> None:
    rows = np.arange(n * d).reshape(n, d)
    words = words_of(seed, 20 * n * d)
    moved = rows.copy()
    permute.columns(moved, Feed(words))
    assert np.array_equal(moved, oracle(rows, Feed(words)))


def test_a_table_that_does_not_lie_together_is_permuted_in_place() -> None:
    base = np.arange(4 * 2_000).reshape(2_000, 4)
    view, words = base.T, words_of(3, 4 * 4 * 2_000)
    want = oracle(view.copy(), Feed(words))
    permute.columns(view, Feed(words))
    assert np.array_equal(base.T, want)
