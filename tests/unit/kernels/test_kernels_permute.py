"""Each column permuted on its own: compiled and plain forms agree, and every order is as likely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from math import factorial, prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.tiers import examples

from croupier.core.coins import Coins
from croupier.errors import RangeError
from croupier.kernels import permute

Words = npt.NDArray[np.uint64]
TOP = 1 << 64


class Feed:
    """Words in the order in which they are drawn, and how many each draw took."""

    def __init__(self, words: Sequence[int] | npt.NDArray[Any]) -> None:
        self.words, self.at, self.draws = np.array(words, np.uint64), 0, list[int]()

    def __call__(self, count: int) -> Words:
        if self.at + count > len(self.words):
            raise AssertionError("more words drawn than were given")
        piece = self.words[self.at : self.at + count].copy()
        self.at += count
        self.draws.append(count)
        return piece


def words_of(seed: int, count: int) -> Words:
    return Coins.from_seed(seed).secure().words(count)


def shared_out(n: int) -> list[list[int]]:
    """The spans n to 2, each list as long as its product is at most 2^40."""
    out: list[list[int]] = [[]]
    for span in range(n, 1, -1):
        if out[-1] and prod(out[-1]) * span > 1 << 40:
            out.append([])
        out[-1].append(span)
    return out


def oracle(rows: npt.NDArray[Any], draw: Callable[[int], Words]) -> npt.NDArray[Any]:
    """The rule in words: strips of 2^16 words; word w of spans with product P is the number w P / 2^64, rounded down,
    whose digits, from the highest, say which row the last one, the one before it, ... is swapped with."""
    out, lists = rows.copy(), shared_out(len(rows))

    def swap(column: int, words: Sequence[int]) -> bool:
        good = True
        for spans, word in zip(lists, words, strict=True):
            number, rest = divmod(int(word) * prod(spans), TOP)
            good &= rest >= TOP % prod(spans)
            for place, span in enumerate(spans):
                j = number // prod(spans[place + 1 :]) % span
                out[[span - 1, j], column] = out[[j, span - 1], column]
        return good

    step = max(1, (1 << 16) // len(lists))
    for start in range(0, rows.shape[1], step):
        some = range(start, min(rows.shape[1], start + step))
        drawn = draw(len(lists) * len(some)).reshape(len(lists), len(some)).T.tolist()
        for column in [column for column, words in zip(some, drawn, strict=True) if not swap(column, words)]:
            while not swap(column, draw(len(lists)).tolist()):
                pass
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


@pytest.mark.parametrize("kind", ["f4", "f8", "i4", "i8", "u1", "?", "f2"])
@pytest.mark.parametrize(("n", "d"), [(2, 1_100), (3, 1_025), (7, 300), (20, 600), (60, 40), (1_200, 1)])
def test_compiled_and_plain_are_one_function(n: int, d: int, kind: str) -> None:
    rows = (np.arange(n * d).reshape(n, d) % 251).astype(kind)
    moved, feed = both(rows, words_of(n * d, n * d))
    assert moved.dtype == rows.dtype
    assert feed.draws == [len(shared_out(n)) * d]
    assert np.array_equal(np.sort(moved, axis=0), np.sort(rows, axis=0))
    assert not np.array_equal(moved, rows)


@pytest.mark.parametrize(("n", "d"), [(2, (1 << 16) + 50), (300, 2_100)])
def test_words_are_drawn_strip_by_strip(n: int, d: int) -> None:
    rows = np.arange(n * d, dtype=np.int32).reshape(n, d)
    count = len(shared_out(n))
    _, feed = both(rows, words_of(d, count * d))
    step = (1 << 16) // count
    assert feed.draws == [count * min(step, d - start) for start in range(0, d, step)]
    assert len(feed.draws) > 1


@pytest.mark.parametrize("n", [2, 3, 13, 14, 20, 21, 100, 3_000])
def test_batches_hold_every_span_once(n: int) -> None:
    lists = [list(range(batch.high, batch.low - 1, -1)) for batch in permute.batches(n)]
    assert lists == shared_out(n)
    assert [span for spans in lists for span in spans] == list(range(n, 1, -1))
    assert all(prod(spans) <= 1 << 40 for spans in lists)
    assert [batch.least for batch in permute.batches(n)] == [TOP % prod(spans) for spans in lists]


def test_twenty_clients_take_two_words() -> None:
    assert [batch[:2] for batch in permute.batches(20)] == [(20, 11), (10, 2)]


def test_more_rows_than_a_place_has_bits_for_are_refused() -> None:
    with pytest.raises(RangeError, match=r"33554432 rows: at most 2\^25 - 1"):
        permute.batches(1 << 25)


def test_a_refused_word_lets_its_column_be_permuted_again() -> None:
    n, d = 20, 300
    words = words_of(1, 3 * d).copy()
    table = words[: 2 * d].reshape(2, d)
    # A word of 0 leaves nothing over: refused in both batches, whose products do not divide 2^64.
    table[0, 7], table[1, 299] = 0, 0
    _, feed = both(np.arange(n * d).reshape(n, d), words)
    assert feed.draws == [2 * d, 2, 2]


def test_a_column_is_permuted_as_often_as_it_is_refused() -> None:
    n, d = 3, 400
    good = words_of(2, d).copy()
    good[5] = 0
    # 0 picks row 0 for row 2, then row 0 for row 1; just past 2^63 lies 3 of 6: row 1 for row 2, row 1 for row 1.
    words = np.concatenate([good, np.array([0, 0, (1 << 63) + 1], np.uint64)])
    rows = np.arange(n * d).reshape(n, d)
    moved, feed = both(rows, words)
    assert feed.draws == [d, 1, 1, 1]
    # Three times the cycle that 0 stands for is no change; then rows 2 and 1 are swapped.
    assert moved[:, 5].tolist() == [rows[0, 5], rows[2, 5], rows[1, 5]]


def tried(n: int, word: int) -> tuple[tuple[int, ...], bool]:
    """What the plain reference makes of one word for one column of few rows, and whether it draws again."""
    column = np.arange(n).reshape(n, 1)
    refused = permute._strip_plain(column, np.array([[word]], np.uint64))
    return tuple(column[:, 0].tolist()), bool(len(refused))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_every_permutation_keeps_exactly_as_many_words(n: int) -> None:
    """All 2^64 words, by the ends of the stretches that lead to one permutation: w P / 2^64 only grows with w."""
    orders, product = set(), factorial(n)
    assert len(permute.batches(n)) == 1
    for number in range(product):
        first, after = (-(-(at * TOP) // product) for at in (number, number + 1))
        order, refused = tried(n, first)
        # Within a stretch the remainder grows by P a word, and what is refused is less than P: the first at most.
        assert [tried(n, word) for word in (first + 1, after - 1)] == [(order, False)] * 2
        assert after - first - refused == TOP // product
        orders.add(order)
    assert orders == set(permutations(range(n)))


@pytest.mark.parametrize("n", [14, 20, 21, 100])
def test_exactly_the_words_that_favour_a_choice_are_refused(n: int) -> None:
    for batch in permute.batches(n):
        product = prod(range(batch.low, batch.high + 1))
        for number in {0, 1, product // 3, product // 2, product - 1}:
            first, after = (-(-(at * TOP) // product) for at in (number, number + 1))
            assert after - first - (first * product % TOP < batch.least) == TOP // product
            assert (first + 1) * product % TOP >= batch.least


@pytest.mark.parametrize("n", [3, 4, 5])
def test_columns_are_uniform(n: int) -> None:
    columns = 2_000 * factorial(n)
    rows = np.repeat(np.arange(n, dtype=np.float32)[:, None], columns, axis=1)
    permute.columns(rows, Coins.from_seed(n).secure().words)
    seen = Counter(map(tuple, rows.T.astype(int).tolist()))
    assert set(seen) == set(permutations(range(n)))
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4


def test_twenty_rows_end_anywhere_alike() -> None:
    """Across two words: where each row ends, and where two rows of different batches end together."""
    rows = np.repeat(np.arange(20, dtype=np.int32)[:, None], 40_000, axis=1)
    permute.columns(rows, Coins.from_seed(20).secure().words)
    for at in range(20):
        assert stats.chisquare(np.bincount(rows[at], minlength=20)).pvalue > 1e-5
    pairs = np.bincount(rows[3] * 20 + rows[17], minlength=400).reshape(20, 20)
    assert (pairs.diagonal() == 0).all()
    assert stats.chisquare(pairs[~np.eye(20, dtype=bool)]).pvalue > 1e-5


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


@examples()
@given(st.integers(2, 30), st.integers(1, 6), st.integers(0, 2**32))
def test_small_tables_follow_the_rule(n: int, d: int, seed: int) -> None:
    rows = np.arange(n * d).reshape(n, d)
    words = words_of(seed, 20 * n * d)
    moved = rows.copy()
    permute.columns(moved, Feed(words))
    assert np.array_equal(moved, oracle(rows, Feed(words)))


def views(base: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Tables of 4 rows and 2,000 columns that lie in memory in different ways."""
    return {
        "whole": base[:4, :2_000].copy(),
        "rows apart": base[:4, 13:2_013],
        "every second row": base[::2, :2_000][:4],
        "every second column": base[:4, ::2][:, :2_000],
        "on its side": base[:4, :2_000].T.copy().T,
        "backwards": base[:4, :2_000][::-1],
        "rows that overlap nothing": np.lib.stride_tricks.as_strided(base, (4, 2_000), (8 * 2_000, 8)),
    }


@pytest.mark.parametrize("name", list(views(np.zeros((8, 4_100)))))
def test_however_a_table_lies_it_is_permuted_in_place_and_nothing_else_is_touched(name: str) -> None:
    base = np.arange(8 * 4_100).reshape(8, 4_100)
    view, words = views(base)[name], words_of(3, 3 * 4 * 2_000)
    want, before = oracle(view.copy(), Feed(words)), base.copy()
    permute.columns(view, Feed(words))
    assert np.array_equal(view, want)
    view[:] = views(before)[name]
    assert np.array_equal(base, before)
