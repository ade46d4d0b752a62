"""Is a shared number negative, and is it 0? Answered in shared bits.

Numbers are compared under a mask made of edaBits, dealt random numbers whose bits are shared too. The parties open
c = z + r for such an r. Then z = c - r, and its top bit is that of c plus that of r plus the borrow from the places
below, which is [c < r] there (bits are added by XOR). Places (of bits) are joined to stretches: `less` says that c is
below r in a stretch, `same` that they are equal in it, and a stretch joins a lower one as (less + same less',
same same'). In one place `less` is that c lacks a bit that r has. What two places give together needs of r, beyond its
shared bits, only the product of the two, which is dealt; so a tree over pairs is left: 4 rounds for 32 bits, 5 for 64,
and one before to open c. z is 0 where all places agree, which the same tree tells.

`ranks` orders numbers by it as far as a median needs, `signs` opens its answers, the signs of sums, and `trust`
computes thresholds by it. The number of rounds matters more than the work: two servers wait for each other once a level
of the tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Coins
from croupier.core.flow import SubFlow
from croupier.core.wire import Schema
from croupier.mpc import boolean, products
from croupier.mpc.boolean import Pairs
from croupier.mpc.dealt_shares import WORD, Dealer, DealtShare, ShareReader, Words
from croupier.mpc.ring import Z32, Residues, Ring, kind, opened, schema


@dataclass(frozen=True)
class Level:
    """One level of the tree, which joins `joins` pairs of stretches.

    It has so many planes on the left and on the right (`boolean` says what a plane is), and `pairs` of which left with
    which right one are multiplied (AND).
    """

    joins: int
    lefts: int
    rights: int
    pairs: Pairs


def levels(ring: Ring, zero: bool) -> tuple[Level, ...]:
    """The tree. Only [z = 0] needs to know whether the lowest stretch agrees, and whether the top place does."""
    out, joins, skip = [], ring.bits // 4, 0 if zero else 1
    while joins:
        less = [(i, i) for i in range(joins)]
        same = [(i, joins + i - skip) for i in range(skip, joins)] if joins > 1 else []
        whole = [(joins, 2 * joins - 1)] if zero else []
        out.append(Level(joins, joins + zero, 2 * joins - skip, (*less, *same, *whole)))
        joins //= 2
    return tuple(out)


def planes(numbers: Residues, ring: Ring) -> Words:
    """The bits of numbers, one plane a place, lowest first."""
    columns = np.ascontiguousarray(numbers.view(np.uint8).reshape(-1, ring.bits // 8).T)
    return np.stack([boolean.packed(columns[place // 8] & np.uint8(1 << place % 8)) for place in range(ring.bits)])


def deal_into(dealer: Dealer, count: int, ring: Ring, zero: bool) -> None:
    """A random number, its bits, the products of its bits two by two, and triples for the tree."""
    bits = planes(dealer.residues(ring, (count,)), ring)
    dealer.fit_words(bits)
    dealer.fit_words((bits[1::2] & bits[0::2])[: _doubles(ring, zero)])
    for level in levels(ring, zero):
        boolean.deal_pairs(dealer, level.lefts, level.rights, level.pairs, boolean.width(count))


def _doubles(ring: Ring, zero: bool) -> int:
    return ring.bits // 2 - (not zero)


def deal(count: int, coins: Coins, ring: Ring = Z32, zero: bool = False) -> tuple[DealtShare, DealtShare]:
    """Both halves for so many comparisons."""
    dealer = Dealer(coins)
    deal_into(dealer, count, ring, zero)
    return dealer.halves()


def flow(
    me: int, peer: str, prefix: str, shares: npt.NDArray[np.integer], material: DealtShare, ring: Ring = Z32,
    zero: bool = False,
) -> SubFlow:  # fmt: skip
    """Shares of one plane, [z < 0], and with `zero` of a second, [z = 0]. Reveals: uniform numbers only."""
    reader = material.open(me, fitted(len(shares), ring, zero))
    return (yield from steps(me, peer, prefix, ring.residues(shares), ring, zero, reader))


def steps(me: int, peer: str, prefix: str, shares: Residues, ring: Ring, zero: bool, reader: ShareReader) -> SubFlow:
    """The same, for a caller that has opened the dealt material and draws from it for other gates too."""
    count = len(shares)
    words = boolean.width(count)
    mask = reader.residues(ring, (count,))
    own = reader.fitted_words((ring.bits, words))
    doubles = reader.fitted_words((_doubles(ring, zero), words))
    masked = yield from opened(peer, kind(prefix, "c"), ring, shares + mask)
    open_bits = planes(masked, ring)
    less, same, whole = _leaves(me, ~open_bits, own, doubles)
    for number, level in enumerate(levels(ring, zero)):
        left = same[1::2] if whole is None else np.concatenate([same[1::2], whole[None]])
        right = np.concatenate([less[0::2], same[0::2][0 if zero else 1 :]])
        got = yield from boolean.pairwise(me, peer, kind(prefix, number), left, right, level.pairs, count, reader)
        less = less[1::2] ^ got[: level.joins]
        whole = got[-1] if zero else None
        # Nobody asks whether the lowest stretch agrees, but for 0; what stands in its place is never read.
        rest = got[level.joins : len(got) - zero]
        same = rest if zero else np.concatenate([np.zeros((1, words), WORD), rest])
    sign = own[-1] ^ less[0]
    found = [sign if me else sign ^ open_bits[-1]] + ([] if whole is None else [whole])
    return np.stack(found)


def _leaves(me: int, lacks: Words, own: Words, doubles: Words) -> tuple[Words, Words, Words | None]:
    """Shares of (less, same) of pairs of places, the last but one place alone, and whether the top two both agree.

    In each place, less = lacks r and same = lacks + r, where `lacks` is public: the complement of c.
    """
    public = np.uint64(0) if me else ~np.uint64(0)
    some, last = len(doubles), len(own) // 2 - 1
    high, low, r_high, r_low = (side[:some] for side in (lacks[1::2], lacks[0::2], own[1::2], own[0::2]))
    less = (high & r_high) ^ (low & ((high & r_low) ^ doubles))
    same = (high & low & public) ^ (high & r_low) ^ (low & r_high) ^ doubles
    whole = same[last] if some > last else None
    alone, r_alone = lacks[-2:-1], own[-2:-1]
    less = np.concatenate([less[:last], alone & r_alone])
    same = np.concatenate([same[:last], (alone & public) ^ r_alone])
    return less, same, whole


def schemas(prefix: str, count: int, ring: Ring = Z32, zero: bool = False) -> dict[str, Schema]:
    """The letters of `flow`."""
    out = {kind(prefix, "c"): schema(ring, count)}
    for number, level in enumerate(levels(ring, zero)):
        out[kind(prefix, number)] = boolean.opening(level.lefts + level.rights, count)
    return out


def fitted(count: int, ring: Ring = Z32, zero: bool = False) -> int:
    """Bytes of the explicit part of what is dealt."""
    pairs = sum(len(level.pairs) for level in levels(ring, zero))
    return (ring.bits + _doubles(ring, zero) + pairs) * boolean.width(count) * WORD.itemsize


def deal_negative(dealer: Dealer, count: int, ring: Ring) -> None:
    """Deal what `negative` draws."""
    deal_into(dealer, count, ring, False)
    products.deal_chosen(dealer, count, ring)


def negative(me: int, peer: str, prefix: str, shares: Residues, ring: Ring, reader: ShareReader) -> SubFlow:
    """Shares of min(z, 0): a comparison, and its bit times the number. Reveals: uniform numbers only."""
    found = yield from steps(me, peer, prefix, shares, ring, False, reader)
    return (yield from products.chosen(me, peer, kind(prefix, "m"), found[0], shares, ring, reader))


def negative_schemas(prefix: str, count: int, ring: Ring) -> dict[str, Schema]:
    """The letters of `negative`."""
    return schemas(prefix, count, ring) | {kind(prefix, "m"): products.chosen_schema(count, ring)}


def negative_fitted(count: int, ring: Ring) -> int:
    """Bytes of the explicit part of what is dealt for `negative`."""
    return fitted(count, ring) + 2 * count * ring.dtype.itemsize
