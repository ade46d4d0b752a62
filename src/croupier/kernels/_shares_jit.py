"""The compiled loops of `shares`; in their own file so that their compiled form can be cached on disk.

Products in the field of 2^61 - 1 are made of halves, because no word holds a whole one.
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


@njit(cache=True, nogil=True)
def wrapped(numbers: Any, bits: int, out: Any) -> None:
    """Numbers as residues of 2^bits."""
    mask = (np.int64(1) << bits) - 1
    for i in range(len(out)):
        out[i] = numbers[i] & mask


@njit(cache=True, nogil=True, inline="always")
def times(one: Any, two: Any) -> Any:
    """The product modulo 2^61 - 1, by halves, because 2^61 counts as 1."""
    high1, low1 = one >> np.uint64(31), one & _LOW31
    high2, low2 = two >> np.uint64(31), two & _LOW31
    middle = high1 * low2 + low1 * high2
    total = (high1 * high2 << _ONE) + (middle >> np.uint64(30)) + ((middle & _LOW30) << np.uint64(31)) + low1 * low2
    total = (total & _P) + (total >> np.uint64(61))
    return total - _P if total >= _P else total
