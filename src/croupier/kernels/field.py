"""Sums of shares under public signs, and products in two fields: compiled loops with plain references.

Two servers that hold secret shares of hidden rows compute distances, weighted sums and hashes by these (`mpc.tallies`,
`mpc.field`, `mpc.dealer` and `place.two_servers`, for RAIN). In a sum a public bit decides the sign with which a share
counts, and all the rest is addition.

Signs are bits, eight to a byte, lowest first; a set bit counts its number as negative. Elements of the prime field of
2^61 - 1 are 64-bit words, those of GF(2^128) pairs of them, low word first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.kernels.shares import P

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
# Fewer numbers are done by the plain form.
_FEW = 1 << 10
# The bits of x^7 + x^2 + x + 1, which x^128 is in GF(2^128).
_TAIL = 0x87


def row_sums(numbers: npt.NDArray[Any], bits: Bytes, into: npt.NDArray[Any]) -> None:
    """Add each row's signed sum to `into`: modulo 2^32 for 32-bit numbers, else modulo 2^61 - 1."""
    if numbers.size < _FEW:
        into[:] = _reduced(into.astype(object) + _signed(numbers, bits).sum(1), numbers.dtype)
        return
    from croupier.kernels import _field_jit as jit

    (jit.rows32 if numbers.dtype == np.uint32 else jit.rows)(numbers, bits, into)


def column_sums(numbers: npt.NDArray[Any], bits: Bytes, weights: Ints) -> tuple[npt.NDArray[Any], Ints]:
    """Each column's signed sum, each row times its weight; and the weighted sum of the signs alone.

    Modulo 2^32 for 32-bit numbers, else modulo 2^61 - 1. Weights must add up to less than 2^31, so that two words hold
    a sum.
    """
    if numbers.size < _FEW:
        return column_sums_plain(numbers, bits, weights)
    from croupier.kernels import _field_jit as jit

    out, signs = np.empty(numbers.shape[1], numbers.dtype), np.empty(numbers.shape[1], np.int64)
    (jit.columns32 if numbers.dtype == np.uint32 else jit.columns)(numbers, bits, weights, out, signs)
    return out, signs


def row_sums_plain(numbers: npt.NDArray[Any], bits: Bytes) -> npt.NDArray[Any]:
    """Each row's signed sum, by Python's whole numbers: what `row_sums` is tested against."""
    return _reduced(_signed(numbers, bits).sum(1), numbers.dtype)


def column_sums_plain(numbers: npt.NDArray[Any], bits: Bytes, weights: Ints) -> tuple[npt.NDArray[Any], Ints]:
    """As `column_sums`, by Python's whole numbers."""
    signs = 1 - 2 * bits_of(bits, numbers.shape[1]).astype(np.int64)
    return _reduced(weights.astype(object) @ _signed(numbers, bits), numbers.dtype), weights @ signs


def dots(numbers: Words, bits: Bytes, keys: Words, into: Words) -> None:
    """Add each row's inner product with the keys to `into`, numbers negative where their bit is set."""
    if numbers.size < _FEW:
        into[:] = _reduced(into.astype(object) + _signed(numbers, bits) @ keys.astype(object), numbers.dtype)
        return
    from croupier.kernels import _field_jit as jit

    jit.dots(numbers, bits, keys, into)


def bits_of(rows: Bytes, width: int) -> Bytes:
    """Rows of packed bits, one a byte."""
    return np.unpackbits(rows, axis=1, count=width, bitorder="little")


def packed(bits: npt.NDArray[Any]) -> Bytes:
    """Rows of bits, eight to a byte."""
    return np.packbits(bits.astype(np.uint8), axis=-1, bitorder="little")


def spread(bits: Bytes, value: int, minus: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The second share of `value` times each bit, where `minus` is the first: what must be added to it.

    Modulo 2^32 for 32-bit numbers, where `value` is taken to be 1, else modulo 2^61 - 1.
    """
    out = np.empty_like(minus)
    if minus.size < _FEW:
        wanted = bits_of(bits, minus.shape[1]).astype(object) * value
        out[:] = _reduced(wanted - minus.astype(object), minus.dtype)
        return out
    from croupier.kernels import _field_jit as jit

    if minus.dtype == np.uint32:
        jit.masked32(bits, minus, out)
    else:
        jit.masked(bits, np.uint64(value), minus, out)
    return out


def products(one: Words, two: Words) -> Words:
    """Products modulo 2^61 - 1, element by element."""
    if len(one) < _FEW:
        return np.array([int(a) * int(b) % P for a, b in zip(one, two, strict=True)], np.uint64)
    from croupier.kernels import _field_jit as jit

    out = np.empty(len(one), np.uint64)
    jit.products(np.ascontiguousarray(one), np.ascontiguousarray(two), out)
    return out


def carryless(one: Words, two: Words) -> Words:
    """Products in GF(2^128), element by element."""
    from croupier.kernels import _field_jit as jit

    out = np.empty_like(one)
    jit.carryless(np.ascontiguousarray(one), np.ascontiguousarray(two), out)
    return out


def carryless_plain(one: int, two: int) -> int:
    """One product in GF(2^128), elements as whole numbers whose bits are coefficients."""
    total = 0
    while two:
        total ^= one if two & 1 else 0
        one = one << 1
        one = (one & ((1 << 128) - 1)) ^ (_TAIL if one >> 128 else 0)
        two >>= 1
    return total


def _signed(numbers: npt.NDArray[Any], bits: Bytes) -> npt.NDArray[Any]:
    signs = 1 - 2 * bits_of(bits, numbers.shape[1]).astype(np.int64)
    whole: npt.NDArray[Any] = numbers.astype(object) * signs
    return whole


def _reduced(numbers: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    modulus = 1 << 32 if dtype == np.uint32 else P
    return np.array([int(number) % modulus for number in numbers.reshape(-1)], dtype).reshape(numbers.shape)
