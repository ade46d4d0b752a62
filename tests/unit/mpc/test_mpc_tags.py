"""Tags fit the sum of exactly the clients named, and nothing else; shares add up to what was shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from croupier.core.coins import Coins
from croupier.kernels import shares
from croupier.kernels.shares import P
from croupier.mpc.shares import rest, stretched
from croupier.mpc.tags import Tagger

WHO = ("a", "b", "c", "d")


def made(bits: int, padded: bool = True, count: int = 7) -> tuple[Tagger, Any, dict[str, Any]]:
    """A tagger, its key, and numbers for every client."""
    tagger = Tagger(Coins.from_seed(3), bits, padded)
    top = 1 << (bits - 4)
    numbers = {w: Coins.from_seed(n).secure().below(2 * top, count) - top for n, w in enumerate(WHO)}
    return tagger, tagger.key(count), numbers


@pytest.mark.parametrize("bits", [6, 21, 28, 29, 33, 60])
def test_the_tags_of_some_fit_their_sum_and_no_other(bits: int) -> None:
    tagger, key, numbers = made(bits)
    tags = {who: tagger.tag(key, numbers[who], who) for who in WHO}
    total, tag = np.sum([*numbers.values()], 0), sum(tags.values()) % P
    assert tagger.fits(key, total, tag, WHO)
    # A wrong roster: one more, one less, one twice, another.
    assert not tagger.fits(key, total, tag, WHO[:3])
    assert not tagger.fits(key, total, tag, (*WHO, "e"))
    assert not tagger.fits(key, total, tag, (*WHO[:3], "e"))
    # A client left out, or counted twice, with its tag and named or not.
    for sign in (-1, 1):
        other, its = total + sign * numbers["a"], (tag + sign * tags["a"]) % P
        assert not tagger.fits(key, other, its, WHO)
        assert tagger.fits(key, other, its, WHO[1:] if sign < 0 else ("a", *WHO))
    for place in range(len(total)):
        off = total.copy()
        off[place] += 1
        assert not tagger.fits(key, off, tag, WHO)
    assert not tagger.fits(key, total, (tag + 1) % P, WHO)
    assert not tagger.fits(key, total[::-1].copy(), tag, WHO)


@pytest.mark.parametrize("factor", [0, -1, 2])
@pytest.mark.parametrize("padded", [True, False])
def test_only_pads_keep_multiples_out(factor: int, padded: bool) -> None:
    tagger, key, numbers = made(21, padded)
    total = np.sum([*numbers.values()], 0)
    tag = sum(tagger.tag(key, numbers[who], who) for who in WHO) % P
    assert tagger.fits(key, total, tag, WHO)
    assert tagger.fits(key, factor * total, factor * tag % P, WHO) is not padded


def test_another_attempt_has_another_key_and_other_pads() -> None:
    one, two = (Tagger(Coins.from_seed(1).child("attempt", n), 21) for n in (0, 1))
    assert not np.array_equal(one.key(9), two.key(9))
    assert one.pad("a") != two.pad("a")
    assert one.pad("a") != one.pad("b")


@pytest.mark.parametrize("bits", [1, 21, 31, 32, 33, 60])
@pytest.mark.parametrize("count", [1, 12, 1500])
def test_shares_add_up(bits: int, count: int) -> None:
    kind = torch.int32 if bits <= 31 else torch.int64
    vector = torch.from_numpy(Coins.from_seed(bits).secure().below(1 << bits, count)).to(kind)
    seeds = tuple(Coins.from_seed(n).export() for n in range(3))
    long, left = rest(vector, 5, seeds, bits)
    total = shares.total(count, bits)
    shares.add(long.numpy(), total)
    for seed in seeds:
        numbers, part = stretched(seed)
        numbers.blind(total, bits)
        left += part
    assert np.array_equal(total & total.dtype.type((1 << bits) - 1), vector.numpy().astype(total.dtype))
    assert left % P == 5
