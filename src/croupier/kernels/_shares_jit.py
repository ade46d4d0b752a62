"""Compiled loops: residues of 2^bits to signed numbers, and one product in the field of 2^61 - 1.

`kernels.shares` calls `signed`. `times` is for the compiled loops of `kernels.packed` and of
`kernels.field`, which multiply elements of the field. They are in a file of their own so that numba is loaded
only once they are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.kernels.compiled import njit

_ONE = np.uint64(1)
_P = np.uint64((1 << 61) - 1)
_LOW31 = np.uint64((1 << 31) - 1)
_LOW30 = np.uint64((1 << 30) - 1)


@njit(cache=True, nogil=True)
def signed(residues: Any, bits: int, out: Any) -> None:
    """Residues of 2^bits as the numbers nearest to 0."""
    for i in range(len(out)):
        value = np.int64(residues[i])
        out[i] = value - ((value >> (bits - 1)) << bits)


@njit(cache=True, nogil=True, inline="always")
def times(one: Any, two: Any) -> Any:
    """The product of two elements of the field, modulo 2^61 - 1.

    A product has up to 122 bits, which no word holds: each factor is cut into 30 upper and 31 lower bits, and the four
    products of halves are added. Bits from the 61st on are added to the lower ones, because 2^61 is 1 in this field.
    """
    high1, low1 = one >> np.uint64(31), one & _LOW31
    high2, low2 = two >> np.uint64(31), two & _LOW31
    middle = high1 * low2 + low1 * high2
    total = (high1 * high2 << _ONE) + (middle >> np.uint64(30)) + ((middle & _LOW30) << np.uint64(31)) + low1 * low2
    total = (total & _P) + (total >> np.uint64(61))
    return total - _P if total >= _P else total
