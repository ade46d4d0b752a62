"""The compiled loops of `field`, in a file of their own so that numba is loaded only once they are needed.

Only `kernels.field` calls them. Sums of many 61-bit numbers do not fit a machine word: `rows` and `columns` keep a sum
as two, of lower and of upper halves, and reduce it once at the end, which makes them longer than their plain
references. Products modulo 2^61 - 1 are made by `_shares_jit.times`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.kernels._shares_jit import times
from croupier.kernels.compiled import njit

_P = np.uint64((1 << 61) - 1)
_LOW32 = np.uint64((1 << 32) - 1)


@njit(cache=True, nogil=True)
def products(one: Any, two: Any, out: Any) -> None:
    """Products modulo 2^61 - 1, element by element."""
    for i in range(len(out)):
        out[i] = times(one[i], two[i])


@njit(cache=True, nogil=True, inline="always")
def _folded(low: Any, high: Any) -> Any:
    """A signed sum in two words, low + 2^32 high, modulo 2^61 - 1."""
    one = low % np.int64(_P)
    two = high % np.int64(_P)
    total = np.uint64(one) + times(np.uint64(two), np.uint64(1) << np.uint64(32))
    return total - _P if total >= _P else total


@njit(cache=True, nogil=True)
def rows(numbers: Any, bits: Any, out: Any) -> None:
    """Each row's sum, a number counted as negative where its bit is set, added to `out` modulo 2^61 - 1."""
    count, width = numbers.shape
    for i in range(count):
        low, high = np.int64(0), np.int64(0)
        for j in range(width):
            number = numbers[i, j]
            sign = np.int64(1) - (np.int64((bits[i, j >> 3] >> np.uint8(j & 7)) & np.uint8(1)) << np.int64(1))
            low += sign * np.int64(number & _LOW32)
            high += sign * np.int64(number >> np.uint64(32))
        total = out[i] + _folded(low, high)
        out[i] = total - _P if total >= _P else total


@njit(cache=True, nogil=True)
def columns(numbers: Any, bits: Any, weights: Any, out: Any, signs: Any) -> None:
    """Each column's weighted sum modulo 2^61 - 1, numbers negative where their bit is set; and that of its signs.

    Halves are below 2^32 and weights add up to less than 2^31, so that a column of products fits a signed word.
    """
    count, width = numbers.shape
    for j in range(width):
        signs[j] = 0
    low, high = np.zeros(width, np.int64), np.zeros(width, np.int64)
    for i in range(count):
        weight = weights[i]
        if weight == 0:
            continue
        for j in range(width):
            number = numbers[i, j]
            sign = np.int64(1) - (np.int64((bits[i, j >> 3] >> np.uint8(j & 7)) & np.uint8(1)) << np.int64(1))
            signs[j] += weight * sign
            low[j] += weight * sign * np.int64(number & _LOW32)
            high[j] += weight * sign * np.int64(number >> np.uint64(32))
    for j in range(width):
        out[j] = _folded(low[j], high[j])


@njit(cache=True, nogil=True)
def rows32(numbers: Any, bits: Any, out: Any) -> None:
    """Each row's signed sum, added to `out` modulo 2^32."""
    count, width = numbers.shape
    for i in range(count):
        total = np.uint32(0)
        for j in range(width):
            mask = np.uint32(0) - np.uint32((bits[i, j >> 3] >> np.uint8(j & 7)) & np.uint8(1))
            total += (numbers[i, j] ^ mask) - mask
        out[i] += total


@njit(cache=True, nogil=True)
def columns32(numbers: Any, bits: Any, weights: Any, out: Any, signs: Any) -> None:
    """Each column's weighted signed sum, modulo 2^32; and that of its signs."""
    count, width = numbers.shape
    for j in range(width):
        out[j], signs[j] = np.uint32(0), 0
    for i in range(count):
        weight = np.uint32(weights[i])
        if weight == 0:
            continue
        for j in range(width):
            mask = np.uint32(0) - np.uint32((bits[i, j >> 3] >> np.uint8(j & 7)) & np.uint8(1))
            signs[j] += np.int64(np.int32((weight ^ mask) - mask))
            out[j] += weight * ((numbers[i, j] ^ mask) - mask)


@njit(cache=True, nogil=True)
def carryless(one: Any, two: Any, out: Any) -> None:
    """Products in GF(2^128), elements as (low, high) words of a polynomial, modulo x^128 + x^7 + x^2 + x + 1."""
    for i in range(len(out)):
        low, high = one[i, 0], one[i, 1]
        got0, got1 = np.uint64(0), np.uint64(0)
        for k in range(128):
            word = two[i, k >> 6]
            mask = np.uint64(0) - ((word >> np.uint64(k & 63)) & np.uint64(1))
            got0 ^= low & mask
            got1 ^= high & mask
            over = np.uint64(0) - (high >> np.uint64(63))
            high = (high << np.uint64(1)) | (low >> np.uint64(63))
            low = (low << np.uint64(1)) ^ (over & np.uint64(0x87))
        out[i, 0], out[i, 1] = got0, got1


@njit(cache=True, nogil=True)
def masked(bits: Any, value: Any, minus: Any, out: Any) -> None:
    """`value` where a bit is set and 0 elsewhere, less other elements, modulo 2^61 - 1."""
    count, width = minus.shape
    for i in range(count):
        for j in range(width):
            bit = np.uint64((bits[i, j >> 3] >> np.uint8(j & 7)) & np.uint8(1))
            total = value * bit + _P - minus[i, j]
            out[i, j] = total - _P if total >= _P else total


@njit(cache=True, nogil=True)
def masked32(bits: Any, minus: Any, out: Any) -> None:
    """As `masked` with the value 1, modulo 2^32."""
    count, width = minus.shape
    for i in range(count):
        for j in range(width):
            out[i, j] = np.uint32((bits[i, j >> 3] >> np.uint8(j & 7)) & np.uint8(1)) - minus[i, j]


@njit(cache=True, nogil=True)
def dots(numbers: Any, bits: Any, keys: Any, out: Any) -> None:
    """Each row's inner product with keys, numbers negative where their bit is set, added to `out`."""
    count, width = numbers.shape
    for i in range(count):
        total = out[i]
        for j in range(width):
            part = times(numbers[i, j], keys[j])
            if (bits[i, j >> 3] >> np.uint8(j & 7)) & np.uint8(1):
                part = _P - part
            total += part
            total = (total & _P) + (total >> np.uint64(61))
        out[i] = total - _P if total >= _P else total
