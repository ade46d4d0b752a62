"""Trees with one leaf missing, transfers of one message of two, and a correlation that the servers make themselves."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.stats import chisquare

from croupier.core.coins import Coins
from croupier.errors import RangeError, SpecError, WireError
from croupier.mpc import correlate, puncture, transfer
from croupier.mpc.group import Group, Modular, Rows, Xor
from croupier.mpc.occasion import Occasion, SingleUse
from croupier.mpc.talk import Talked, converse
from croupier.mpc.translate import PermuterHalf, SenderHalf, Stock, draw_order, fit, shuffle

NOW = Occasion(b"r" * 16, 3, 0, b"d" * 32)


def with_rbcl() -> None:
    pytest.importorskip("rbcl", reason="the extra `transfer` is not installed")


@pytest.mark.parametrize("leaves", [2, 3, 4, 5, 8, 13])
def test_all_leaves_but_the_missing_one_grow_again(leaves: int) -> None:
    whole, sums = puncture.grow(puncture.plant(leaves, Coins.from_seed(leaves)), leaves)
    for turn in range(leaves):
        missing = (np.arange(leaves) + turn) % leaves
        asked = puncture.sides(missing, leaves)
        # The side that the path takes is never asked for: with it the missing leaf would grow too.
        path = missing[:, None] >> np.arange(puncture.depth(leaves))[::-1] & 1
        assert ((asked ^ path) == 1).all()
        got = np.take_along_axis(sums, asked[:, :, None, None], 2)[:, :, 0]
        again = puncture.regrow(got, missing, leaves)
        same = (again == whole).all(2)
        np.testing.assert_array_equal(same, np.arange(leaves) != missing[:, None])
        assert not again[np.arange(leaves), missing].any()


def test_leaves_differ_and_look_uniform() -> None:
    leaves, _ = puncture.grow(puncture.plant(50, Coins.from_seed(1)), 64)
    assert len({leaf.tobytes() for leaf in leaves.reshape(-1, 16)}) == 50 * 64
    assert chisquare(np.bincount(leaves.reshape(-1), minlength=256)).pvalue > 1e-4


def test_trees_that_cannot_be_are_refused() -> None:
    with pytest.raises(RangeError, match="leaves = 1"):
        puncture.depth(1)
    with pytest.raises(RangeError, match="sums of 2 levels"):
        puncture.regrow(np.zeros((4, 2, 16), np.uint8), np.zeros(4, np.int64), 5)


def test_the_receiver_gets_what_it_chose_and_not_the_other() -> None:
    with_rbcl()
    coins = Coins.from_seed(1)
    pairs = np.frombuffer(coins.child("pairs").secure().bytes(40 * 32), np.uint8).reshape(40, 2, 16)
    choices = coins.child("choices").secure().below(2, 40).tolist()
    done: Talked[None, Rows] = converse(
        transfer.give(pairs, NOW, "test", coins.child("give")),
        transfer.take(choices, NOW, "test", coins.child("take")),
    )
    np.testing.assert_array_equal(done.two, pairs[np.arange(40), choices])
    # With the key that it has, the other message of a pair is not what it opens.
    keys = done.two ^ (sent := np.frombuffer(done.from_one[-1], np.uint8).reshape(40, 2, 16))[np.arange(40), choices]
    others = sent[np.arange(40), [1 - c for c in choices]] ^ keys
    assert not (others == pairs[np.arange(40), [1 - c for c in choices]]).all(1).any()
    assert [len(m) for m in done.from_one] == [32, 0, 40 * 32]
    assert [len(m) for m in done.from_two] == [0, 40 * 32, 0]


def test_what_the_sender_sees_fits_both_choices_equally() -> None:
    """Exact: for each point B of a receiver that chose 1 with b, one that chose 0 with b + a says the same B."""
    with_rbcl()
    import rbcl

    for number in range(20):
        coins = Coins.from_seed(number)
        give = transfer.give(np.zeros((1, 2, 16), np.uint8), NOW, "test", coins.child("give"))
        take = transfer.take([1], NOW, "test", coins.child("take"))
        offered = next(give)
        next(take)
        said = take.send(offered)
        a = transfer._scalar(coins.child("give").child("secret"))
        b = transfer._scalar(coins.child("take").child("secret", 0))
        assert rbcl.crypto_scalarmult_ristretto255_base(a) == offered
        other = rbcl.crypto_core_ristretto255_scalar_add(a, b)
        assert rbcl.crypto_scalarmult_ristretto255_base(other) == said


def test_another_occasion_or_purpose_gives_other_keys() -> None:
    with_rbcl()
    pairs = np.zeros((1, 2, 16), np.uint8)
    for now, purpose in ((Occasion(NOW.run, 3, 1, NOW.roster), "test"), (NOW, "other")):
        done: Talked[None, Rows] = converse(
            transfer.give(pairs, NOW, "test", Coins.from_seed(1)), transfer.take([0], now, purpose, Coins.from_seed(2))
        )
        assert done.two.any()


def test_points_that_are_none_are_refused() -> None:
    with_rbcl()
    for bad in (bytes(32), b"\xff" * 32):
        take = transfer.take([0], NOW, "test", Coins.from_seed(1))
        next(take)
        with pytest.raises(WireError, match="no point"):
            take.send(bad)
    give = transfer.give(np.zeros((2, 2, 16), np.uint8), NOW, "test", Coins.from_seed(1))
    next(give)
    give.send(b"")
    with pytest.raises(WireError, match="2 points"):
        give.send(bytes(32))


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rbcl", None)
    transfer._group.cache_clear()
    with pytest.raises(SpecError, match=r"pip install croupier\[transfer\]"):
        next(transfer.give(np.zeros((1, 2, 16), np.uint8), NOW, "test", Coins.from_seed(1)))
    transfer._group.cache_clear()


def made(group: Group, rows: int, purpose: str, coins: Coins) -> Talked[SenderHalf, PermuterHalf]:
    order = draw_order(rows, coins.child("order"))
    return converse(
        correlate.give(group, rows, NOW, purpose, coins.child("give")),
        correlate.take(group, order, NOW, purpose, coins.child("take")),
    )


@pytest.mark.parametrize("group", [Xor(1), Xor(77), Modular(3)], ids=str)
@pytest.mark.parametrize("rows", [2, 3, 7])
def test_the_halves_fit_and_shuffle(group: Group, rows: int) -> None:
    with_rbcl()
    coins = Coins.from_seed(rows)
    one, two = made(group, rows, "first", coins.child(1)), made(group, rows, "second", coins.child(2))
    for done in (one, two):
        np.testing.assert_array_equal(done.two.delta, fit(group, done.one, done.two.order).delta)
    clear = group.draw(rows, coins.child("clear").secure())
    x1 = group.draw(rows, coins.child("share").secure())
    stock0, stock1 = SingleUse(Stock(one.two, two.one), NOW), SingleUse(Stock(two.two, one.one), NOW)
    out = converse(shuffle(group, group.subtract(clear, x1), stock0, True, NOW), shuffle(group, x1, stock1, False, NOW))
    np.testing.assert_array_equal(group.add(out.one, out.two), clear[one.two.order[two.two.order]])


def test_what_either_gets_is_uniform_and_of_a_length_that_depends_on_nothing_secret() -> None:
    with_rbcl()
    group, rows = Xor(800), 6
    seen = [made(group, rows, "test", Coins.from_seed(number)) for number in range(6)]
    assert len({tuple(map(len, done.from_one + done.from_two)) for done in seen}) == 1
    for part in ([d.one.a for d in seen], [d.one.b for d in seen], [d.two.delta for d in seen]):
        assert chisquare(np.bincount(np.concatenate(part).reshape(-1), minlength=256)).pvalue > 1e-4


def test_what_the_sender_hears_is_the_same_in_distribution_for_every_order() -> None:
    """The permuter's points for two orders, bit by bit over many runs: no bit leans with the order."""
    with_rbcl()
    group, runs = Xor(1), 150
    counts = []
    for order in (np.array([0, 1]), np.array([1, 0])):
        bits = np.zeros(512)
        for number in range(runs):
            coins = Coins.from_seed(1000 * int(order[0]) + number)
            give = correlate.give(group, 2, NOW, "test", coins.child("give"))
            done = converse(give, correlate.take(group, order, NOW, "test", coins.child("take")))
            bits += np.unpackbits(np.frombuffer(done.from_two[1], np.uint8))
        counts.append(bits)
    # The encoding leaves out a few bits; where they vary, 512 differences stay within five deviations.
    assert np.abs(counts[0] - counts[1]).max() < 5 * np.sqrt(runs / 2)
