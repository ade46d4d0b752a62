"""A tag that only clients can make and check, and that adds up with what it authenticates.

From: an affine one-time MAC. With a secret vector k and a pad for each client, a client's tag of its numbers x is
<k, x> + pad modulo 2^61 - 1. The sum of the tags fits the sum of the numbers, the sum of these very clients' pads, and
nothing else: to make another sum fit, its difference times k must be guessed, which succeeds with probability 2 / p at
most. Without pads every multiple of a true sum would fit, 0 among them.

`place.servers` uses it: sum servers that alter, drop or add a client's numbers are caught by every client on its own,
from what is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Coins
from croupier.kernels import shares
from croupier.kernels.shares import P, Words


@dataclass(frozen=True)
class Tagger:
    """One attempt's key: drawn once from the clients' common secret, for so many numbers of so many bits."""

    coins: Coins
    bits: int
    padded: bool = True

    def key(self, count: int) -> Words:
        """The secret vector."""
        return self.coins.child("key").secure().words(shares.keys(count, self.bits))

    def pad(self, client: str) -> int:
        """What makes this client's tag its own."""
        return int(self.coins.child("pad", client).secure().below(P)[0]) if self.padded else 0

    def tag(self, key: Words, numbers: npt.NDArray[np.int64], client: str) -> int:
        """A client's tag."""
        return (shares.dot(key, numbers, self.bits) + self.pad(client)) % P

    def fits(self, key: Words, sums: npt.NDArray[np.int64], tag: int, clients: Sequence[str]) -> bool:
        """Whether a sum and a tag are those of exactly these clients."""
        return (shares.dot(key, sums, self.bits) + sum(self.pad(client) for client in clients) - tag) % P == 0
