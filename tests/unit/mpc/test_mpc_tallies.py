"""What two servers compute from shares equals what is computed in the clear, and tags fit it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from croupier.core.coins import Coins
from croupier.errors import IntegrityError, ProtocolError
from croupier.kernels.field import packed
from croupier.kernels.shares import P
from croupier.mpc import deal_shares
from croupier.mpc.authentic import TaggedShares
from croupier.mpc.deal_shares import Check, DealSpec
from croupier.mpc.dealer import mask_of, rest, row_hashes, seeds, share_of_seed
from croupier.mpc.field import PRIME
from croupier.mpc.tallies import Tally, centred


class Game:
    """Rows, hidden before and after a shuffle, and both servers' tallies."""

    def __init__(self, rows: int, size: int, check: Check, seed: int) -> None:
        coins = Coins.from_seed(seed)
        self.deal = DealSpec(rows, size, check)
        told = rest(self.deal, coins)
        hands = [
            share_of_seed(coins.child("hand", me).export(), me, self.deal, b"", b"", told if me else {})
            for me in (0, 1)
        ]
        self.bits = coins.child("bits").secure().below(2, rows * size).reshape(rows, size)
        self.reference = coins.child("reference").secure().below(2, size)
        self.up = packed(self.bits) ^ np.stack([mask_of(s, self.deal) for s in seeds(self.deal, coins)])
        one, two = hands
        self.hidden = (self.up[one.order] ^ one.masks)[two.order] ^ two.masks
        self.shuffled = self.bits[one.order][two.order]
        self.tallies = [Tally(self.deal, material.shares, me, material.point) for me, material in enumerate(hands)]
        self.point = (one.point + two.point) % P

    def opened(self, one: TaggedShares, two: TaggedShares) -> Any:
        """The numbers, their tags checked."""
        if not self.deal.authentic:
            return one.values + two.values
        values = PRIME.add(one.values, two.values)
        key = np.array([[self.point]], np.uint64)
        assert np.array_equal(PRIME.add(one.tags, two.tags), PRIME.mul(key, values))
        return values


@given(
    rows=st.integers(1, 6), size=st.integers(1, 40) | st.sampled_from([511, 1025]),
    check=st.sampled_from(["none", "hash", "product"]), seed=st.integers(0, 1 << 20),
    heavy=st.integers(1, 1 << 20), block=st.sampled_from([64, 1 << 20]),
)  # fmt: skip
@examples(40)
def test_tallies(rows: int, size: int, check: Check, seed: int, heavy: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deal_shares, "BLOCK", block)
        game = Game(rows, size, check, seed)
        one, two = (tally.distances(game.hidden, packed(game.reference)) for tally in game.tallies)
        want = (game.shuffled != game.reference).sum(1)
        assert np.array_equal(centred(game.opened(one, two), size), want)
        weights = Coins.from_seed(seed).child("weights").secure().below(heavy + 1, rows)
        one, two = (tally.sums(game.hidden, weights) for tally in game.tallies)
        assert np.array_equal(centred(game.opened(one, two), int(weights.sum())), weights @ (2 * game.shuffled - 1))
        if check == "product":
            keys = PRIME.draw(Coins.from_seed(seed).child("keys").secure(), size).reshape(-1)
            for matrix, hidden, bits in ((1, game.up, game.bits), (0, game.hidden, game.shuffled)):
                one, two = (tally.fingerprints(hidden, keys, matrix) for tally in game.tallies)
                want = [sum(int(k) for k, b in zip(keys, row, strict=True) if b) % P for row in bits]
                assert game.opened(one, two).reshape(-1).tolist() == want


def test_hashes_of_hidden_rows_and_of_what_hides_them_give_those_of_the_rows() -> None:
    game = Game(4, 77, "hash", 3)
    key = bytes(range(32))
    for hidden, bits in ((game.up, game.bits), (game.hidden, game.shuffled)):
        clear = packed(bits)
        assert np.array_equal(row_hashes(key, hidden) ^ row_hashes(key, hidden ^ clear), row_hashes(key, clear))


@pytest.mark.parametrize("check", ["none", "hash"])
def test_weights_that_a_sum_cannot_hold_are_refused(check: Check) -> None:
    game = Game(2, 5, check, 1)
    most = np.array([(1 << 31) - 2, 1])
    one, two = (tally.sums(game.hidden, most) for tally in game.tallies)
    assert np.array_equal(centred(game.opened(one, two), int(most.sum())), most @ (2 * game.shuffled - 1))
    with pytest.raises(ProtocolError, match="weights add up to 2147483648"):
        game.tallies[0].sums(game.hidden, most + np.array([0, 1]))


@pytest.mark.parametrize(("dtype", "modulus"), [(np.uint32, 1 << 32), (np.uint64, P)])
def test_opened_numbers_are_signed_and_bounded(dtype: Any, modulus: int) -> None:
    assert centred(np.array([0, 7, modulus - 7], dtype), 7).tolist() == [0, 7, -7]
    for wrong in (8, modulus - 8, modulus // 2, modulus // 2 + 1):
        with pytest.raises(IntegrityError, match="larger than 7"):
            centred(np.array([wrong], dtype), 7)
    assert centred(np.array([], dtype), 0).tolist() == []
