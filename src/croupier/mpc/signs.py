"""Only the signs of shared numbers are opened, never the numbers.

Reveals, of each number: sign(z), which is -1, 0 or +1 (the tie rule "zero"); or, where a public previous sign is given
for each number (the tie rule "previous"), one bit: the sign, where 0 has the previous sign and is not told apart.

`place.two_servers.scoring` ends with this where a description says `opens = "signs"`, and `trust` where scores are
secret: RAIN's step needs no more than the signs of a sum. In a round neither gives previous signs; both tie rules are
timed by `croupier bench gates`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Coins
from croupier.core.flow import SubFlow
from croupier.core.wire import Schema
from croupier.errors import SpecError
from croupier.mpc import boolean, compare
from croupier.mpc.dealt_shares import DealtShare, ShareReader
from croupier.mpc.ring import Z32, Residues, Ring, kind

Ties = Literal["zero", "previous"]
Signs = npt.NDArray[np.int8]


def flow(
    me: int, peer: str, prefix: str, shares: npt.NDArray[np.integer], material: DealtShare, ring: Ring = Z32,
    previous: Signs | None = None,
) -> SubFlow:  # fmt: skip
    """The signs. Without a `previous` sign for each number, 0 is a sign too (no update)."""
    reader = material.open(me, fitted(len(shares), ring, "zero" if previous is None else "previous"))
    return (yield from steps(me, peer, prefix, ring.residues(shares), ring, previous, reader))


def steps(
    me: int, peer: str, prefix: str, shares: Residues, ring: Ring, previous: Signs | None, reader: ShareReader
) -> SubFlow:
    """The same, for a caller that has opened the dealt material and draws from it for other gates too.

    `shares` are residues of the ring (`mpc.ring`), not those of the encoder `encode.residues`.
    """
    count, zero = len(shares), previous is None
    if previous is not None:
        _check(previous, count)
        # Turned towards the previous sign, a number is negative only where the sign changes; 0 never is.
        shares = shares * previous.astype(np.int64).astype(ring.dtype)
    share = yield from compare.steps(me, peer, prefix, shares, ring, zero, reader)
    plain = yield from boolean.opened(peer, kind(prefix, "open"), share, count)
    bits = boolean.unpacked(plain, count).astype(np.int8)
    if previous is None:
        return (1 - 2 * bits[0]) * (1 - bits[1])
    return previous * (1 - 2 * bits[0])


def _check(previous: Signs, count: int) -> None:
    if previous.shape != (count,) or not bool((np.abs(previous) == 1).all()):
        raise SpecError(f"previous has shape {previous.shape}: give {count} signs, each -1 or +1, or none at all")


def deal(count: int, coins: Coins, ring: Ring = Z32, ties: Ties = "zero") -> tuple[DealtShare, DealtShare]:
    """Both halves for so many signs."""
    return compare.deal(count, coins, ring, ties == "zero")


def schemas(prefix: str, count: int, ring: Ring = Z32, ties: Ties = "zero") -> dict[str, Schema]:
    """The letters of `flow`."""
    zero = ties == "zero"
    return compare.schemas(prefix, count, ring, zero) | {kind(prefix, "open"): boolean.opening(1 + zero, count)}


def fitted(count: int, ring: Ring = Z32, ties: Ties = "zero") -> int:
    """Bytes of the explicit part of what is dealt."""
    return compare.fitted(count, ring, ties == "zero")


def plain(numbers: npt.NDArray[np.integer], previous: Signs | None = None) -> Signs:
    """The signs of numbers in the clear, by the same rule for 0."""
    signs = np.sign(numbers).astype(np.int8)
    return signs if previous is None else np.where(signs == 0, previous, signs).astype(np.int8)
