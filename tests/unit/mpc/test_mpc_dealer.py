"""What a dealer hands out: both parts fit, each is good for one round, and neither can be drawn from the other."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from croupier.core.coins import Coins
from croupier.errors import ProtocolError
from croupier.kernels.field import bits_of
from croupier.kernels.shares import P
from croupier.mpc import deal_shares, dealer
from croupier.mpc.deal_shares import Check, DealSpec, Filed, Seeded, Stored
from croupier.mpc.dealer import ShuffleShare

CHECKS: list[Check] = ["none", "hash", "product"]
COINS = Coins.from_seed(5)


def dealt(deal: DealSpec, coins: Coins = COINS, file: Path | None = None) -> tuple[ShuffleShare, ShuffleShare]:
    """Both hands."""
    seeds = [coins.child("hand", me).export() for me in (0, 1)]
    told = dealer.rest(deal, coins, file)
    one, two = (
        dealer.share_of_seed(seeds[me], me, deal, bytes(32), dealer.bound_of(seeds[1 - me], 1 - me), told if me else {})
        for me in (0, 1)
    )
    return one, two


def whole(deal: DealSpec, shares: Any, matrix: int = 0) -> tuple[Any, Any]:
    """A matrix of shares in one piece, and its tags."""
    values, tags = np.zeros((deal.rows, deal.size), object), np.zeros((deal.rows, deal.size), object)
    for start, stop, numbers, marks in shares.blocks(matrix):
        values[:, start:stop] = numbers
        if marks is not None:
            tags[:, start:stop] = marks
    return values, tags


@pytest.fixture(params=[1 << 20, 48], ids=["one block", "several blocks"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Also with material in pieces."""
    monkeypatch.setattr(deal_shares, "BLOCK", request.param)
    return int(request.param)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("rows", "size"), [(1, 1), (2, 8), (3, 13), (5, 40), (4, 300)])
def test_both_hands_add_up(rows: int, size: int, check: Check) -> None:
    deal = DealSpec(rows, size, check)
    one, two = dealt(deal)
    masks = np.stack([dealer.mask_of(seed, deal) for seed in dealer.seeds(deal, COINS)])
    hiding = masks[one.order][two.order] ^ one.masks[two.order] ^ two.masks
    modulus = P if deal.authentic else 1 << 32
    point = (one.point + two.point) % P
    for matrix, bits in enumerate((hiding, masks)[: deal.matrices]):
        (values, tags), (others, marks) = whole(deal, one.shares, matrix), whole(deal, two.shares, matrix)
        want = bits_of(bits, size).astype(object)
        assert ((values + others) % modulus == want).all()
        if deal.authentic:
            assert ((tags + marks) % P == point * want % P).all()
    for material in (one, two):
        assert sorted(material.order.tolist()) == list(range(rows))
        assert not (material.masks[:, -1] >> (8 - deal.spare if deal.spare else 7) >> (not deal.spare)).any(), (
            "spare bits"
        )


@pytest.mark.parametrize("check", ["hash", "product"])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_the_elements_of_a_check_add_up(rows: int, check: Check) -> None:
    deal = DealSpec(rows, 21, check)
    over = deal.over
    one, two = dealt(deal)
    key = over.add(one.tag_key, two.tag_key)
    found = {}
    for (name, left), (_, right) in zip(one.dealt(), two.dealt(), strict=True):
        found[name] = over.add(left.values, right.values)
        assert np.array_equal(over.add(left.tags, right.tags), over.mul(key, found[name])), name
    assert np.array_equal(over.mul(found["x"], found["y"]), found["z"])
    assert len(found["x"]) == deal.triples == 2 * rows - 1
    assert found["blind"].any()
    assert sum(map(len, found.values())) == deal.extras
    if check == "hash":
        masks = np.stack([dealer.mask_of(seed, deal) for seed in dealer.seeds(deal, COINS)])
        hiding = masks[one.order][two.order] ^ one.masks[two.order] ^ two.masks
        shared = dealer.joined(one.key, two.key)
        assert np.array_equal(found["before"], dealer.row_hashes(shared, masks))
        assert np.array_equal(found["after"], dealer.row_hashes(shared, hiding))
        assert one.bound == dealer.bound_of(COINS.child("hand", 1).export(), 1)
        assert one.bound != two.bound


class Fixed(Coins):
    """A dealer's coins, of which one server's seed is known and everything else is fresh."""

    def __init__(self, number: int, me: int) -> None:
        super().__init__(Coins.from_seed(number).export())
        self.me = me

    def child(self, *labels: Any) -> Coins:
        """The known seed, or a node of these coins."""
        if labels == ("hand", self.me):
            return Coins(bytes(range(32)))
        return Coins(self.export()).child(*labels)


@pytest.mark.parametrize("me", [0, 1])
@pytest.mark.parametrize("check", ["hash", "product"])
def test_what_a_seed_stands_for_says_nothing_of_the_rest(check: Check, me: int) -> None:
    deal = DealSpec(6, 64, check)
    seen = []
    for number in (1, 2):
        coins = Fixed(number, me)
        one, two = dealt(deal, coins)
        mine, other = (one, two) if me == 0 else (two, one)
        triples = {
            name: deal.over.add(left.values, right.values).tobytes()
            for (name, left), (_, right) in zip(one.dealt(), two.dealt(), strict=True)
        }
        masks = np.stack([dealer.mask_of(seed, deal) for seed in dealer.seeds(deal, coins)])
        seen.append((mine, other, triples, masks.tobytes()))
    (mine, other, triples, hiding), (also, fresh, others, hidden) = seen
    assert mine.masks.tobytes() == also.masks.tobytes(), "the same seed"
    assert hiding != hidden
    assert other.masks.tobytes() != fresh.masks.tobytes()
    assert other.order.tolist() != fresh.order.tolist()
    assert (other.point, other.key) != (fresh.point, fresh.key)
    for name in triples:
        assert triples[name] != others[name], f"{name} can be drawn from a server's own seed"


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("check", CHECKS)
def test_shares_are_the_same_drawn_stored_and_filed(check: Check, tmp_path: Path) -> None:
    deal = DealSpec(3, 100, check)
    _, stored = dealt(deal)
    _, filed = dealt(deal, file=tmp_path / "material")
    seeded = Seeded(deal, COINS)
    for matrix in range(deal.matrices):
        for first, second in ((stored.shares, filed.shares), (seeded, Stored.of(deal, seeded))):
            (one, tags), (two, marks) = whole(deal, first, matrix), whole(deal, second, matrix)
            assert (one == two).all()
            assert (tags == marks).all()
        again = whole(deal, Stored.of(deal, filed.shares), matrix)
        assert (again[0] == whole(deal, stored.shares, matrix)[0]).all(), "a file that was taken into memory"


@pytest.mark.parametrize("check", CHECKS)
def test_a_file_that_ends_early_is_refused(check: Check, tmp_path: Path) -> None:
    deal = DealSpec(3, 100, check)
    file = tmp_path / "material"
    dealt(deal, file=file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ProtocolError, match="ends too early; deal anew"):
        whole(deal, Filed(deal, file), deal.matrices - 1)


def test_a_hand_is_good_for_one_round() -> None:
    material, _ = dealt(DealSpec(2, 3))
    assert material.take() is material
    with pytest.raises(ProtocolError, match="used before; every attempt needs its own"):
        material.take()
    assert material.key.hex() not in repr(material)
    assert "order" not in repr(material)


def slow_ghash(key: bytes, rows: Any) -> list[int]:
    """GHASH of each row as associated data, by definition, without the length block that all rows share."""

    def times(x: int, y: int) -> int:
        z = 0
        for place in range(127, -1, -1):
            z ^= y if x >> place & 1 else 0
            y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
        return z

    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(bytes(16))
    point = int.from_bytes(block, "big")
    found = []
    for row in rows:
        data = row.tobytes()
        data += bytes(-len(data) % 16)
        total = 0
        for start in range(0, len(data), 16):
            total = times(total ^ int.from_bytes(data[start : start + 16], "big"), point)
        found.append(times(total, point))
    return found


@given(st.integers(1, 70), st.binary(min_size=32, max_size=32), st.integers(0, 1 << 30))
@examples(40)
def test_row_hashes_are_linear_and_what_they_are_called(width: int, key: bytes, seed: int) -> None:
    rows = np.frombuffer(Coins.from_seed(seed).secure().bytes(4 * width), np.uint8).reshape(4, width)
    found = dealer.row_hashes(key, rows)
    assert [int.from_bytes(one.tobytes(), "big") for one in found] == slow_ghash(key, rows)
    assert np.array_equal(dealer.row_hashes(key, rows[:1] ^ rows[1:2]), found[:1] ^ found[1:2])
    assert not dealer.row_hashes(key, np.zeros((1, width), np.uint8)).any()
    altered = rows.copy()
    altered[0, -1] ^= 1
    assert not np.array_equal(dealer.row_hashes(key, altered)[0], found[0])


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_blocks_begin_with_whole_bytes_and_cover_a_row(rows: int) -> None:
    deal = DealSpec(rows, (1 << 20) + 3)
    spans = deal.blocks
    assert spans[0][0] == 0
    assert spans[-1][1] == deal.size
    assert all(stop == start for (_, stop), (start, _) in pairwise(spans))
    assert all(start % 8 == 0 for start, _ in spans)
