"""Bits split between two parties by XOR, 64 to a word, and their conjunction (AND) with dealt triples.

A plane is one bit of each of `count` things; a gate takes many planes at once. Products use Beaver's triples over
GF(2). An operand that takes part in several products is masked and opened once for all of them.

The lowest layer of the gates: `compare` builds comparisons on it, `products` and `signs` open planes by it, and
`place.two_servers.scoring` packs bits for them. Bits are packed so that one machine word does 64 gates, and so that
letters stay small: in them a plane takes the fewest whole bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from croupier.core.flow import SubFlow
from croupier.core.wire import Field, Schema
from croupier.mpc.dealt_shares import WORD, Dealer, ShareReader, Words
from croupier.mpc.ring import swap

Bits = npt.NDArray[np.uint8]
# Which left plane meets which right plane.
Pairs = Sequence[tuple[int, int]]


def width(count: int) -> int:
    """Words that one plane of so many bits takes."""
    return -(-count // 64)


def packed(bits: npt.NDArray[np.integer | np.bool_]) -> Words:
    """Bits (anything but 0 counts as one) along the last side, as words; what fills up the last word is 0."""
    dense = np.packbits(bits, axis=-1, bitorder="little")
    return _filled(dense, width(bits.shape[-1]))


def unpacked(words: Words, count: int) -> Bits:
    """The bits of words along the last side."""
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, count=count, bitorder="little")


def carried(words: Words, count: int) -> torch.Tensor:
    """Planes as the wire carries them: whole bytes."""
    return torch.from_numpy(np.ascontiguousarray(np.ascontiguousarray(words).view(np.uint8)[..., : -(-count // 8)]))


def read(carried: torch.Tensor, count: int) -> Words:
    """Planes as they came over the wire, as words."""
    return _filled(carried.numpy(), width(count))


def field(name: str, planes: int, count: int) -> Field:
    """The field of a message that holds planes. It has no upper limit: any byte may come."""
    return Field(name, "|u1", (planes, -(-count // 8)))


def _filled(dense: Bits, words: int) -> Words:
    out = np.zeros((*dense.shape[:-1], 8 * words), np.uint8)
    out[..., : dense.shape[-1]] = dense
    return out.view(WORD)


def opened(peer: str, kind: str, share: Words, count: int) -> SubFlow:
    """The planes that both shares make. Reveals: them, to both."""
    body = yield from swap(peer, kind, {"bits": carried(share, count)})
    return share ^ read(body["bits"], count)


def opening(planes: int, count: int) -> Schema:
    """The schema of the letter that opens planes."""
    return Schema((field("bits", planes, count),))


def deal_pairs(dealer: Dealer, lefts: int, rights: int, pairs: Pairs, words: int) -> None:
    """Masks for planes on the left and on the right, and the products of those that meet."""
    left, right = dealer.words((lefts, words)), dealer.words((rights, words))
    dealer.fit_words(np.stack([left[i] & right[j] for i, j in pairs]))


def pairwise(
    me: int, peer: str, kind: str, left: Words, right: Words, pairs: Pairs, count: int, reader: ShareReader
) -> SubFlow:
    """Shares of left[i] AND right[j] for every pair, in one round. Reveals: masked planes.

    `me` is 0 or 1. Party 0 alone adds the product of the two opened planes, which both know.
    """
    a, b = reader.words(left.shape), reader.words(right.shape)
    c = reader.fitted_words((len(pairs), left.shape[1]))
    both = yield from opened(peer, kind, np.concatenate([left ^ a, right ^ b]), count)
    d, e = both[: len(left)], both[len(left) :]
    i, j = ([*side] for side in zip(*pairs, strict=True))
    out = c ^ (d[i] & b[j]) ^ (e[j] & a[i])
    return out if me else out ^ (d[i] & e[j])
