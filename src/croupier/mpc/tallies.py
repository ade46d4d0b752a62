"""What two servers compute from shares of hidden rows: distances to a reference, weighted sums, and row fingerprints.

Both hold the same hidden rows q in the clear, and shares of the bits s that hide them. A row's own bits are
q + s - 2qs: linear in s, so that each server works on its own.

This is the heavy part of a RAIN round, and it needs no message at all: both servers walk over their shares, block by
block, once for each result, and open only the short results (`place.two_servers.scoring` distances and sums,
`place.two_servers.server_flow` the check by fingerprints). A hidden row is a client's row of signs under a mask; a
fingerprint is a short keyed value of a row, by which an altered row is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.errors import IntegrityError, ProtocolError
from croupier.kernels import field as kernel
from croupier.kernels.field import Bytes, Ints, Words
from croupier.kernels.shares import P
from croupier.mpc.authentic import TaggedShares
from croupier.mpc.deal_shares import DealSpec, Shares
from croupier.mpc.field import PRIME

# Weights add up to less than this, so that two words hold a sum of shares (`kernels.field.column_sums`).
MOST = 1 << 31


@dataclass(frozen=True)
class Tally:
    """One server's work on its shares: which server it is, and its share of the key of their tags."""

    deal: DealSpec
    shares: Shares
    me: int
    point: int

    def distances(self, hidden: Bytes, reference: Bytes) -> TaggedShares:
        """Shares of how many bits of each row differ from the reference's."""
        apart = hidden ^ reference
        known = np.bitwise_count(apart).sum(1, dtype=np.uint64)
        values, tags = self._none(self.deal.rows), self._none(self.deal.rows)
        for start, stop, numbers, marks in self.shares.blocks():
            part = _cut(apart, start, stop)
            kernel.row_sums(numbers, part, values)
            if marks is not None:
                kernel.row_sums(marks, part, tags)
        return self._with(values, tags, known.astype(np.int64))

    def sums(self, hidden: Bytes, weights: Ints) -> TaggedShares:
        """Shares of the weighted sum of the rows, their bits taken for -1 and 1."""
        if int(weights.sum()) >= MOST:
            raise ProtocolError(f"weights add up to {int(weights.sum())}; a sum holds less than {MOST}")
        values, tags = self._none(self.deal.size), self._none(self.deal.size)
        known = np.empty(self.deal.size, np.int64)
        for start, stop, numbers, marks in self.shares.blocks():
            part, span = _cut(hidden, start, stop), slice(start, stop)
            # A sign is (1 - 2q)(2s - 1).
            values[span], signs = kernel.column_sums(numbers, part, weights)
            if marks is not None:
                tags[span], _ = kernel.column_sums(marks, part, weights)
            known[span] = -signs
        return self._with(self._doubled(values), self._doubled(tags), known)

    def fingerprints(self, hidden: Bytes, keys: Words, matrix: int) -> TaggedShares:
        """Shares of each row's inner product with keys, for a matrix of shares and the rows that it hides."""
        values, tags, known = (np.zeros(self.deal.rows, np.uint64) for _ in range(3))
        for start, stop, numbers, marks in self.shares.blocks(matrix):
            part = _cut(hidden, start, stop)
            kernel.dots(numbers, part, keys[start:stop], values)
            if marks is not None:
                kernel.dots(marks, part, keys[start:stop], tags)
            ones = kernel.bits_of(part, stop - start).astype(np.uint64)
            kernel.dots(ones, np.zeros_like(part), keys[start:stop], known)
        return self._plus(values, tags, known)

    def _none(self, count: int) -> npt.NDArray[Any]:
        return np.zeros(count, self.deal.dtype)

    def _doubled(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.deal.authentic:
            return PRIME.add(numbers, numbers)
        twice: npt.NDArray[Any] = np.add(numbers, numbers)
        return twice

    def _with(self, values: npt.NDArray[Any], tags: npt.NDArray[Any], known: Ints) -> TaggedShares:
        """With a public number added to each."""
        if not self.deal.authentic:
            return TaggedShares(values + known.astype(np.uint32) if self.me == 0 else values, tags)
        return self._plus(values, tags, (known % P).astype(np.uint64))

    def _plus(self, values: Words, tags: Words, known: Words) -> TaggedShares:
        shifted = PRIME.add(values, known) if self.me == 0 else values
        marked = PRIME.add(tags, PRIME.mul(np.full_like(known, self.point), known))
        return TaggedShares(shifted.reshape(-1, 1), marked.reshape(-1, 1))


def centred(values: npt.NDArray[Any], bound: int) -> Ints:
    """Opened numbers as signed ones. Raises: IntegrityError when one is out of bounds."""
    modulus = 1 << 32 if values.dtype == np.uint32 else P
    wide = values.reshape(-1).astype(np.int64)
    found = np.where(wide > modulus // 2, wide - modulus, wide)
    if len(found) and int(np.abs(found).max()) > bound:
        raise IntegrityError(f"round aborted: a number was opened that is larger than {bound}")
    return found


def _cut(rows: Bytes, start: int, stop: int) -> Bytes:
    return np.ascontiguousarray(rows[:, start // 8 : -(-stop // 8)])
