"""Secrets in escrow: as many as the threshold open them, and one fewer have the same view of any secret."""

from __future__ import annotations

from itertools import combinations, islice

import pytest
from tests.tape import Tape, outcomes

from croupier.core.coins import Coins
from croupier.errors import RangeError
from croupier.mpc import escrow


@pytest.mark.parametrize(("holders", "threshold"), [(2, 1), (3, 2), (5, 3), (5, 5), (40, 21)])
def test_as_many_as_the_threshold_open_it(holders: int, threshold: int) -> None:
    secret = Coins.from_seed(holders).export()
    shares = escrow.split(secret, holders, threshold, Coins.from_seed(7).secure())
    for points in islice(combinations(range(1, holders + 1), threshold), 10):
        assert escrow.joined({point: shares[point - 1] for point in points}) == secret
    if threshold > 1:
        assert escrow.joined({point: shares[point - 1] for point in range(1, threshold)}) != secret


def test_one_fewer_learns_nothing() -> None:
    """Exactly: all coefficients of a polynomial of one byte are walked."""

    def seen(secret: int, holder: int) -> dict[bytes, float]:
        def share(tape: Tape) -> bytes:
            return escrow.split(bytes([secret]), 3, 2, tape)[holder]

        return outcomes(share)

    for holder in range(3):
        assert seen(0, holder) == seen(201, holder) == {bytes([value]): 1 / 256 for value in range(256)}


def test_products_are_those_of_the_field() -> None:
    """Against multiplication bit by bit."""
    for one in range(0, 256, 37):
        for other in range(256):
            total, factor = 0, one
            for bit in range(8):
                total ^= factor if other >> bit & 1 else 0
                factor = factor << 1 ^ (0x11B if factor & 0x80 else 0)
            assert escrow._product(one, other) == total
        assert one == 0 or escrow._product(one, escrow._inverse(one)) == 1


@pytest.mark.parametrize(("holders", "threshold"), [(3, 0), (3, 4), (256, 2)])
def test_thresholds_that_cannot_be_are_refused(holders: int, threshold: int) -> None:
    with pytest.raises(RangeError, match=f"threshold = {threshold} of {holders} holders"):
        escrow.split(bytes(32), holders, threshold, Coins.from_seed(1).secure())
