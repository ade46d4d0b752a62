"""Bits shared by XOR become numbers shared by addition, and what is opened on the way is uniform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from croupier.core.coins import Coins
from croupier.errors import ProtocolError, RangeError, WireError
from croupier.mpc.convert import DaBits, Numbers, convert, deal, open_numbers, open_seed
from croupier.mpc.group import Rows, Xor
from croupier.mpc.occasion import Occasion, SingleUse
from croupier.mpc.talk import Talked, converse

NOW = Occasion(b"r" * 16, 3, 0, b"d" * 32)


def material(group: Xor, rows: int, coins: Coins) -> tuple[DaBits, DaBits]:
    dealt = deal(group, rows, coins)
    return open_seed(group, rows, dealt.seed0), open_numbers(group, rows, dealt.seed1, dealt.numbers)


def converted(group: Xor, clear: Rows, coins: Coins) -> Talked[Numbers, Numbers]:
    mask = group.draw(len(clear), coins.child("share").secure())
    one, two = (SingleUse(half, NOW) for half in material(group, len(clear), coins.child("deal")))
    return converse(convert(group, clear ^ mask, one, True, NOW), convert(group, mask, two, False, NOW))


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 8), (5, 77), (7, 400_000)])
def test_numbers_are_the_bits(rows: int, width: int) -> None:
    group, coins = Xor(width), Coins.from_seed(width)
    clear = group.draw(rows, coins.child("clear").secure())
    done = converted(group, clear, coins)
    bits = np.unpackbits(clear, axis=1, count=width, bitorder="little")
    np.testing.assert_array_equal(done.one + done.two, bits)
    assert done.size == 2 * clear.nbytes


def test_the_dealers_bits_are_the_same_both_ways_and_as_often_one_as_zero() -> None:
    group = Xor(1000)
    one, two = material(group, 10, Coins.from_seed(1))
    bits = np.unpackbits(group.add(one.bits, two.bits), axis=1, count=1000, bitorder="little")
    np.testing.assert_array_equal(one.numbers + two.numbers, bits)
    assert abs(int(bits.sum()) - 5000) < 250
    # Neither half alone says which: the lowest bit of each number is as often right as wrong.
    for half in (one, two):
        assert abs(int(((half.numbers & 1) == bits).sum()) - 5000) < 250


def test_what_is_opened_and_what_each_holds_is_uniform_whatever_the_bits_are() -> None:
    for clear in (np.zeros((64, 64), np.uint8), np.full((64, 64), 255, np.uint8)):
        group = Xor(512)
        done = converted(group, clear, Coins.from_seed(2))
        opened = np.frombuffer(done.from_one[0], np.uint8) ^ np.frombuffer(done.from_two[0], np.uint8)
        for seen in (opened, done.one.view(np.uint8).reshape(-1), done.two.view(np.uint8).reshape(-1)):
            assert chisquare(np.bincount(seen, minlength=256)).pvalue > 1e-4


def test_what_does_not_fit_is_refused() -> None:
    group, coins = Xor(12), Coins.from_seed(1)
    one, _ = material(group, 2, coins)
    spent = SingleUse(one, NOW)
    with pytest.raises(RangeError, match="do not fit daBits"):
        next(convert(group, np.zeros((3, 2), np.uint8), spent, True, NOW))
    with pytest.raises(ProtocolError, match="spent"):
        next(convert(group, np.zeros((2, 2), np.uint8), spent, True, NOW))
    with pytest.raises(RangeError, match="7 bytes of numbers"):
        open_numbers(group, 2, bytes(32), bytes(7))
    party = convert(group, np.zeros((2, 2), np.uint8), SingleUse(one, NOW), True, NOW)
    next(party)
    with pytest.raises(WireError, match="2 rows of 2"):
        party.send(b"")
