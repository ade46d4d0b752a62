"""What was printed, and how it fails: rows that do not recombine, tags that anyone makes, a check that answers."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import binomtest

from croupier.core.coins import Coins
from croupier.kernels.shares import P
from croupier.mpc.group import Modular, Rows
from croupier_lab.papers.rain import printed_forms

K, D = 6, 8
GROUP = Modular(D)


def signs(coins: Coins, rows: int = K, width: int = D) -> Rows:
    """Rows of +1 and -1 in the field."""
    bits = coins.secure().below(2, rows * width).reshape(rows, width)
    return np.where(bits == 1, 1, P - 1).astype(np.uint64)


def shared(clear: Rows, coins: Coins) -> tuple[Rows, Rows]:
    group = Modular(clear.shape[1])
    mask = group.draw(len(clear), coins.secure())
    return group.subtract(clear, mask), mask


def test_rows_of_the_printed_shuffle_recombine_only_where_both_orders_agree() -> None:
    came_back, agreed = 0, 0
    for number in range(200):
        coins = Coins.from_seed(number)
        clear = signs(coins.child("rows"))
        b0, b1 = shared(clear, coins.child("share"))
        common = printed_forms.expand(coins.child("seed").export(), K, D)
        out = GROUP.add(printed_forms.printed_shuffle(b0, common, 0), printed_forms.printed_shuffle(b1, common, 1))
        same = int((common.orders[0] == common.orders[1]).sum())
        assert printed_forms.recombined(out, clear) == same
        # The claim of equation 16: row i is b_{π1(π0(i))}. It holds in no run in which the orders differ throughout.
        if same == 0:
            assert not (out == clear[common.orders[1][common.orders[0]]]).all(1).any()
        came_back += same
        agreed += same == K
    # One row in K on average, where two orders happen to agree; a whole shuffle, in 1 run of 720.
    assert binomtest(came_back, 200 * K, 1 / K).pvalue > 1e-4
    assert agreed <= 3


def test_with_one_order_rows_recombine_and_each_server_knows_it() -> None:
    coins = Coins.from_seed(5)
    clear = signs(coins.child("rows"))
    b0, b1 = shared(clear, coins.child("share"))
    seed = coins.child("seed").export()
    outs = [
        printed_forms.printed_shuffle(b, printed_forms.expand(seed, K, D, same=True), s) for s, b in enumerate((b0, b1))
    ]
    whole = GROUP.add(outs[0], outs[1])
    assert printed_forms.recombined(whole, clear) == K
    # What server 0 does with the seed it holds, when the rows are opened: every client's row by name.
    known = printed_forms.expand(seed, K, D, same=True).orders[0]
    np.testing.assert_array_equal(whole[np.argsort(known)], clear)


@pytest.mark.parametrize("server", [0, 1])
def test_a_server_forges_tags_of_whatever_it_likes(server: int) -> None:
    for number in range(50):
        coins = Coins.from_seed(number)
        seed = coins.child("seed").export()
        shares = shared(signs(coins.child("rows")), coins.child("share"))
        keys = printed_forms.tag_keys(seed, number, D)
        honest = printed_forms.tag(keys[server], shares[server])
        assert printed_forms.verify(keys[server], shares[server], honest)
        change = np.zeros_like(shares[server])
        change[number % K, number % D] = P - 2  # turns +1 into -1
        rows, tags = printed_forms.forge(seed, number, server, shares[server], change)
        assert not (rows == shares[server]).all()
        assert printed_forms.verify(keys[server], rows, tags)
        # The check can fail: somebody without the key, who keeps the old tags, is caught.
        assert not printed_forms.verify(keys[server], rows, honest)


def test_tags_of_shares_are_no_tags_of_what_is_shared() -> None:
    coins = Coins.from_seed(1)
    rows = signs(coins.child("rows"))
    shares = shared(rows, coins.child("share"))
    keys = printed_forms.tag_keys(coins.child("seed").export(), 0, D)
    whole = printed_forms.tag(GROUP.add(keys[0][None], keys[1][None])[0], rows)
    parts = [
        (s + t) % P
        for s, t in zip(printed_forms.tag(keys[0], shares[0]), printed_forms.tag(keys[1], shares[1]), strict=True)
    ]
    assert all(one != two for one, two in zip(parts, whole, strict=True))
    lacks = printed_forms.cross_terms(keys, shares)
    assert tuple((one + two) % P for one, two in zip(parts, lacks, strict=True)) == whole


def test_the_late_check_takes_honest_rows_and_catches_one_error() -> None:
    coins = Coins.from_seed(2)
    messages = signs(coins.child("rows"), 5, 3)
    rows = printed_forms.tagged(messages, coins.child("keys"))
    shares = shared(rows, coins.child("share"))
    orders = (np.array([4, 0, 1, 3, 2]), np.array([1, 2, 0, 4, 3]), np.array([0, 3, 2, 1, 4]))
    out = printed_forms.late_shuffle(shares, orders, coins)
    assert printed_forms.late_check(out)
    np.testing.assert_array_equal(Modular(7).add(*out), rows[printed_forms.composed(orders)])
    for column in range(7):
        change = np.zeros_like(rows)
        change[2, column] = 1
        # An error in a key goes unnoticed only where the message is 0; signs never are.
        assert not printed_forms.late_check((Modular(7).add(out[0], change), out[1]))


def test_for_every_unknown_order_a_pair_of_errors_survives_iff_it_guessed_the_link() -> None:
    """Exact: all 24 orders of the pass that server 0 is not in, and all pairs of rows that it may ask about."""
    coins, size = Coins.from_seed(3), 4
    rows = printed_forms.tagged(signs(coins.child("rows"), size, 2), coins.child("keys"))
    shares = shared(rows, coins.child("share"))
    known = np.array([2, 0, 3, 1]), np.array([1, 3, 0, 2])
    error = np.array([1, 0, 0, 0, 0], np.uint64)
    survived = dict.fromkeys(product(range(size), repeat=2), 0)
    for middle in permutations(range(size)):
        orders = (known[0], np.array(middle), known[1])
        for row, place in survived:
            out = printed_forms.late_shuffle(shares, orders, coins, printed_forms.ShuffleCheat(row, place, error))
            passed = printed_forms.late_check(out)
            assert passed == (printed_forms.composed(orders)[place] == row)
            survived[row, place] += passed
    # Each question is answered yes by 24 / K of the orders: nothing but luck, and then certainty.
    assert set(survived.values()) == {6}


def test_surviving_the_late_check_has_probability_one_in_k_and_gives_the_link_away() -> None:
    size, trials = 5, 2500
    messages = signs(Coins.from_seed(4), size, 2)
    root = Coins.from_seed(5)
    found = [
        printed_forms.selective_failure(messages, n % size, n // size % size, root.child(n)) for n in range(trials)
    ]
    assert all(trial.survived == trial.linked for trial in found)
    survived = sum(trial.survived for trial in found)
    assert binomtest(survived, trials, 1 / size).pvalue > 1e-4
