"""The bits of a round one by one, as servers of a chain move them that prove what they do: their places, their blocks.

A client's row of residues in unary is so many bits. All rows make one list, client by client; a block is the bits of
all clients for one number and one modulus, and bits change places inside their block only. Places follow from the
release itself: the numbers of places are moved as bits are, so that the chain does to ciphertexts what the release does
to bits.
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
        """Bits of a number."""
        return sum(self.widths)

    @cached_property
    def slots(self) -> int:
        """Numbers of a row."""
        return self.table.mechanism.encode.slots(self.table.layout)

    @property
    def length(self) -> int:
        """Bits of a row."""
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
        """The places of each block when so many rows are there: for every modulus a row a number."""
        starts = self.length * np.arange(many)[:, None] + self.wide * np.arange(self.slots)[:, None, None]
        found, at = [], 0
        for width in self.widths:
            found.append((starts + at + np.arange(width)).reshape(self.slots, -1))
            at += width
        return found

    def spans(self) -> list[slice]:
        """Where each modulus's bits lie in a number."""
        stops = np.cumsum(self.widths).tolist()
        return [slice(stop - width, stop) for stop, width in zip(stops, self.widths, strict=True)]

    def asked(self, share: float) -> int:
        """How many numbers are proven."""
        return math.ceil(share * self.slots)

    def chosen(self, coin: bytes, share: float) -> list[int]:
        """The numbers that a coin chooses to be proven."""
        drawn = Coins(coin).child("proven").secure().permutation(self.slots)
        return sorted(drawn[: self.asked(share)].tolist())

    def marked(self, places: npt.NDArray[np.bool_]) -> Tensor:
        """The numbers that some marked place belongs to."""
        found = places.reshape(-1, self.slots, self.wide).any((0, 2))
        return torch.from_numpy(found.astype(np.uint8))


def caught(slots: int, proven: int, changed: int) -> float:
    """The chance that a proven number is among so many changed ones, when all choices are as likely."""
    if changed > slots - proven:
        return 1.0
    return 1 - math.comb(slots - changed, proven) / math.comb(slots, proven)


def at_least(share: float, changed: Sequence[int]) -> list[float]:
    """The same for any model, from below: each changed number is proven with this chance or more."""
    return [1 - (1 - share) ** many for many in changed]


def passes(share: float, changed: int, tries: int) -> float:
    """The chance, from above, that the coin misses all changed numbers in one of so many rounds.

    Who would be caught can fall silent once it knows the coin, lose the round, and try again in another.
    """
    missed = (1 - share) ** changed
    # Not 1 - (1 - missed)^tries, which is 0 long before the chance is.
    return 1.0 if missed == 1 else -math.expm1(tries * math.log1p(-missed))
