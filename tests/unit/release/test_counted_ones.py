"""What counts of ones tell beyond the sum, estimated: against exact numbers, and nothing where carries are none."""

from __future__ import annotations

import numpy as np
import pytest

from croupier.core.coins import Coins
from croupier.encode.moduli import moduli
from croupier.errors import RangeError
from croupier.release.counted_ones import carries, estimate_carry_bits
from croupier_lab.attacks.residue_sums import counts_of, most_leaked, rounded_normal

FIVE = (5, 7, 8, 9, 11)
COINS = Coins.from_seed(4)


def test_the_estimate_from_counts_meets_the_exact_number() -> None:
    many = moduli(5, 2).values
    draws = Coins.from_seed(1).sampler().normal(0, 5.0, (5, 20_000))
    ones = counts_of(np.rint(draws).astype(np.int64), many)
    exact, found = (
        most_leaked(rounded_normal(5.0, 99), 5, many),
        estimate_carry_bits(ones, 5, many, COINS.child("parts")),
    )
    # Less than the sum is conditioned on: an upper bound, and not a loose one.
    assert exact - 0.02 < found.rate < exact + 0.15
    assert found.low < found.rate < found.high < found.low + 0.2


def test_the_estimate_is_zero_where_carries_are_none() -> None:
    ones = counts_of(np.abs(Coins.from_seed(1).sampler().normal(0, 0.4, (1, 5000))).astype(np.int64), (5, 7))
    assert estimate_carry_bits(ones, 1, (5, 7), COINS.child("none")).rate == 0
    with pytest.raises(RangeError, match="too few"):
        estimate_carry_bits(ones[:9], 1, (5, 7), COINS.child("few"))


def test_clients_that_hold_the_same_leak_nothing() -> None:
    """Their carries follow from the sum, although they take many values."""
    held = np.rint(Coins.from_seed(1).sampler().normal(0, 500.0, 20_000)).astype(np.int64)
    ones = counts_of(np.tile(held, (6, 1)), FIVE)
    assert len(np.unique(carries(ones, FIVE)[1][:, 4])) > 4
    assert estimate_carry_bits(ones, 6, FIVE, COINS.child("same")).rate == pytest.approx(0, abs=1e-9)


def test_sums_and_carries_make_the_counts_again() -> None:
    held = np.array([[-3, 50, 7], [4, -60, 7], [9, 1, -20]])
    sums, carried = carries(counts_of(held, FIVE), FIVE)
    assert sums.tolist() == held.sum(0).tolist()
    assert (sums[:, None] % np.array(FIVE) + np.array(FIVE) * carried).tolist() == counts_of(held, FIVE).tolist()
