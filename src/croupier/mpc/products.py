"""Products of shared residues: numbers with numbers, bits with numbers, weights with rows; and bits as numbers.

They use Beaver's triples, and daBits (a random bit shared by XOR and by addition). Each gate is one round. A bit times
a number opens the masked bit and the masked number side by side, so that no turn is spent on the bit as a number.

`place.two_servers.scoring` turns bits into numbers with it (`numbers`), `trust` sums rows by secret weights
(`weighted`), and `compare` takes a number or 0 by a secret bit (`chosen`).
"""

from __future__ import annotations

from croupier.core.coins import Coins
from croupier.core.flow import SubFlow
from croupier.core.wire import Schema
from croupier.mpc import boolean
from croupier.mpc.dealt_shares import Dealer, DealtShare, ShareReader, Words
from croupier.mpc.ring import Z32, Residues, Ring, kind, swap


def fitted(count: int, ring: Ring = Z32) -> int:
    """Bytes of the explicit part of what is dealt for `numbers`."""
    return count * ring.dtype.itemsize


def deal_numbers(count: int, coins: Coins, ring: Ring = Z32) -> tuple[DealtShare, DealtShare]:
    """Both halves for `numbers`: random bits, shared by XOR and by addition."""
    dealer = Dealer(coins)
    _deal_bits(dealer, count, ring)
    return dealer.halves()


def _deal_bits(dealer: Dealer, count: int, ring: Ring) -> Residues:
    bits = boolean.unpacked(dealer.words((boolean.width(count),)), count).astype(ring.dtype)
    dealer.fit_residues(ring, bits)
    return bits


def numbers(
    me: int, peer: str, prefix: str, shares: Words, count: int, material: DealtShare, ring: Ring = Z32
) -> SubFlow:
    """Shares by addition of bits (0 or 1) that are shared by XOR. Reveals: uniform numbers only."""
    reader = material.open(me, fitted(count, ring))
    mask, half = reader.words(shares.shape), reader.fitted_residues(ring, (count,))
    plane = yield from boolean.opened(peer, kind(prefix, "num"), (shares ^ mask)[None], count)
    e = boolean.unpacked(plane[0], count).astype(ring.dtype)
    return half - 2 * e * half + (0 if me else e)


def numbers_schemas(prefix: str, count: int) -> dict[str, Schema]:
    """The letters of `numbers`."""
    return {kind(prefix, "num"): boolean.opening(1, count)}


def deal_chosen(dealer: Dealer, count: int, ring: Ring) -> None:
    """Random bits in both forms, masks for numbers, and the products of the two."""
    bits = _deal_bits(dealer, count, ring)
    dealer.fit_residues(ring, bits * dealer.residues(ring, (count,)))


def chosen(me: int, peer: str, kind: str, bits: Words, values: Residues, ring: Ring, reader: ShareReader) -> SubFlow:
    """Shares of bit times number: the number where the bit is one, else 0. Reveals: a masked bit and number."""
    count = len(values)
    mask, half = reader.words(bits.shape), reader.fitted_residues(ring, (count,))
    blind = reader.residues(ring, (count,))
    product = reader.fitted_residues(ring, (count,))
    hidden, less = bits ^ mask, values - blind
    body = yield from swap(peer, kind, {"bits": boolean.carried(hidden[None], count), "value": ring.carried(less)})
    plane = hidden ^ boolean.read(body["bits"], count)[0]
    e, f = boolean.unpacked(plane, count).astype(ring.dtype), less + ring.read(body["value"])
    # With the opened e, bit = e + (1 - 2e) r; with the opened f, r times the number = f r + the dealt product.
    other = f * half + product
    return e * values + other - 2 * e * other


def chosen_schema(count: int, ring: Ring) -> Schema:
    """The letter of `chosen`."""
    return Schema((boolean.field("bits", 1, count), ring.field("value", count)))


def deal_weighted(dealer: Dealer, rows: int, count: int, ring: Ring) -> None:
    """Masks for weights and for rows, and the weighted sum of the rows' masks."""
    weights, masks = dealer.residues(ring, (rows,)), dealer.residues(ring, (rows, count))
    dealer.fit_residues(ring, weights @ masks)


def weighted(
    me: int, peer: str, kind: str, weights: Residues, rows: Residues, ring: Ring, reader: ShareReader
) -> SubFlow:
    """Shares of the sum of weight times row. Reveals: masked weights and rows, so rows times their length travels."""
    a, b = reader.residues(ring, weights.shape), reader.residues(ring, rows.shape)
    c = reader.fitted_residues(ring, rows.shape[1:])
    d, e = weights - a, rows - b
    body = yield from swap(peer, kind, {"weights": ring.carried(d), "rows": ring.carried(e)})
    d, e = d + ring.read(body["weights"]), e + ring.read(body["rows"])
    return c + a @ e + d @ (b if me else b + e)


def weighted_schema(rows: int, count: int, ring: Ring) -> Schema:
    """The letter of `weighted`."""
    return Schema((ring.field("weights", rows), ring.field("rows", rows, count)))
