"""Many multiples of a few points, added to others: each is a sum of table entries, one call of the library (`curve`).

To encrypt bits, and to give each of them fresh randomness in a mix, takes many multiples of the same two points, the
base point and the joint key. The library multiplies by any point one scalar at a time, slowly; here each of the few
points has a table of its multiples by the digits of a scalar, and a multiple is the sum of one entry for each digit,
with what it is added to in the same call. No entry is at infinity: digits count from 1, and the scalar is made less by
what that adds. `elgamal`, `shuffle_proof` and `place.chain.proven_cost` multiply by it; `place.chain.mix_record`
refuses copies by `check_distinct`.

Which entries are read follows the scalar: as with `curve.times`, and unlike `curve.base`, who shares a machine might
learn from its timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from croupier.errors import IntegrityError
from croupier.mpc import curve
from croupier.mpc.curve import ORDER, SCALAR, Points

# Fewer multiples than these are not worth a table of digits of 4 bits, and of 8 bits.
_SMALL, _LARGE = 100, 3000


def shifted(points: Points | None, fixed: Points, scalars: Sequence[int]) -> Points:
    """Each point plus so many times the fixed one; without points, the multiples alone.

    Raises: IntegrityError when a sum is at infinity, and of few scalars when one is 0: honest parties meet neither.
    """
    if len(scalars) < _SMALL:
        found = curve.multiples(fixed, scalars)
        return found if points is None else curve.plus(points, found)
    bits = 8 if len(scalars) >= _LARGE else 4
    table, less = _table(np.ascontiguousarray(fixed).tobytes(), bits)
    raw = np.frombuffer(b"".join([((one - less) % ORDER).to_bytes(SCALAR, "little") for one in scalars]), np.uint8)
    digits = raw.reshape(-1, SCALAR)
    if bits == 4:
        digits = np.stack([digits & 15, digits >> 4], 2).reshape(len(scalars), -1)
    places = (np.arange(digits.shape[1], dtype=np.int64) << bits) + digits
    return curve.sums_at(table, places, points)


@lru_cache(maxsize=8)
def _table(fixed: bytes, bits: int) -> tuple[Points, int]:
    """For each digit of a scalar the multiples that it can stand for, and what they are too large by together."""
    point = np.frombuffer(fixed, np.uint8).reshape(1, -1)
    windows, many = 256 // bits, 1 << bits
    starts = curve.times(np.repeat(point, windows, 0), [1 << (bits * at) for at in range(windows)])
    rows = [starts, curve.times(starts, [2] * windows)]
    while len(rows) < many:
        rows.append(curve.plus(rows[-1], starts))
    table = np.stack(rows, 1).reshape(windows * many, -1)
    table.setflags(write=False)
    return table, sum(1 << (bits * at) for at in range(windows)) % ORDER


def base(scalars: Sequence[int]) -> Points:
    """Multiples of the base point, of which many are wanted at once."""
    return shifted(None, curve.base([1]), scalars)


def check_distinct(points: npt.NDArray[np.uint8], who: str) -> None:
    """Raises: IntegrityError when two rows are the same: a copied bit comes out twice, by which it might be told."""
    if len(np.unique(points.reshape(len(points), -1), axis=0)) < len(points):
        raise IntegrityError(f"{who} sent the same ciphertext twice: one of them is a copy")
