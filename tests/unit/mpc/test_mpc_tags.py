"""Tags fit the sum of exactly the clients named, and nothing else; shares add up to what was shared."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from croupier.core.coins import Coins
from croupier.kernels import packed
from croupier.kernels.shares import P
from croupier.mpc.shares import added, joined, rest, stretched, unpacked
from croupier.mpc.tags import Tagger

# The places of clients that are present, and of one that is invited and is not.
WHO, OTHER = (0, 1, 2, 3), 4


def made(bits: int, padded: bool = True, count: int = 7) -> tuple[Tagger, Any, dict[int, Any]]:
    """A tagger, its key, and numbers for every client."""
    tagger = Tagger(Coins.from_seed(3), bits, len(WHO) + 1, padded)
    top = 1 << (bits - 4)
    numbers = {who: Coins.from_seed(who).secure().below(2 * top, count) - top for who in WHO}
    return tagger, tagger.key(count), numbers


def fits(tagger: Tagger, key: Any, sums: Any, tag: int, places: tuple[int, ...]) -> bool:
    """Whether a sum of signed numbers fits."""
    return tagger.fits(packed.form_plain(key, sums, tagger.bits), tag, np.array(places))


def own_tag(tagger: Tagger, key: Any, numbers: Any, place: int) -> int:
    """A client's tag."""
    return (packed.form_plain(key, numbers, tagger.bits) + int(tagger.pads[place])) % P


@pytest.mark.parametrize("bits", [6, 21, 28, 29, 33, 60])
def test_the_tags_of_some_fit_their_sum_and_no_other(bits: int) -> None:
    tagger, key, numbers = made(bits)
    tags = {who: own_tag(tagger, key, numbers[who], who) for who in WHO}
    total, tag = np.sum([*numbers.values()], 0), sum(tags.values()) % P
    assert fits(tagger, key, total, tag, WHO)
    # A wrong roster: one more, one less, one twice, another.
    assert not fits(tagger, key, total, tag, WHO[:3])
    assert not fits(tagger, key, total, tag, (*WHO, OTHER))
    assert not fits(tagger, key, total, tag, (*WHO[:3], OTHER))
    # A client left out, or counted twice, with its tag and named or not.
    for sign in (-1, 1):
        other, its = total + sign * numbers[0], (tag + sign * tags[0]) % P
        assert not fits(tagger, key, other, its, WHO)
        assert fits(tagger, key, other, its, WHO[1:] if sign < 0 else (0, *WHO))
    for place in range(len(total)):
        off = total.copy()
        off[place] += 1
        assert not fits(tagger, key, off, tag, WHO)
    assert not fits(tagger, key, total, (tag + 1) % P, WHO)
    assert not fits(tagger, key, total[::-1].copy(), tag, WHO)


@pytest.mark.parametrize("factor", [0, -1, 2])
@pytest.mark.parametrize("padded", [True, False])
def test_only_pads_keep_multiples_out(factor: int, padded: bool) -> None:
    tagger, key, numbers = made(21, padded)
    total = np.sum([*numbers.values()], 0)
    tag = sum(own_tag(tagger, key, numbers[who], who) for who in WHO) % P
    assert fits(tagger, key, total, tag, WHO)
    assert fits(tagger, key, factor * total, factor * tag % P, WHO) is not padded


def test_another_attempt_has_another_key_and_other_pads() -> None:
    one, two = (Tagger(Coins.from_seed(1).child("attempt", n), 21, 9) for n in (0, 1))
    keys = [one.key(2000), two.key(2000)]
    assert not np.array_equal(keys[0].halves, keys[1].halves)
    assert not np.array_equal(keys[0].outer, keys[1].outer)
    pads = [*one.pads.tolist(), *two.pads.tolist()]
    assert len(set(pads)) == 18
    assert all(0 <= pad < P for pad in pads)


def test_pads_of_many_clients_add_up_without_overflow() -> None:
    tagger = Tagger(Coins.from_seed(1), 21, 5000)
    everyone = np.arange(5000)
    tag = sum(tagger.pads.tolist()) % P
    assert tagger.fits(0, tag, everyone)
    assert not tagger.fits(0, tag, everyone[1:])


def forged(prime: int, difference: tuple[tuple[int, ...], ...]) -> list[Fraction]:
    """How often a change to blocks of a sum goes unseen, over all keys of a small field, by the change to its tag."""
    outer, inner = (np.array([*product(range(prime), repeat=size)]) for size in np.shape(difference))
    found = np.bincount((outer @ np.array(difference) @ inner.T % prime).ravel(), minlength=prime)
    return [Fraction(int(count), len(outer) * len(inner)) for count in found]


@pytest.mark.parametrize("prime", [3, 5])
def test_no_change_passes_more_often_than_two_in_p(prime: int) -> None:
    worst = Fraction(0)
    for values in product(range(prime), repeat=4):
        if any(values):
            rows = values[:2], values[2:]
            worst = max(worst, *forged(prime, rows))
    # Of one block that changed: the inner product vanishes, or the outer key does.
    assert worst == Fraction(2, prime) - Fraction(1, prime**2)
    assert forged(prime, ((0, 0), (0, 0)))[0] == 1


def test_the_key_counts_as_the_product_of_its_parts() -> None:
    tagger = Tagger(Coins.from_seed(2), 21, 1)
    key, size = tagger.key(4000), packed.block(21)
    inner = [int(low) + (int(high) << 31) for low, high in key.halves.T]
    for place in (0, 1, size - 1, size, 3999):
        assert key.at(place) == inner[place % size] * int(key.outer[place // size]) % P
    assert all(0 <= value < P for value in [*inner, *key.outer.tolist()])
    assert len({*inner, *key.outer.tolist()}) == size + 3


@pytest.mark.parametrize("bits", [1, 21, 31, 32, 33, 60])
@pytest.mark.parametrize("count", [1, 12, 1500])
def test_shares_add_up(bits: int, count: int) -> None:
    vector = torch.from_numpy(Coins.from_seed(bits).secure().below(1 << bits, count).astype(packed.dtype(bits)))
    seeds = tuple(Coins.from_seed(n).export() for n in range(3))
    key = Tagger(Coins.from_seed(4), bits, 1).key(count)
    long, left = rest(vector, 5, seeds, bits, key)
    parts = [stretched(seed) for seed in seeds]
    total = added([long], [numbers for numbers, _ in parts], count, bits)
    assert torch.equal(unpacked(total, count, bits), vector)
    assert torch.equal(joined(vector, bits), total)
    form = packed.form_plain(key, vector.numpy(), bits)
    assert (left + sum(part for _, part in parts)) % P == (form + 5) % P


def test_clients_of_one_process_hold_one_copy_of_an_attempts_pads() -> None:
    one, two, other = (Tagger(Coins.from_seed(seed), 21, 9) for seed in (1, 1, 2))
    assert one.pads is two.pads
    assert one.pads.tolist() == Coins.from_seed(1).child("pads").secure().below(P, 9).tolist()
    assert other.pads.tolist() != one.pads.tolist()
    with pytest.raises(ValueError, match="read-only"):
        one.pads[0] = 0


def test_the_pads_of_those_present_are_added_once_for_what_cannot_change() -> None:
    tagger, other = (Tagger(Coins.from_seed(seed), 21, 50) for seed in (1, 2))
    places = [np.arange(50), np.arange(0, 50, 3)]
    for one in places:
        one.flags.writeable = False
    for _ in range(2):
        for who in (tagger, other):
            for one in places:
                assert who.fits(0, sum(who.pads[one].tolist()) % P, one)
                assert not who.fits(1, sum(who.pads[one].tolist()) % P, one)
    # Places that somebody could still change are looked at every time.
    loose = np.arange(10)
    assert tagger.fits(0, sum(tagger.pads[loose].tolist()) % P, loose)
    loose[0] = 20
    assert tagger.fits(0, sum(tagger.pads[loose].tolist()) % P, loose)
