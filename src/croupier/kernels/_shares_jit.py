"""The compiled loops of `shares`; in their own file so that their compiled form can be cached on disk.

A key has 61 bits and a number up to 62: products are made of halves and summed in two words, and the sum is reduced
modulo 2^61 - 1 once. The plain form in `shares` does the same in Python's whole numbers.
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
def halves(keys: Any, residues: Any, bits: int) -> Any:
    """Sums of products of the low 31 and the high 30 bits of a key with each of its two numbers, as low and high words.

    Products of 32 with 32 bits are what processors do many of at a time; a block is as long as 64 bits can hold.
    """
    out = np.zeros(8, np.int64)
    away = np.int32(32 - bits)
    block = 1 << (32 - bits)
    count = len(residues) // 2
    for start in range(0, count, block):
        low0, high0, low1, high1 = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        for k in range(start, min(count, start + block)):
            first = np.int32(np.int32(residues[2 * k]) << away) >> away
            second = np.int32(np.int32(residues[2 * k + 1]) << away) >> away
            low = np.int64(np.int32(keys[k] & _LOW31))
            high = np.int64(np.int32((keys[k] >> np.uint64(31)) & _LOW30))
            low0 += low * np.int64(first)
            high0 += high * np.int64(first)
            low1 += low * np.int64(second)
            high1 += high * np.int64(second)
        _carry(out, 0, low0)
        _carry(out, 2, high0)
        _carry(out, 4, low1)
        _carry(out, 6, high1)
    if len(residues) % 2:
        last = np.int64(np.int32(np.int32(residues[2 * count]) << away) >> away)
        _carry(out, 0, np.int64(keys[count] & _LOW31) * last)
        _carry(out, 2, np.int64((keys[count] >> np.uint64(31)) & _LOW30) * last)
    return out


@njit(cache=True, nogil=True, inline="always")
def _carry(out: Any, at: int, value: Any) -> None:
    """Add to a sum in two words: 32 bits, and what is above them with its sign."""
    out[at] += value & np.int64(0xFFFFFFFF)
    out[at + 1] += value >> np.int64(32)


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


@njit(cache=True, nogil=True)
def dot(keys: Any, numbers: Any, lane: int) -> Any:
    """Keys times signed numbers modulo 2^61 - 1; with a lane, two numbers to a key, that many bits apart."""
    total = np.uint64(0)
    step = 2 if lane else 1
    for k in range((len(numbers) + step - 1) // step):
        value = np.int64(numbers[k * step])
        if lane and k * step + 1 < len(numbers):
            value += np.int64(numbers[k * step + 1]) << lane
        other = np.uint64(value) if value >= 0 else _P - np.uint64(-value)
        key = keys[k] & _P
        total += times(key - _P if key >= _P else key, other)
        if total >= _P:
            total -= _P
    return total
