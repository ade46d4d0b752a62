"""Where each single bit of a round's rows lies, for the chain whose servers move encrypted bits and prove what they do.

A client's row of residues in unary is a row of bits: for every number (one coordinate of the update) and every modulus
a few of them. The rows of all clients, one after the other, make one list of bits, and a *place* is an index into it. A
*block* is the bits of all clients for one number and one modulus; bits change places inside their block only.

The release says how bits move (`Release.moved`), but only moves rows of bits that it is given. So `order` gives it the
binary digits of the places as if they were the bits, one digit at a time, and reads off which place each bit came from:
the chain then does to ciphertexts exactly what the release does to bits.

`proven`, `mix_record` and `proven_flow` move and check bits by it, and `proven_words` prints the chances that a cheat
is caught. `croupier bench mix` and `croupier bench tamper` use it too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Given
from croupier.kernels.residues import widths
from croupier.mpc.elgamal import Bytes
from croupier.mpc.shuffle_proof import Order
from croupier.place.chain.table import MixTable
from croupier.place.placement import Mechanism


@dataclass(frozen=True)
class BitTable:
    """Single bits of the rows of one round."""

    table: MixTable

    @classmethod
    def of(cls, mechanism: Mechanism, given: Given) -> BitTable:
        """Of the round that a party is told of."""
        return cls(MixTable.of(mechanism, given))

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """How many bits each modulus has; none where coordinates are no residues."""
        modulus = self.table.mechanism.encode.modulus
        return tuple(widths(modulus)) if isinstance(modulus, tuple) else ()

    @property
    def wide(self) -> int:
        """How many bits one number has, over all moduli."""
        return sum(self.widths)

    @cached_property
    def slots(self) -> int:
        """How many numbers a row has."""
        return self.table.mechanism.encode.slots(self.table.layout)

    @property
    def length(self) -> int:
        """How many bits a row has."""
        return self.slots * self.wide

    def bits(self, row: Tensor) -> Bytes:
        """A packed row's bits."""
        return np.unpackbits(row.numpy(), count=self.length, bitorder="little")

    def rows(self, bits: Bytes) -> Bytes:
        """Bits of several rows, packed as they are released."""
        return np.packbits(bits.reshape(-1, self.length), axis=1, bitorder="little")

    def order(self, present: tuple[str, ...], seed: bytes) -> Order:
        """From which place each bit comes when the release moves the rows of those present with these coins."""
        count = len(present) * self.length
        places, found, move = np.arange(count), np.zeros(count, np.int64), self.table.move(present)
        for digit in range(max(1, (count - 1).bit_length())):
            plane = self.rows(((places >> digit) & 1).astype(np.uint8))
            moved = move(plane, Coins(seed))
            found |= (
                np.unpackbits(moved, axis=1, count=self.length, bitorder="little").reshape(-1).astype(np.int64) << digit
            )
        return found

    def blocks(self, many: int) -> list[npt.NDArray[np.int64]]:
        """The places of each block among so many clients: one array for each modulus, with one row for each number."""
        starts = self.length * np.arange(many)[:, None] + self.wide * np.arange(self.slots)[:, None, None]
        found, at = [], 0
        for width in self.widths:
            found.append((starts + at + np.arange(width)).reshape(self.slots, -1))
            at += width
        return found

    def spans(self) -> list[slice]:
        """Where each modulus's bits lie among the bits of a number."""
        stops = np.cumsum(self.widths).tolist()
        return [slice(stop - width, stop) for stop, width in zip(stops, self.widths, strict=True)]

    def asked(self, share: float) -> int:
        """For how many numbers servers must prove that they only moved bits."""
        return math.ceil(share * self.slots)

    def chosen(self, coin: bytes, share: float) -> list[int]:
        """The numbers to be proven, drawn from a coin that all servers tossed jointly (`mpc.many_coin`)."""
        drawn = Coins(coin).child("proven").secure().permutation(self.slots)
        return sorted(drawn[: self.asked(share)].tolist())

    def marked(self, places: npt.NDArray[np.bool_]) -> Tensor:
        """Which numbers have a marked place, in any client's row: a 1 for each that does."""
        found = places.reshape(-1, self.slots, self.wide).any((0, 2))
        return torch.from_numpy(found.astype(np.uint8))


def at_least(share: float, changed: Sequence[int]) -> list[float]:
    """The chance that a changed number is proven, from below, for rows of any length: one for each count of changes.

    Each changed number is proven with a chance of `share` or more; `croupier bench tamper` has the exact chance.
    """
    return [1 - (1 - share) ** many for many in changed]


def passes(share: float, changed: int, tries: int) -> float:
    """The chance, from above, that the coin misses all changed numbers in one of so many rounds.

    Who would be caught can fall silent once it knows the coin, lose the round, and try again in another.
    """
    missed = (1 - share) ** changed
    # Not 1 - (1 - missed)^tries, which is 0 long before the chance is.
    return 1.0 if missed == 1 else -math.expm1(tries * math.log1p(-missed))
